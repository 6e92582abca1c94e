// SPDX-License-Identifier: Apache-2.0
// Price of one rank's sends and receives of a group, by the costs that plans are priced with
// (price.hpp). They progress together, so the busiest of three things decides:
//
//   end(m, n) = m*step + n*(2*beta + message)       a core's part of m messages of n bytes, a copy
//               + m*overhead + n*overhead_beta      into a slot or out of it; with a wire, this too
//   core      = sum of end over the flows + 2*beta*bytes that the rank copies to itself
//   flow      = 2*end(1, L) + L*wire                the largest message, of L bytes, at both ends,
//               + max(end, wire, turns) of the rest    and the others behind it
//   turns     = (m*alpha + 2*end(m, n) + n*wire)/slots    as many are under way as there are slots
//   port      = the bytes that this rank sends to other hosts, or receives from them, * wire
//   price     = calls*kCallSteps*step + alpha + max(core, longest flow, port)
//
// where wire is a wire's beta if a flow crosses hosts, and alpha a wire's without the overhead of
// both ends, which is in it and which end() counts. A call alone has both ends' copies on its way;
// a rank that sends and receives works on its own while its peer does. Where ranks outnumber cores,
// the ranks of a core are taken to have as much to do as this one: its work and its calls count for
// each of them, and so does a switch each time that the slots are full. What the peers and the
// other ranks of the host have to do besides is not known to this rank.
//
// Pure; knows no connection and no clock.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "model/host_costs.hpp"

namespace tutti {

// What a call costs beside its messages, in steps: a place in the group, a queue, the end. Measured
// with sendrecv_perf of 8 bytes among 2 processes (0.6 us for two calls; docs/performance.md).
inline constexpr double kCallSteps = 6;

// The calls of a rank to one peer, or from it.
struct TransferFlow {
  bool sends = false;  // else it receives
  bool far = false;    // over the wire
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t largest_bytes = 0;  // of a message

  // A call, in messages of at most `slot_bytes` payload each; one of no bytes is a message too.
  void add(std::uint64_t call_bytes, std::uint64_t slot_bytes);
};

struct TransferInput {
  std::span<const TransferFlow> flows;  // one for each peer and direction
  std::uint64_t calls = 0;              // all of them, also those of the rank to itself
  std::uint64_t to_self_bytes = 0;
  std::uint32_t slots = 1;  // of a flow
  std::int32_t ranks = 1;
  std::int32_t cores = 1;  // of all ranks together
  LinkCost wire{};
};

[[nodiscard]] double price_transfers(const HostCosts& costs, const TransferInput& input);

}  // namespace tutti
