// SPDX-License-Identifier: Apache-2.0
// The ring's formulas, rank by rank.
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/builder.hpp"
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

Schedule exchange(Collective collective, std::int32_t ranks) {
  return build_schedule(**find_algorithm("ring:exchange=neighbours"), {collective, ranks}).value();
}

TEST(NeighbourExchange, CountsAreThoseOfTheFormula) {
  using enum Collective;
  for (std::int32_t ranks = 2; ranks <= 66; ranks += 2)
    for (const Collective collective : {kAllGather, kReduceScatter, kAllReduce}) {
      SCOPED_TRACE(testing::Message() << name_of(collective) << ", " << ranks << " ranks");
      const Schedule schedule = exchange(collective, ranks);
      const auto p = static_cast<std::uint64_t>(ranks);
      const std::uint64_t halves = collective == kAllReduce ? 2 : 1;
      const bool reduces = info_of(collective).reduces();
      ASSERT_EQ(schedule.shape.chunks, p);
      for (const RankProgram& program : schedule.ranks) {
        const counts::RankCounts counts = counts::of(program);
        EXPECT_EQ(counts.messages, halves * p / 2);
        EXPECT_EQ(counts.sent_chunks, halves * (p - 1));
        EXPECT_EQ(counts.reduced_chunks, reduces ? p - 1 : 0);
        EXPECT_EQ(counts.finished_chunks, reduces ? 1U : 0U);
      }
      const Proof proof = counts::proof_of(schedule);
      EXPECT_EQ(proof.depth, halves * p / 2);
      EXPECT_EQ(proof.minimal_slots, 2U);
    }
}

TEST(NeighbourExchange, SpeaksOnlyToBothNeighbours) {
  for (const auto& [connection, messages] :
       counts::Connections(exchange(Collective::kAllReduce, 10)).sends) {
    const auto [from, to, tag] = connection;
    EXPECT_TRUE(to == (from + 1) % 10 || from == (to + 1) % 10) << from << " to " << to;
  }
}

// The table in ring.cpp.
TEST(NeighbourExchange, PairsArriveInTheOrderOfThePage) {
  const Schedule schedule = exchange(Collective::kAllGather, 6);
  const std::uint32_t received[6][2] = {{2, 1}, {1, 2}, {0, 2}, {2, 0}, {1, 0}, {0, 1}};
  for (std::size_t r = 0; r < 6; ++r) {
    std::vector<Span> found;
    for (const Step& step : schedule.ranks[r].lanes[0].steps)
      if (step.sources[0].kind == OperandKind::kRecv) found.push_back(step.sources[0].span);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0], operands::chunk(static_cast<std::uint32_t>(r ^ 1)));
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_EQ(found[k + 1], operands::chunks(2 * received[r][k], 2)) << "rank " << r;
  }
}

TEST(NeighbourExchange, IsOfEvenNumbersOfRanks) {
  const Algorithm& algorithm = **find_algorithm("ring:exchange=neighbours");
  for (std::int32_t ranks = 1; ranks <= 20; ++ranks)
    EXPECT_EQ(algorithm.supports({Collective::kAllGather, ranks}), ranks == 1 || ranks % 2 == 0);
  EXPECT_FALSE(algorithm.supports({Collective::kBroadcast, 4}));
}

// On a level of a hierarchy as well, among 6 and among 4.
TEST(NeighbourExchange, MayBeAPart) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter})
    for (const std::string both :
         {"inner=ring:inner.exchange=neighbours", "outer=ring:outer.exchange=neighbours",
          "inner=ring:inner.exchange=neighbours:outer=ring:"
          "outer.exchange=neighbours"}) {
      const auto schedule = build_schedule(**find_algorithm("hierarchical:" + both + ":groups=6x4"),
                                           {collective, 24});
      ASSERT_TRUE(schedule) << schedule.error().message;
      EXPECT_EQ(counts::proof_of(*schedule).minimal_slots, 2U) << both;
    }
}

}  // namespace
}  // namespace tutti
