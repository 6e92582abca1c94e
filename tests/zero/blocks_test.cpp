// SPDX-License-Identifier: Apache-2.0
// The sum of blocks follows the tree, in every element, also where the result is one of them.
#include "zero/blocks.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "tests/seed.hpp"

namespace tutti::zero {
namespace {

// The tree by recursion: the left part is the greatest power of two below the number of leaves.
float tree_sum(std::span<const float> leaves) {
  if (leaves.size() == 1) return leaves[0];
  const std::size_t left = std::bit_floor(leaves.size() - 1);
  return tree_sum(leaves.first(left)) + tree_sum(leaves.subspan(left));
}

class Sums : public ::testing::TestWithParam<Number> {};

TEST_P(Sums, FollowTheTree) {
  const Number number = GetParam();
  std::mt19937 random(draw_seed());
  std::normal_distribution<float> normal;
  for (const int count : {1, 2, 3, 5, 8, 11, 16})
    for (const std::uint64_t elements : {1ULL, 511ULL, 512ULL, 1500ULL}) {
      const std::uint64_t stride = elements + 3;
      std::vector<float> values(static_cast<std::size_t>(count) * stride);
      for (float& value : values) value = normal(random);
      std::vector<float> blocks(values.size());  // of the number, in enough memory
      narrow(blocks.data(), number, values.data(), values.size());
      widen(values.data(), blocks.data(), number, values.size());
      std::vector<float> into(elements, 0.25F), added = into;
      const Blocks of{blocks.data(), count, stride, number};
      sum_blocks(into.data(), of, elements, false);
      sum_blocks(added.data(), of, elements, true);
      std::vector<float> narrowed(elements), want_narrowed(elements), want(elements);
      sum_blocks_narrow(narrowed.data(), of, elements);
      for (std::uint64_t i = 0; i < elements; ++i) {
        std::vector<float> leaves;
        for (int block = 0; block < count; ++block)
          leaves.push_back(values[static_cast<std::size_t>(block) * stride + i]);
        want[i] = tree_sum(leaves);
        ASSERT_EQ(into[i], want[i]) << count << " blocks, element " << i;
        ASSERT_EQ(added[i], 0.25F + want[i]);
      }
      narrow(want_narrowed.data(), number, want.data(), elements);
      EXPECT_EQ(std::memcmp(narrowed.data(), want_narrowed.data(), elements * bytes_of(number)), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(OfBlocks, Sums,
                         ::testing::Values(Number::kFloat32, Number::kBfloat16, Number::kFloat16));

TEST(ZeroBlocks, TheResultMayBeABlock) {
  constexpr std::uint64_t kElements = 1300;
  std::vector<float> blocks(3 * kElements);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<float>(i);
  sum_blocks(blocks.data() + kElements, {blocks.data(), 3, kElements, Number::kFloat32}, kElements,
             false);
  for (std::size_t i = 0; i < kElements; ++i)
    ASSERT_EQ(blocks[kElements + i], static_cast<float>(3 * i + 3 * kElements));
}

}  // namespace
}  // namespace tutti::zero
