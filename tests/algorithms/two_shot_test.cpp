// SPDX-License-Identifier: Apache-2.0
// Two-shot's formulas and its order of sends and sources.
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"

namespace tutti {
namespace {

TEST(TwoShot, CountsAreThoseOfTheFormula) {
  for (std::uint32_t p = 2; p <= 65; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("two_shot", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2 * (p - 1));
      EXPECT_EQ(counts.sent_chunks, 2 * (p - 1));
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
    }
    const Proof proof = counts::proof_of(schedule);
    EXPECT_EQ(proof.depth, 2U);
    EXPECT_EQ(proof.max_roundings, 1U);
    EXPECT_TRUE(proof.in_rank_order);
  }
}

TEST(TwoShot, SendsToTheNextRankFirstAndOwnsTheChunkOfItsNumber) {
  constexpr Rank kRanks = 5;
  const Schedule schedule = samples::built("two_shot", kRanks);
  for (Rank r = 0; r < kRanks; ++r) {
    const auto sent = counts::sent_by(schedule.ranks[static_cast<std::size_t>(r)]);
    ASSERT_EQ(sent.size(), 2U * (kRanks - 1));
    for (Rank k = 1; k < kRanks; ++k) {
      const Rank peer = (r + k) % kRanks;
      const auto own = static_cast<std::uint32_t>(r), theirs = static_cast<std::uint32_t>(peer);
      const auto first = static_cast<std::size_t>(k - 1), second = first + kRanks - 1;
      EXPECT_EQ(sent[first], (counts::SentMessage{peer, operands::chunk(theirs)}));
      EXPECT_EQ(sent[second], (counts::SentMessage{peer, operands::chunk(own)}));
    }
  }
}

}  // namespace
}  // namespace tutti
