// SPDX-License-Identifier: Apache-2.0
#include "zero/blocks.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "zero/kernels.hpp"
#include "zero/tree.hpp"

namespace tutti::zero {
namespace {

constexpr std::size_t kTileElements = 512;
constexpr int kMostPositions = 32;  // of 2^31 blocks

using Tile = std::array<float, kTileElements>;

const void* at(const void* base, Number number, std::uint64_t index) {
  return static_cast<const std::byte*>(base) + index * bytes_of(number);
}

// The sum of elements [begin, begin + count) of all blocks, in stack[0].
void sum_tile(Tile* stack, const Blocks& blocks, std::uint64_t begin, std::size_t count) {
  const Kernels& use = kernels();
  const auto leaves = static_cast<std::uint64_t>(blocks.count);
  for (std::uint64_t leaf = 0; leaf < leaves; ++leaf) {
    int top = tree::position(Order::kCanonical, leaf);
    widen(stack[top].data(), at(blocks.first, blocks.number, leaf * blocks.stride_elements + begin),
          blocks.number, count);
    for (int left = tree::additions(Order::kCanonical, leaf, leaves); left > 0; --left, --top)
      use.add(stack[top - 1].data(), stack[top].data(), count);
  }
}

template <typename Take>
void for_each_tile(const Blocks& blocks, std::uint64_t elements, Take&& take) {
  std::array<Tile, kMostPositions> stack;
  for (std::uint64_t begin = 0; begin < elements; begin += kTileElements) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(kTileElements, elements - begin));
    sum_tile(stack.data(), blocks, begin, count);
    take(begin, stack[0].data(), count);
  }
}

}  // namespace

void widen(float* into, const void* from, Number number, std::size_t count) {
  const Kernels& use = kernels();
  switch (number) {
    case Number::kFloat32:
      if (into != from) std::memcpy(into, from, count * sizeof(float));
      return;
    case Number::kBfloat16:
      return use.widen_bfloat16(into, static_cast<const std::uint16_t*>(from), count);
    case Number::kFloat16:
      return use.widen_float16(into, static_cast<const std::uint16_t*>(from), count);
  }
}

void narrow(void* into, Number number, const float* from, std::size_t count) {
  const Kernels& use = kernels();
  switch (number) {
    case Number::kFloat32:
      if (into != from) std::memcpy(into, from, count * sizeof(float));
      return;
    case Number::kBfloat16:
      return use.narrow_bfloat16(static_cast<std::uint16_t*>(into), from, count);
    case Number::kFloat16:
      return use.narrow_float16(static_cast<std::uint16_t*>(into), from, count);
  }
}

void sum_blocks(float* into, const Blocks& blocks, std::uint64_t elements, bool adds) {
  for_each_tile(blocks, elements, [&](std::uint64_t begin, const float* sum, std::size_t count) {
    if (adds) return kernels().add(into + begin, sum, count);
    std::memcpy(into + begin, sum, count * sizeof(float));
  });
}

void sum_blocks_narrow(void* into, const Blocks& blocks, std::uint64_t elements) {
  for_each_tile(blocks, elements, [&](std::uint64_t begin, const float* sum, std::size_t count) {
    narrow(static_cast<std::byte*>(into) + begin * bytes_of(blocks.number), blocks.number, sum,
           count);
  });
}

}  // namespace tutti::zero
