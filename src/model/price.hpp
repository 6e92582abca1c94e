// Price of a schedule by alpha-beta on the counts read off it: which algorithm `auto` takes until
// the topology model replaces this file's constants.
//
//   path  = depth*alpha + path_steps*step + path_operands*piece*beta     one slice, first to last
//   work  = steps*step + operands*chunk*beta                             a rank's own, all slices
//   price = path + (1 - 1/slices)*work, when slices overlap (replicas > 1); slices*path when not;
//           never under the work of all ranks shared by the cores there are
//
// An operand in a peer's memory adds remote + bytes*remote_beta to both.
// Pure; knows no transport object and no clock.
#pragma once

#include <cstdint>

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
};

// The schedule must be complete and free of deadlock (verified). replicas == 1.
[[nodiscard]] ScheduleCounts count_schedule(const Schedule& schedule);

struct HostCosts {
  double alpha_ns = 0;          // from commit to the peer's step
  double step_ns = 0;           // a step's own overhead
  double beta_ns_per_byte = 0;  // per operand byte read or written
  double switch_ns = 0;         // a core given to another rank, where ranks outnumber cores
  // What an operand in a peer's memory costs beyond that.
  double remote_ns = 0;
  double remote_ns_per_byte = 0;
  // And per byte for each further rank that a core is shared with: what a peer wrote has left the
  // cache by the time it is read.
  double remote_crowd_ns_per_byte = 0;
};

struct PriceInput {
  std::uint64_t bytes = 0;  // of the whole collective, per rank
  std::uint32_t slices = 1;
  std::uint32_t replicas = 1;
  std::int32_t cores = 1;
};

[[nodiscard]] double price_ns(const ScheduleCounts& counts, const HostCosts& costs,
                              const PriceInput& input);

}  // namespace tutti
