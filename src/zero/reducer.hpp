// SPDX-License-Identifier: Apache-2.0
// How the ranks' sums of a unit's gradients become one sum, of which each rank keeps its shard: the
// seam for other ways (compressed, in two hops).
//
//   canonical   all-to-all of the shards, then the ordered sum of those received. Sends as many
//               bytes as a ring's reduce-scatter, and rounds 16-bit numbers once a rank.
//   fast        the library's reduce-scatter, or all-reduce, in the order that it chooses.
//
// With groups (hybrid sharding) the sum within the group comes first, then that of the groups, each
// group summing a part of the shard.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "zero/block.hpp"
#include "zero/links.hpp"

namespace tutti::zero {

// The reduction of a unit, and where its result goes. All memory stays until it has ended.
struct Reduction {
  std::uint64_t padded_elements = 0;
  float* sum = nullptr;  // this rank's, of the whole unit; overwritten
  void* wire = nullptr;  // room for the unit in the reduce type, if that has 16 bits
  // The stack of shard sums, lowest first. The result is written to the last of them, or added
  // to it; then the last is added to the one before it, and so on, `folds` times.
  std::vector<float*> targets;
  bool adds = false;
  int folds = 0;
  // Is the result wanted whole in `sum` on each rank? Then targets has this rank's part of `sum`.
  bool whole = false;
};

class Reducer {
 public:
  virtual ~Reducer() = default;
  // Puts the reduction on links.reduce_stream. Collective. Called where there is more than one
  // rank.
  virtual void reduce(const Reduction& reduction) = 0;
  // Payload that this rank sends for it.
  [[nodiscard]] virtual std::uint64_t bytes_sent(const Reduction& reduction) const = 0;
  // What it allocated.
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
};

// `links` and `plan` outlive it.
[[nodiscard]] std::unique_ptr<Reducer> make_canonical_reducer(Links& links, const Plan& plan);
[[nodiscard]] std::unique_ptr<Reducer> make_fast_reducer(Links& links, const Plan& plan);

// What follows where `values` holds this rank's part of the sum over all ranks.
void deliver(const Reduction& reduction, const void* values, Number number, std::uint64_t elements);
// The additions of sums that are complete (Reduction::folds).
void fold(const Reduction& reduction, std::uint64_t elements);

}  // namespace tutti::zero
