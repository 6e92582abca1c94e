// SPDX-License-Identifier: Apache-2.0
// The butterfly's formulas, and what folding adds to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "algorithms/fold.hpp"
#include "counts.hpp"
#include "samples.hpp"

namespace tutti {
namespace {

TEST(Butterfly, CountsAreThoseOfTheFormula) {
  for (std::uint32_t rounds = 1; rounds <= 7; ++rounds) {
    const std::uint32_t p = 1U << rounds;
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("butterfly", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, 1U);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, rounds);
      EXPECT_EQ(counts.sent_chunks, rounds);
      EXPECT_EQ(counts.reduced_chunks, rounds);
      EXPECT_EQ(counts.finished_chunks, 1U);
    }
    EXPECT_EQ(counts::proof_of(schedule).depth, rounds);
  }
}

TEST(Butterfly, FoldingCostsWhatThePageSays) {
  for (std::int32_t p = 3; p <= 130; ++p) {
    const Fold fold{p};
    const auto rounds = static_cast<std::uint64_t>(fold.rounds());
    if (fold.excess() == 0) continue;
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("butterfly", p);
    for (Rank rank = 0; rank < p; ++rank) {
      const counts::RankCounts counts = counts::of(schedule.ranks[static_cast<std::size_t>(rank)]);
      const std::uint64_t more = fold.is_paired(rank) ? 1 : 0;
      const bool out = fold.sits_out(rank);
      EXPECT_EQ(counts.messages, out ? 1 : rounds + more);
      EXPECT_EQ(counts.reduced_chunks, out ? 0 : rounds + more);
      EXPECT_EQ(counts.finished_chunks, out ? 0U : 1U);
    }
    const std::int32_t more = 2 * fold.excess() > fold.size() ? 2 : 1;
    EXPECT_EQ(counts::proof_of(schedule).depth, rounds + static_cast<std::uint64_t>(more));
  }
}

TEST(Butterfly, SumsInRankOrderAndAlikeEverywhere) {
  for (std::int32_t p = 2; p <= 33; ++p) {
    const Proof proof = counts::proof_of(samples::built("butterfly", p));
    EXPECT_TRUE(proof.in_rank_order) << p;
    EXPECT_TRUE(proof.canonical) << p;
  }
}

// The binomial tree: n to the rank above, floor(log2 p) messages in a row, ceil(log2 p) at the
// root.
TEST(Butterfly, PartsAreTheBinomialTree) {
  for (std::int32_t p = 2; p <= 130; ++p)
    for (const Collective collective : {Collective::kReduce, Collective::kBroadcast}) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << name_of(collective));
      const Schedule schedule =
          *build_schedule(**find_algorithm("butterfly"), {.collective = collective, .ranks = p});
      const bool reduce = collective == Collective::kReduce;
      const std::uint32_t levels = counts::ceil_log(static_cast<std::uint64_t>(p), 2);
      std::uint64_t most_sent = 0, most_reduced = 0;
      for (const RankProgram& program : schedule.ranks) {
        const counts::RankCounts counts = counts::of(program);
        most_sent = std::max(most_sent, counts.sent_chunks);
        most_reduced = std::max(most_reduced, counts.reduced_chunks);
        ASSERT_EQ(program.lanes.size(), 1U);
        EXPECT_EQ(program.lanes[0].steps.size(), 1U);
      }
      EXPECT_EQ(most_sent, reduce ? 1U : levels);
      EXPECT_EQ(most_reduced, reduce ? levels : 0U);
      const Proof proof = counts::proof_of(schedule);
      EXPECT_EQ(proof.depth + 1,
                static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(p))));
      if (reduce) {
        EXPECT_TRUE(proof.in_rank_order);
      }
    }
}

// The table in butterfly.cpp: to whom each of 6 ranks passes on, the largest subtree first.
TEST(Butterfly, TheBinomialTreeIsThatOfThePage) {
  const Schedule schedule = *build_schedule(**find_algorithm("butterfly"),
                                            {.collective = Collective::kBroadcast, .ranks = 6});
  const std::vector<Rank> below[6] = {{4, 2, 1}, {}, {3}, {}, {5}, {}};
  for (std::size_t r = 0; r < 6; ++r) {
    std::vector<Rank> sent;
    for (const auto& message : counts::sent_by(schedule.ranks[r])) sent.push_back(message.to);
    EXPECT_EQ(sent, below[r]) << r;
  }
}

// The table in butterfly.cpp.
TEST(Butterfly, PartnersAreThoseOfThePage) {
  const Schedule schedule = samples::built("butterfly", 4);
  const Rank partners[4][2] = {{1, 2}, {0, 3}, {3, 0}, {2, 1}};
  for (std::size_t r = 0; r < 4; ++r) {
    const auto sent = counts::sent_by(schedule.ranks[r]);
    ASSERT_EQ(sent.size(), 2U);
    for (std::size_t round = 0; round < 2; ++round)
      EXPECT_EQ(sent[round], (counts::SentMessage{partners[r][round], operands::chunk(0)}));
  }
}

}  // namespace
}  // namespace tutti
