// SPDX-License-Identifier: Apache-2.0
// Conversions by Number, and the sum of the blocks that ranks sent: in fp32, along the tree of
// canonical order, a tile at a time so that the stack of sums stays in the first cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/zero.hpp"

namespace tutti::zero {

// into[i] = from[i], from a Number to fp32 and back.
void widen(float* into, const void* from, Number number, std::size_t count);
void narrow(void* into, Number number, const float* from, std::size_t count);

struct Blocks {
  const void* first = nullptr;  // block b begins b * stride elements behind it
  int count = 1;
  std::uint64_t stride_elements = 0;
  Number number = Number::kFloat32;
};
// into[i] = the sum over blocks b of block_b[i], or, with `adds`, into[i] + that sum. `into` may be
// one of the blocks.
void sum_blocks(float* into, const Blocks& blocks, std::uint64_t elements, bool adds);
// The same sum, rounded to the blocks' number. `into` does not overlap the blocks.
void sum_blocks_narrow(void* into, const Blocks& blocks, std::uint64_t elements);

}  // namespace tutti::zero
