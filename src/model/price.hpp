// Price of a schedule by alpha-beta on the counts read off it: which algorithm `auto` takes until
// the topology model replaces this file's constants.
//
//   path  = depth*alpha + path_steps*step + path_operands*piece*beta     one slice, first to last
//   lane  = the same of the lane that takes longest for a slice
//   work  = steps*step + operands*piece*beta                             a rank's own, of a slice
//   price = path + (slices - 1)*max(work, wire)         when slices overlap (replicas > 1)
//           path + (slices - 1)*max(work, wire, lane)   when each lane takes one after another
//           never under the work of all ranks shared by the cores there are, where each message on
//           the path gives a core once to every rank that has it, if ranks outnumber cores
//
// A lane begins a slice when it is through with the one before. The longest lane is all the path in
// a ring, one step in a tree and one level of a hierarchy. (src/schedule/pace.hpp counts what a
// slice adds exactly, in steps; this is never less.)
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
#include <span>

#include "model/host_costs.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// Counts of one slice, in messages, steps and chunk-operands (one operand of one chunk).
struct ScheduleCounts {
  std::uint32_t chunks = 1;
  std::uint32_t max_message_chunks = 1;
  std::int32_t ranks = 1;
  std::uint32_t depth = 0;           // messages on the longest path
  std::uint64_t path_steps = 0;      // steps on the longest path by steps
  std::uint64_t path_operands = 0;   // operands on the longest path by operands
  std::uint64_t max_steps = 0;       // of one rank
  std::uint64_t max_operands = 0;    // of one rank
  std::uint64_t total_steps = 0;     // of all ranks
  std::uint64_t total_operands = 0;  // of all ranks
  // Those among the operands that lie in a peer's memory.
  std::uint64_t path_remotes = 0;
  std::uint64_t max_remotes = 0;
  std::uint64_t total_remotes = 0;
  // And those that are messages, sent or received.
  std::uint64_t path_transfers = 0;
  std::uint64_t max_transfers = 0;
  std::uint64_t total_transfers = 0;
  // Of the longest lane by each, from when its first step may start to the end of its last one.
  std::uint64_t lane_depth = 0;
  std::uint64_t lane_steps = 0;
  std::uint64_t lane_operands = 0;
  std::uint64_t lane_remotes = 0;
  std::uint64_t lane_transfers = 0;
  // Of the messages above those to other hosts, and the chunks that these carry.
  std::uint32_t far_depth = 0;
  std::uint64_t path_far_chunks = 0;
  std::uint64_t lane_far_depth = 0;
  std::uint64_t lane_far_chunks = 0;
  std::uint64_t host_far_chunks = 0;  // that one host sends, or receives: the most
  // Of the operands those that are such messages, and the chunks that these carry.
  std::uint64_t max_far_transfers = 0;
  std::uint64_t max_far_operands = 0;
  std::uint64_t total_far_transfers = 0;
  std::uint64_t total_far_operands = 0;
};

// The schedule must be complete and free of deadlock (verified). replicas == 1. `hosts`: each
// rank's host, any numbers; empty: all on one.
[[nodiscard]] ScheduleCounts count_schedule(const Schedule& schedule,
                                            std::span<const std::int32_t> hosts = {});

struct PriceInput {
  std::uint64_t bytes = 0;  // of the whole collective, per rank
  std::uint32_t slices = 1;
  std::uint32_t replicas = 1;
  std::int32_t cores = 1;
  LinkCost wire{};
};

// Where the time goes; the terms add up to time_ns.
struct PlanCost {
  double time_ns = 0;
  double messages_ns = 0;  // alpha
  double switches_ns = 0;  // cores given to other ranks
  double steps_ns = 0;
  double bytes_ns = 0;   // operands read and written
  double wire_ns = 0;    // bytes between hosts
  double remote_ns = 0;  // what those in a peer's memory cost beyond
  bool shared = false;   // not the path, but the work of all ranks on the cores there are
};

[[nodiscard]] PlanCost price_plan(const ScheduleCounts& counts, const HostCosts& costs,
                                  const PriceInput& input);

}  // namespace tutti
