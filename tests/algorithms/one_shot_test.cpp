// SPDX-License-Identifier: Apache-2.0
// One-shot's formulas and its order of sends and sources.
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/space_time.hpp"

namespace tutti {
namespace {

TEST(OneShot, CountsAreThoseOfTheFormula) {
  for (std::uint64_t p = 2; p <= 65; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("one_shot", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, 1U);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, p - 1);
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
      ASSERT_EQ(program.lanes.size(), 1U);
      ASSERT_EQ(program.lanes[0].steps.size(), 2U);
    }
    EXPECT_EQ(space_time(schedule).depth, 1U);
  }
}

TEST(OneShot, SendsToTheNextRankFirstAndReducesInTheOrderOfRanks) {
  constexpr std::size_t kRanks = 5;
  const Schedule schedule = samples::built("one_shot", kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    const std::vector<Step>& steps = schedule.ranks[r].lanes[0].steps;
    ASSERT_EQ(steps[0].destinations.size(), kRanks - 1);
    for (std::size_t k = 0; k < kRanks - 1; ++k)
      EXPECT_EQ(steps[0].destinations[k].peer, static_cast<Rank>((r + k + 1) % kRanks));
    ASSERT_EQ(steps[1].sources.size(), kRanks);
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      const Operand& source = steps[1].sources[peer];
      if (peer == r)
        EXPECT_EQ(source, operands::input({}));
      else
        EXPECT_EQ(source, operands::recv(static_cast<Rank>(peer), 0, {}));
    }
  }
}

}  // namespace
}  // namespace tutti
