// SPDX-License-Identifier: Apache-2.0
// The ring's formulas, rank by rank.
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/space_time.hpp"

namespace tutti {
namespace {

TEST(Ring, CountsAreThoseOfTheFormula) {
  for (std::uint64_t p = 2; p <= 65; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("ring", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2 * (p - 1));
      EXPECT_EQ(counts.sent_chunks, 2 * (p - 1));
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
      ASSERT_EQ(program.lanes.size(), 1U);
      EXPECT_EQ(program.lanes[0].steps.size(),
                2 * p - 1);  // one step a message, fused, and a first
    }
    EXPECT_EQ(space_time(schedule).depth, 2 * (p - 1));
  }
}

TEST(Ring, SpeaksOnlyToTheNextRank) {
  const Schedule schedule = samples::built("ring", 7);
  for (const auto& [connection, messages] : counts::Connections(schedule).sends) {
    const auto [from, to, tag] = connection;
    EXPECT_EQ(to, (from + 1) % 7);
    EXPECT_EQ(tag, 0);
    EXPECT_EQ(messages, 12U);
  }
}

// The table in ring.cpp.
TEST(Ring, ChunksArriveInTheOrderOfTheBook) {
  const Schedule schedule = samples::built("ring", 4);
  const std::uint32_t received[4][6] = {
      {3, 2, 1, 0, 3, 2}, {0, 3, 2, 1, 0, 3}, {1, 0, 3, 2, 1, 0}, {2, 1, 0, 3, 2, 1}};
  for (std::size_t r = 0; r < 4; ++r) {
    const std::vector<Step>& steps = schedule.ranks[r].lanes[0].steps;
    ASSERT_EQ(steps.size(), 7U);
    for (std::size_t k = 1; k < 7; ++k) {
      ASSERT_EQ(steps[k].sources[0].kind, OperandKind::kRecv);
      EXPECT_EQ(steps[k].sources[0].span.first, received[r][k - 1]) << r << " " << k;
      EXPECT_EQ(steps[k].finish, k == 3);
    }
  }
}

}  // namespace
}  // namespace tutti
