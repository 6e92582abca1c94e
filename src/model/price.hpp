// SPDX-License-Identifier: Apache-2.0
// Price of a schedule by alpha-beta on the counts read off it: which algorithm `auto` takes until
// the topology model replaces this file's constants.
//
//   path  = depth*alpha + (path_steps + others)*step + path_operands*piece*beta
//           of one slice, first to last; others: the steps of a rank's other lanes, which its
//           thread takes first
//   lane  = the same of the lane that takes longest for a slice
//   work  = steps*step + operands*piece*beta                             a rank's own, of a slice
//   turns = messages/slots*(alpha + step) + chunks/slots*piece*(wire + 2*beta)   of a connection
//   price = max(path, turns) + (slices - 1)*max(work, wire, lane/replicas, turns/replicas)
//           never less than the busiest rank's work of all slices
//
// If ranks outnumber cores, the busiest rank's core does an equal share of the others' work as
// well. Each message on the path then hands the core round once, and every message of any rank
// costs a core alpha.
//
// A lane begins a slice when it is through with the one before; replicas have lanes of their own.
// The longest lane is all the path in a ring, one step in a tree and one level of a hierarchy.
// (src/schedule/pace.hpp counts what a slice adds exactly, in steps; this is never less.) Turns are
// of the connection between hosts that carries most: as many messages are under way on it as it has
// slots.
//
// A message to another host costs the wire's alpha instead, and what the ranks do with its bytes
// takes place beside their way: a slice's wire is what the busiest host sends or receives, since
// its ranks share an interface; on the path at least what passes one after another. The core that
// sends or receives it is busy for the wire's overhead: a rank's own work, on the path without the
// messages whose overhead is in alpha.
//
// An operand in a peer's memory adds remote + bytes*remote_beta to both, one that is a message
// bytes*message_beta: its lines pass from core to core, where a rank's own stay in its cache.
// Pure; knows no transport object and no clock.
#pragma once

#include <cstdint>

#include "model/counts.hpp"
#include "model/host_costs.hpp"

namespace tutti {

// How a plan runs a schedule, and on what.
struct PlanSetting {
  std::uint32_t replicas = 1;
  std::uint32_t slots = 2;  // of a connection
  std::int32_t cores = 1;
  LinkCost wire{};
};

// Divides the time into terms, which add up to time_ns.
struct PlanCost {
  double time_ns = 0;
  double messages_ns = 0;  // alpha
  double switches_ns = 0;  // cores given to other ranks
  double steps_ns = 0;
  double bytes_ns = 0;   // operands read and written
  double wire_ns = 0;    // bytes between hosts
  double remote_ns = 0;  // what those in a peer's memory cost beyond
};

// A plan's price at any size: the sums that no size changes are formed once.
class PlanPrices {
 public:
  PlanPrices(const ScheduleCounts& counts, const HostCosts& costs, const PlanSetting& setting);
  // `bytes`: of the whole collective, per rank.
  [[nodiscard]] PlanCost at(std::uint64_t bytes, std::uint32_t slices) const;

 private:
  // What something that a plan does takes: however large its operands are, and for each byte of
  // one.
  struct Rate {
    PlanCost fixed, per_byte;
  };
  class Tariff;

  double chunks_, replicas_;
  double crowd_;  // how many others share a rank's core, on average
  // All of one slice.
  Rate path_;     // from the first step to the last
  Rate own_;      // the work of the rank that has most
  Rate link_;     // of the interface that carries most
  Rate lane_;     // of the lane that takes longest
  Rate credits_;  // until a slot takes the next message, on the connection that carries most
  Rate core_;     // the work of the busiest core, for all its ranks
};

}  // namespace tutti
