// SPDX-License-Identifier: Apache-2.0
// Counts of a schedule: what the price that chooses weighs, read off the programs of few ranks.
//
// Programs are built for one rank of each orbit of the algorithm's symmetry, never for all ranks
// where there are moves: of a ring for one rank, of a tree for each, one after the other. Only what
// crosses between hosts depends on where in its orbit a rank stands. So paths are walked once, on
// the representatives' event graph, and along them the far messages are carried for each class of
// ranks that a move takes to each other and hosts to hosts: eight where each host has eight ranks.
//
// Where hosts are unlike, that would be a class for each rank; where this is too much
// (kMostCarried), ranks are taken to stand along a line of hosts of the mean size. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <span>

#include "algorithms/algorithm.hpp"

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
  std::uint32_t max_lanes = 0;       // of one rank
  std::uint64_t max_operands = 0;    // of one rank
  std::uint64_t total_steps = 0;     // of all ranks
  std::uint64_t total_operands = 0;  // of all ranks
  std::uint64_t total_messages = 0;  // of all ranks
  // Those among the operands that lie in a peer's memory.
  std::uint64_t path_remotes = 0;
  std::uint64_t max_remotes = 0;
  std::uint64_t total_remotes = 0;
  std::uint64_t total_stores = 0;  // of these, in destinations
  // And those that are messages, sent or received.
  std::uint64_t path_transfers = 0;
  std::uint64_t max_transfers = 0;
  std::uint64_t total_transfers = 0;
  std::uint32_t connection_messages = 0;  // of one connection: the most
  bool mutual = true;                     // each rank hears from every rank that it sends to
  // The depth of the longest lane, from the moment when its first step that a lane waits for
  // may start to the end of its last step: what comes before does not wait for the slice before.
  std::uint64_t lane_depth = 0;
  std::uint64_t lane_steps = 0;
  std::uint64_t lane_operands = 0;
  std::uint64_t lane_remotes = 0;
  std::uint64_t lane_transfers = 0;
  // The part of these messages that goes to other hosts, and the chunks that they carry.
  std::uint32_t far_depth = 0;
  std::uint64_t path_far_chunks = 0;
  std::uint64_t lane_far_depth = 0;
  std::uint64_t lane_far_chunks = 0;
  std::uint64_t host_far_chunks = 0;  // that one host sends, or receives: the most
  // The largest values of any connection between hosts.
  std::uint64_t far_connection_messages = 0;
  std::uint64_t far_connection_chunks = 0;
  // The operands that are such messages, and the chunks that they carry.
  std::uint64_t max_far_transfers = 0;
  std::uint64_t max_far_operands = 0;
  std::uint64_t total_far_transfers = 0;
  std::uint64_t total_far_operands = 0;
  bool operator==(const ScheduleCounts&) const = default;
};

// Steps and messages of all representatives together, 150 bytes each at most.
inline constexpr std::uint64_t kMostCountedEvents = std::uint64_t{1} << 22;
// Classes of ranks times the representatives' messages.
inline constexpr std::uint64_t kMostCarried = std::uint64_t{1} << 25;

// Counts one replica. `hosts` names each rank's host by any number; empty: all ranks share one
// host. Errors: check_problem's; kNotSupported where the representatives have more than
// kMostCountedEvents; kInternalError where sent and received messages do not match.
[[nodiscard]] Result<ScheduleCounts> count_schedule(const Algorithm& algorithm,
                                                    const Problem& problem,
                                                    std::span<const std::int32_t> hosts = {});

}  // namespace tutti
