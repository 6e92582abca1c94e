// SPDX-License-Identifier: Apache-2.0
// Ranks the ways to train a model on a cluster: which fit into memory, and how long a step takes.
//
// A step is walked unit by unit, with one queue of computation and one of communication. A unit's
// gather starts when the computation of the unit before it starts (prefetch of one), a unit's
// reduction when its backward ends; each waits for the collective before it. So a unit's collective
// hides behind the computation of its neighbour, and what does not fit there is exposed. The gather
// after the update (ZeRO-1 and 2) hides behind nothing.
// Pure as far as `Price` is; the same question always has the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "activations.hpp"
#include "base/collective.hpp"
#include "base/result.hpp"
#include "gpt_shape.hpp"
#include "model_state.hpp"

namespace tutti::zero_memory {

// Ranks that call a collective together.
enum class Group : std::uint8_t {
  kAll,
  kHost,     // those of one host
  kBetween,  // one of each host; all such groups at once
};
// Seconds of a collective. bytes: as nccl-tests count, the whole buffer where ranks hold shards.
using Price = std::function<Result<double>(Group, Collective, std::uint64_t bytes)>;

struct AdviseQuestion {
  Model model;
  Accounting accounting;
  std::uint64_t ranks = 1, ranks_per_host = 1;
  std::uint64_t batch = 1;                            // sequences in a step, of all ranks
  std::uint64_t sequence = 2048;                      // tokens of each
  std::uint64_t memory_bytes = 0, reserve_bytes = 0;  // of a rank; what others need of it
  double peak_flops = 0, mfu = 0;                     // of a rank
  double memory_GBps = 0;                             // of a rank; 0: the update takes no time
  bool attention = false;                             // count the attention's operations too
  std::uint64_t units = 32;                           // of a model without a shape
  UnitBuffers buffers{.units_in_use = 2};
};
// Bounds the search and the walk.
inline constexpr std::uint64_t kMostSequencesPerRank = 1 << 16;

struct AdvisedMemory {
  ExactStateBytes state;
  TransientBytes transient;
  double activations = 0;
  [[nodiscard]] double total() const {
    return static_cast<double>(state.total() + transient.total()) + activations;
  }
};
// In seconds, of a step.
struct AdvisedTime {
  double compute = 0;        // 6 P D over peak x MFU, and recomputation
  double communication = 0;  // all collectives, one after another
  double exposed = 0;        // of it, what no computation hides
  double update = 0;         // the optimizer's memory traffic
  [[nodiscard]] double total() const { return compute + exposed + update; }
};
struct Advice {
  Sharding sharding;  // with `microsteps`
  bool hybrid = false;
  Recomputation recomputation = Recomputation::kNone;
  std::uint64_t microbatch = 1;
  AdvisedMemory memory;
  AdvisedTime time;
  VolumeBytes volume;
  std::string impossible;  // the reason; empty: possible
  [[nodiscard]] std::string name() const;
};

// One advice for each of DDP, ZeRO-1, 2 and 3, and where there are several hosts of several ranks
// the sharded ones with shards inside hosts too: with the recomputation and the microbatch that are
// fastest among those that fit. Fastest first, of equals the one with less memory; then what is
// impossible, as it would need least. Errors: a batch that ranks do not divide, those of `price`.
[[nodiscard]] Result<std::vector<Advice>> advise(const AdviseQuestion& question,
                                                 const Price& price);

}  // namespace tutti::zero_memory
