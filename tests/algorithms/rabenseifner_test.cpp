// Rabenseifner's formulas, and what folding adds to them.
#include <gtest/gtest.h>

#include "algorithms/fold.hpp"
#include "counts.hpp"
#include "samples.hpp"

namespace tutti {
namespace {

TEST(Rabenseifner, CountsAreThoseOfTheFormula) {
  for (std::uint32_t rounds = 1; rounds <= 7; ++rounds) {
    const std::uint32_t p = 1U << rounds;
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("rabenseifner", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2 * rounds);
      EXPECT_EQ(counts.sent_chunks, 2 * (p - 1));
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
      const auto sent = counts::sent_by(program);
      for (std::uint32_t k = 0; k < rounds; ++k) {  // n/2, n/4, ... and back
        EXPECT_EQ(sent[k].span.count(), p >> (k + 1));
        EXPECT_EQ(sent[2 * rounds - 1 - k].span.count(), p >> (k + 1));
      }
    }
    EXPECT_EQ(counts::proof_of(schedule).depth, 2 * rounds);
  }
}

TEST(Rabenseifner, FoldingCostsWhatThePageSays) {
  for (std::int32_t p = 3; p <= 130; ++p) {
    const Fold fold{p};
    if (fold.excess() == 0) continue;
    SCOPED_TRACE(p);
    const auto rounds = static_cast<std::uint64_t>(fold.rounds());
    const auto q = static_cast<std::uint64_t>(fold.size());
    const Schedule schedule = samples::built("rabenseifner", p);
    ASSERT_EQ(schedule.shape.chunks, q);
    for (Rank rank = 0; rank < p; ++rank) {
      const counts::RankCounts counts = counts::of(schedule.ranks[static_cast<std::size_t>(rank)]);
      const std::uint64_t pairs = fold.is_paired(rank) ? 1 : 0;
      const bool out = fold.sits_out(rank);
      EXPECT_EQ(counts.messages, out ? 1 : 2 * rounds + pairs);
      EXPECT_EQ(counts.sent_chunks, out ? q : 2 * (q - 1) + pairs * q);
      EXPECT_EQ(counts.reduced_chunks, out ? 0 : q - 1 + pairs * q);
    }
    EXPECT_EQ(counts::proof_of(schedule).depth, 2 * rounds + 2);
  }
}

TEST(Rabenseifner, SumsInRankOrder) {
  for (std::int32_t p = 2; p <= 33; ++p)
    EXPECT_TRUE(counts::proof_of(samples::built("rabenseifner", p)).in_rank_order) << p;
}

// The table in rabenseifner.cpp: the range that each rank keeps in each round.
TEST(Rabenseifner, RanksKeepTheRangesOfThePage) {
  const Schedule schedule = samples::built("rabenseifner", 4);
  const Span kept[4][2] = {{operands::chunks(0, 2), operands::chunk(0)},
                           {operands::chunks(2, 2), operands::chunk(2)},
                           {operands::chunks(0, 2), operands::chunk(1)},
                           {operands::chunks(2, 2), operands::chunk(3)}};
  for (std::size_t r = 0; r < 4; ++r) {
    std::vector<Span> reduced;
    for (const Step& step : schedule.ranks[r].lanes[0].steps)
      if (step.sources.size() > 1) reduced.push_back(step.destinations.front().span);
    ASSERT_EQ(reduced.size(), 2U);
    EXPECT_EQ(reduced[0], kept[r][0]) << r;
    EXPECT_EQ(reduced[1], kept[r][1]) << r;
  }
}

}  // namespace
}  // namespace tutti
