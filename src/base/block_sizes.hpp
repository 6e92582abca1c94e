// SPDX-License-Identifier: Apache-2.0
// The sizes of blocks that differ by rank, and where they lie in a buffer that holds all of them.
//
// Sizes are equal on all ranks, places are each rank's own. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/types.hpp"

namespace tutti {

struct BlockSizes {
  std::vector<std::uint64_t> counts;  // elements of each rank's block
  std::vector<std::uint64_t> begins;  // its first element, from the buffer's begin

  // Without places: one behind the other.
  explicit BlockSizes(std::vector<std::uint64_t> sizes)
      : counts(std::move(sizes)), begins(counts.size()) {
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::uint64_t{0});
  }
  BlockSizes(std::vector<std::uint64_t> sizes, std::vector<std::uint64_t> places)
      : counts(std::move(sizes)), begins(std::move(places)) {}

  [[nodiscard]] std::uint64_t of(Rank rank) const { return counts[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::uint64_t begin(Rank rank) const {
    return begins[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::uint64_t largest() const {
    return counts.empty() ? 0 : *std::ranges::max_element(counts);
  }
  [[nodiscard]] std::uint64_t total() const {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }
  // The elements of a buffer that holds all blocks, with the gaps between them.
  [[nodiscard]] std::uint64_t span() const {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0) end = std::max(end, begins[i] + counts[i]);
    return end;
  }
  // What ranks compare; not of the places. Never 0.
  [[nodiscard]] std::uint32_t hash() const {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over words, folded at the end
    for (const std::uint64_t count : counts) hash = (hash ^ count) * 0x100000001b3;
    hash ^= hash >> 32;
    const auto folded = static_cast<std::uint32_t>(hash & 0x7fffffff);
    return folded == 0 ? 1 : folded;
  }
};

}  // namespace tutti
