// SPDX-License-Identifier: Apache-2.0
// The cut: chunk and slice index -> elements. 64-bit, any count, also fewer elements than chunks.
// On the host and in device code.
#pragma once

#include <cstdint>

#include "base/device.hpp"

namespace tutti {

struct ElementRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] TUTTI_HD std::uint64_t count() const { return end - begin; }
};

// floor(i * n / parts) without overflow, 0 <= i <= parts.
[[nodiscard]] TUTTI_HD inline std::uint64_t part_boundary(std::uint64_t n, std::uint64_t i,
                                                          std::uint64_t parts) {
  return (n / parts) * i + (n % parts) * i / parts;
}

[[nodiscard]] TUTTI_HD constexpr std::uint64_t least(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

// Uniform cut of `blocks` blocks of `count` elements, one behind the other, into `chunks` chunks,
// chunks/blocks of each, then of each chunk into `slices`. Block boundaries are exact, as
// interfaces define them; inside a block, boundaries lie on multiples of `grain` elements from its
// start (a cache line, so that no two ranks write one line) whenever it has at least a grain for
// each slice of its chunks; otherwise they are the plain floor(i*n/c) of the definition.
struct UniformCut {
  std::uint64_t count = 0;
  std::uint32_t chunks = 1;
  std::uint32_t slices = 1;
  std::uint64_t grain = 1;
  std::uint32_t blocks = 1;

  [[nodiscard]] TUTTI_HD std::uint32_t chunks_each() const {
    return blocks == 1 ? chunks : chunks / blocks;
  }
  [[nodiscard]] TUTTI_HD std::uint64_t effective_grain() const {
    return count / grain >= std::uint64_t{chunks_each()} * slices ? grain : 1;
  }
  // Both answer without a division where there is nothing to cut: the way of a small message.
  [[nodiscard]] TUTTI_HD ElementRange chunk(std::uint32_t c) const {
    if (chunks == 1) return {0, count};
    const std::uint32_t each = chunks_each(), block = blocks == 1 ? 0 : c / each;
    const std::uint64_t begin = count * block;
    if (each == 1) return {begin, begin + count};
    const std::uint32_t part = c - block * each;
    const std::uint64_t g = effective_grain(), grains = (count + g - 1) / g;
    return {begin + least(count, g * part_boundary(grains, part, each)),
            begin + least(count, g * part_boundary(grains, part + 1, each))};
  }
  [[nodiscard]] TUTTI_HD ElementRange slice(std::uint32_t c, std::uint32_t s) const {
    const ElementRange whole = chunk(c);
    if (slices == 1) return whole;
    const std::uint64_t g = effective_grain(), grains = (whole.count() + g - 1) / g;
    return {least(whole.end, whole.begin + g * part_boundary(grains, s, slices)),
            least(whole.end, whole.begin + g * part_boundary(grains, s + 1, slices))};
  }
  // The most elements any slice of any chunk holds.
  [[nodiscard]] TUTTI_HD std::uint64_t max_slice_count() const {
    const std::uint64_t g = effective_grain(), grains = (count + g - 1) / g;
    const std::uint64_t chunk_grains = (grains + chunks_each() - 1) / chunks_each();
    return least(count, g * ((chunk_grains + slices - 1) / slices));
  }
};

}  // namespace tutti
