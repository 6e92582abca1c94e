// SPDX-License-Identifier: Apache-2.0
// The circulant's formulas at several radixes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

class Circulant : public testing::TestWithParam<std::uint32_t> {
 protected:
  static Schedule built(std::int32_t p) {
    return samples::built(fmt::format("circulant:radix={}", GetParam()), p);
  }
};

TEST_P(Circulant, CountsAreThoseOfTheFormula) {
  const std::uint32_t radix = GetParam();
  for (std::uint32_t p = 2; p <= 130; p += test::kSanitized ? 1 + p / 8 : 1) {
    SCOPED_TRACE(p);
    const Schedule schedule = built(static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    // ceil(before/kept) - 1 messages a round: k-1, or fewer where less is left.
    std::uint64_t messages = 0;
    for (std::uint32_t before = p, kept = 0; before > 1; before = kept) {
      kept = (before + radix - 1) / radix;
      messages += (before + kept - 1) / kept - 1;
    }
    const std::uint32_t rounds = counts::ceil_log(p, radix);
    EXPECT_LE(messages, std::uint64_t{rounds} * (radix - 1));
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2 * messages);
      EXPECT_EQ(counts.sent_chunks, 2 * (p - 1));
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
    }
    EXPECT_EQ(counts::proof_of(schedule).depth, 2 * rounds);
  }
}

// Where p is a power of the radix every round has all its k-1 messages, equally long.
TEST_P(Circulant, PowersOfTheRadixFillEveryRound) {
  const std::uint32_t radix = GetParam();
  for (std::uint32_t rounds = 1, p = radix; p <= 130; ++rounds, p *= radix) {
    const Schedule schedule = built(static_cast<std::int32_t>(p));
    for (const RankProgram& program : schedule.ranks)
      EXPECT_EQ(counts::of(program).messages, std::uint64_t{2} * rounds * (radix - 1)) << p;
  }
}

INSTANTIATE_TEST_SUITE_P(Radix, Circulant, testing::Values(2U, 3U, 4U, 8U),
                         [](const auto& param) { return std::to_string(param.param); });

TEST(CirculantTable, TwoIsTheDefaultRadix) {
  EXPECT_EQ(samples::built("circulant", 11).ranks, samples::built("circulant:radix=2", 11).ranks);
}

// The table in circulant.cpp: what goes where, of 5 ranks.
TEST(CirculantTable, SendsWhatThePageSays) {
  const Schedule schedule = samples::built("circulant", 5);
  for (Rank r = 0; r < 5; ++r) {
    const auto at = [&](Rank distance) { return static_cast<std::uint32_t>((r + distance) % 5); };
    const auto sent = counts::sent_by(schedule.ranks[static_cast<std::size_t>(r)]);
    ASSERT_EQ(sent.size(), 6U);
    using operands::chunks;
    EXPECT_EQ(sent[0], (counts::SentMessage{(r + 3) % 5, chunks(at(3), 2)}));
    EXPECT_EQ(sent[1], (counts::SentMessage{(r + 2) % 5, chunks(at(2), 1)}));
    EXPECT_EQ(sent[2], (counts::SentMessage{(r + 1) % 5, chunks(at(1), 1)}));
    EXPECT_EQ(sent[3], (counts::SentMessage{(r + 4) % 5, chunks(at(0), 1)}));
    EXPECT_EQ(sent[4], (counts::SentMessage{(r + 3) % 5, chunks(at(0), 1)}));
    EXPECT_EQ(sent[5], (counts::SentMessage{(r + 2) % 5, chunks(at(0), 2)}));
  }
}

}  // namespace
}  // namespace tutti
