// SPDX-License-Identifier: Apache-2.0
#include "schedule/cut.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/seed.hpp"

namespace tutti {
namespace {

// Chunks tile the data, slices tile their chunk, nothing is larger than max_slice_count says.
void check_tiling(const UniformCut& cut) {
  std::uint64_t at = 0;
  for (std::uint32_t c = 0; c < cut.chunks; ++c) {
    const ElementRange chunk = cut.chunk(c);
    ASSERT_EQ(chunk.begin, at);
    ASSERT_LE(chunk.begin, chunk.end);
    for (std::uint32_t s = 0; s < cut.slices; ++s) {
      const ElementRange slice = cut.slice(c, s);
      ASSERT_EQ(slice.begin, at);
      ASSERT_LE(slice.begin, slice.end);
      ASSERT_LE(slice.count(), cut.max_slice_count());
      at = slice.end;
    }
    ASSERT_EQ(chunk.end, at);
  }
  ASSERT_EQ(at, cut.count);
}

TEST(Cut, EverySmallCaseTiles) {
  for (std::uint64_t count = 0; count <= 40; ++count)
    for (std::uint32_t chunks = 1; chunks <= 9; ++chunks)
      for (std::uint32_t slices = 1; slices <= 5; ++slices)
        for (const std::uint64_t grain : {1U, 2U, 4U, 16U}) {
          SCOPED_TRACE(testing::Message() << count << " elements, " << chunks << " chunks, "
                                          << slices << " slices, grain " << grain);
          check_tiling({count, chunks, slices, grain});
        }
}

TEST(Cut, RandomLargeCasesTile) {
  constexpr std::uint64_t kSeed = 20240607;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 2000; ++i) {
    const UniformCut cut{random() >> (random() % 60), 1 + static_cast<std::uint32_t>(random() % 70),
                         1 + static_cast<std::uint32_t>(random() % 9),
                         std::uint64_t{1} << (random() % 7)};
    SCOPED_TRACE(testing::Message() << cut.count << " elements, " << cut.chunks << " chunks, "
                                    << cut.slices << " slices, grain " << cut.grain);
    check_tiling(cut);
  }
}

TEST(Cut, WithoutGrainsIsTheDefinition) {
  const UniformCut cut{.count = 1000, .chunks = 7};
  for (std::uint32_t c = 0; c < 7; ++c) {
    EXPECT_EQ(cut.chunk(c).begin, c * 1000 / 7);
    EXPECT_EQ(cut.chunk(c).end, (c + 1) * 1000 / 7);
  }
}

TEST(Cut, BoundariesLieOnGrainsWhereThereAreEnough) {
  const UniformCut cut{.count = 1000, .chunks = 7, .slices = 2, .grain = 16};
  for (std::uint32_t c = 0; c < 7; ++c)
    for (std::uint32_t s = 0; s < 2; ++s) EXPECT_EQ(cut.slice(c, s).begin % 16, 0U);
  // 13 grains for 14 slices: too few, so the plain definition.
  EXPECT_EQ((UniformCut{.count = 208, .chunks = 7, .slices = 2, .grain = 16}).chunk(1).begin,
            208U / 7);
}

TEST(Cut, PartBoundaryDoesNotOverflow) {
  const std::uint64_t most = ~std::uint64_t{0};
  EXPECT_EQ(part_boundary(most, 3, 3), most);
  EXPECT_EQ(part_boundary(most, 1, 3), most / 3);
  EXPECT_EQ(part_boundary(most, 1U << 20, 1U << 20), most);
}

// Among 4 ranks, 100 floats each: a rank's own block begins where the interface says, also where
// that is no cache line, and lines count from there.
TEST(UniformCut, BlocksAreExactToTheElement) {
  const UniformCut one{.count = 100, .chunks = 4, .grain = 16, .blocks = 4};
  for (std::uint32_t block = 0; block < 4; ++block) {
    EXPECT_EQ(one.chunk(block).begin, 100u * block);
    EXPECT_EQ(one.chunk(block).end, 100u * (block + 1));
  }
  const UniformCut two{.count = 100, .chunks = 8, .grain = 16, .blocks = 4};
  EXPECT_EQ(two.chunk(2).begin, 100u);
  EXPECT_EQ(two.chunk(3).begin, 148u) << "a line inside of the block";
  EXPECT_EQ(two.chunk(3).end, 200u);
  EXPECT_EQ(two.max_slice_count(), 64u);
}

TEST(UniformCut, BlocksAreTiledWhateverTheCount) {
  const unsigned seed = draw_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const auto blocks = 1 + static_cast<std::uint32_t>(random() % 9);
    const UniformCut cut{.count = random() % 5000,
                         .chunks = blocks * (1 + static_cast<std::uint32_t>(random() % 4)),
                         .slices = 1 + static_cast<std::uint32_t>(random() % 5),
                         .grain = 1 + random() % 17,
                         .blocks = blocks};
    std::uint64_t at = 0;
    for (std::uint32_t c = 0; c < cut.chunks; ++c) {
      if (c % (cut.chunks / blocks) == 0) {
        ASSERT_EQ(at, cut.count * (c / (cut.chunks / blocks)));
      }
      for (std::uint32_t s = 0; s < cut.slices; ++s) {
        const ElementRange range = cut.slice(c, s);
        ASSERT_EQ(range.begin, at);
        ASSERT_LE(range.count(), cut.max_slice_count());
        at = range.end;
      }
      ASSERT_EQ(at, cut.chunk(c).end);
    }
    ASSERT_EQ(at, cut.count * blocks);
  }
}

}  // namespace
}  // namespace tutti
