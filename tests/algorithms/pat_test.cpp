// SPDX-License-Identifier: Apache-2.0
// PAT's formulas, and that what goes far is small.
#include <gtest/gtest.h>

#include <algorithm>

#include "counts.hpp"
#include "samples.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

TEST(Pat, CountsAreThoseOfTheFormula) {
  for (std::uint32_t p = 2; p <= 130; p += test::kSanitized ? 1 + p / 8 : 1) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("pat", static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    const std::uint32_t rounds = counts::ceil_log(p, 2);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2 * rounds);
      EXPECT_EQ(counts.sent_chunks, 2 * (p - 1));
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
    }
    EXPECT_EQ(counts::proof_of(schedule).depth, 2 * rounds);
  }
}

// Distance d carries ceil((p-d) / 2d) chunks, on the way there and back.
TEST(Pat, TheFartherTheSmaller) {
  for (Rank p = 2; p <= 65; ++p) {
    const Schedule schedule = samples::built("pat", p);
    const std::uint32_t rounds = counts::ceil_log(static_cast<std::uint64_t>(p), 2);
    for (Rank r = 0; r < p; ++r) {
      const auto sent = counts::sent_by(schedule.ranks[static_cast<std::size_t>(r)]);
      ASSERT_EQ(sent.size(), 2 * rounds);
      for (std::uint32_t k = 0; k < rounds; ++k) {
        const Rank d = 1 << k;
        const auto chunks = static_cast<std::uint32_t>((p - d + 2 * d - 1) / (2 * d));
        EXPECT_EQ(sent[k].to, (r + p - d) % p);
        EXPECT_EQ(sent[k].span.count(), chunks);
        EXPECT_EQ(sent[2 * rounds - 1 - k].to, (r + d) % p);
        EXPECT_EQ(sent[2 * rounds - 1 - k].span.count(), chunks);
      }
    }
  }
}

// The table in pat.cpp: the chunks that each rank of 6 sends in the all-gather.
TEST(Pat, SendsWhatThePageSays) {
  const Schedule schedule = samples::built("pat", 6);
  for (std::uint32_t r = 0; r < 6; ++r) {
    const auto sent = counts::sent_by(schedule.ranks[r]);
    const auto chunks_of = [&](std::size_t message) {
      std::vector<std::uint32_t> chunks;
      for (std::uint32_t k = 0; k < sent[message].span.count(); ++k)
        chunks.push_back(sent[message].span.at(k, 6));
      return chunks;
    };
    ASSERT_EQ(sent.size(), 6U);
    EXPECT_EQ(chunks_of(3), (std::vector<std::uint32_t>{r}));
    EXPECT_EQ(chunks_of(4), (std::vector<std::uint32_t>{r}));
    EXPECT_EQ(chunks_of(5), (std::vector<std::uint32_t>{r, (r + 4) % 6, (r + 2) % 6}));
  }
}

}  // namespace
}  // namespace tutti
