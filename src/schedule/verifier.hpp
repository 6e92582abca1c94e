// SPDX-License-Identifier: Apache-2.0
// The verifier: proves a schedule for every interleaving, slice count and sequence of operations.
//
// Checked: (1) data: every output chunk ends on every rank with every contribution exactly once,
// finished exactly once, by the same ordered reduction tree on all ranks; (2) happens-before: no
// two conflicting accesses to one location (input, output, scratch version; unless the shape keeps
// them apart, also with output aliasing input: in place) are unordered, under slice composition and
// operation composition; (3) no deadlock with `slots` message slots per connection; (4) bounds, tag
// ownership, balance of every connection, agreement of span sizes, and the counts that the shape
// declares. Credits are *not* used as order in (2): a plan may be run with more slots than
// verified. Why one execution suffices: steps are deterministic and, once enabled, stay enabled
// (bounded Kahn network), so all maximal executions are equivalent, and a slice that completes from
// empty connections can always be appended to another.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

struct VerifyOptions {
  std::uint32_t slots = 2;  // the deadlock check's slots per connection
};

// Holds the facts that the proof publishes, for the choice and for displays.
struct Proof {
  std::uint32_t minimal_slots = 2;  // never under 2
  std::uint32_t depth = 0;          // messages on the longest path of one slice
  std::uint64_t messages = 0;       // of one slice, all ranks
  // Each rank hears from every rank that it sends to. Then it needs no credits where two
  // operations' messages of a connection fit into its slots: what came in the last operation was
  // sent by ranks that had ended the one before.
  bool mutual = true;
  std::uint32_t connection_messages = 0;  // of one slice and connection: the most
  std::uint64_t max_sent_chunks = 0;      // most chunks one rank sends
  std::uint64_t max_reduced_chunks = 0;   // most (sources-1)*chunks one rank reduces
  std::uint32_t max_roundings = 0;        // most reduction steps one contribution passes through
  bool in_rank_order = false;             // every value is reduced left to right by rank
  bool canonical = false;                 // every chunk has the same tree shape
  std::uint64_t events = 0;               // steps executed by the proof: its own cost
};

// The proof, or an error whose message says which rule fell, where (rank, lane, step, slice, chunk)
// and what was expected. kInvalidUsage for a schedule that is wrong.
[[nodiscard]] Result<Proof> verify(const Schedule& schedule, const VerifyOptions& options = {});

}  // namespace tutti
