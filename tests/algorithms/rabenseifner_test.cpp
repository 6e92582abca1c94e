// SPDX-License-Identifier: Apache-2.0
// Rabenseifner's formulas, and what folding adds to them.
#include <gtest/gtest.h>

#include <bit>

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

Schedule part(Collective collective, std::int32_t ranks) {
  return build_schedule(**find_algorithm("rabenseifner"),
                        {.collective = collective, .ranks = ranks})
      .value();
}

// The least bytes, at every p, and no more messages in a row than the page says.
TEST(Rabenseifner, PartsCountAsThePageSays) {
  for (std::int32_t p = 2; p <= 130; ++p) {
    SCOPED_TRACE(p);
    const Schedule scatter = part(Collective::kReduceScatter, p);
    const Schedule gather = part(Collective::kAllGather, p);
    const std::uint32_t levels = counts::ceil_log(static_cast<std::uint64_t>(p), 2);
    const auto q = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(p)));
    for (const Schedule* half : {&scatter, &gather}) {
      const std::uint32_t depth = counts::proof_of(*half).depth;
      EXPECT_LE(depth, levels);
      if (4 * p <= 5 * q) {
        EXPECT_EQ(1U << depth, static_cast<std::uint32_t>(q));
      }
    }
    EXPECT_EQ(gather.shape.max_incoming, levels);
    for (std::size_t r = 0; r < scatter.ranks.size(); ++r) {
      EXPECT_EQ(counts::of(scatter.ranks[r]).sent_chunks, static_cast<std::uint64_t>(p - 1)) << r;
      std::uint64_t received = 0;
      for (const Step& step : gather.ranks[r].lanes[0].steps)
        for (const Operand& source : step.sources)
          if (source.kind == OperandKind::kRecv) received += source.span.count();
      EXPECT_EQ(received, static_cast<std::uint64_t>(p - 1)) << r;
    }
  }
}

// The table in rabenseifner.cpp of 5 ranks; the all-gather turns every message around.
TEST(Rabenseifner, PartsExchangeAsThePageSays) {
  using operands::chunk;
  using operands::chunks;
  using Sent = std::vector<counts::SentMessage>;
  const Sent given[5] = {{{3, chunks(3, 2)}, {2, chunk(2)}, {1, chunk(1)}},
                         {{4, chunks(3, 2)}, {2, chunk(2)}, {0, chunk(0)}},
                         {{4, chunks(3, 2)}, {0, chunks(0, 2)}},
                         {{0, chunks(0, 3)}, {4, chunk(4)}},
                         {{1, chunks(0, 3)}, {3, chunk(3)}}};
  const Schedule scatter = part(Collective::kReduceScatter, 5);
  const Schedule gather = part(Collective::kAllGather, 5);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(counts::sent_by(scatter.ranks[r]), given[r]) << r;
    Sent taken;
    for (const Step& step : gather.ranks[r].lanes[0].steps)
      for (const Operand& source : step.sources)
        if (source.kind == OperandKind::kRecv)
          taken.insert(taken.begin(), {source.peer, source.span});
    EXPECT_EQ(taken, given[r]) << r;
  }
}

// Rank r ends with chunk r, and the partner differs in the top bit first.
TEST(Rabenseifner, PartsOfAPowerOfTwoGoByTheTopBitFirst) {
  const Schedule scatter = part(Collective::kReduceScatter, 16);
  for (Rank rank = 0; rank < 16; ++rank) {
    const auto sent = counts::sent_by(scatter.ranks[static_cast<std::size_t>(rank)]);
    ASSERT_EQ(sent.size(), 4U);
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(sent[k].to, rank ^ (8 >> k));
      EXPECT_EQ(sent[k].span.count(), 8U >> k);
    }
  }
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

// The table in rabenseifner.cpp.
TEST(RabenseifnerBroadcast, SendsWhatThePageSays) {
  const Schedule schedule = build_schedule(**find_algorithm("rabenseifner"),
                                           {.collective = Collective::kBroadcast, .ranks = 5})
                                .value();
  const auto run = [](std::uint32_t first, std::uint32_t count) {
    return Span{.first = first, .run = count};
  };
  using Sent = std::vector<counts::SentMessage>;
  const std::vector<Sent> expected{{{3, run(3, 2)},
                                    {2, run(2, 1)},
                                    {1, run(1, 1)},
                                    {1, run(0, 1)},
                                    {2, run(0, 2)},
                                    {3, run(0, 3)}},
                                   {{4, run(0, 3)}},
                                   {{1, run(2, 1)}},
                                   {{4, run(4, 1)}, {4, run(3, 1)}},
                                   {{1, run(3, 2)}, {2, run(3, 2)}}};
  for (std::size_t rank = 0; rank < 5; ++rank)
    EXPECT_EQ(counts::sent_by(schedule.ranks[rank]), expected[rank]) << "rank " << rank;
}

TEST(RabenseifnerBroadcast, FormulasHoldAtEveryCountAndRoot) {
  for (std::int32_t p = 2; p <= 65; ++p)
    for (const Rank root : {0, p / 3, p - 1}) {
      SCOPED_TRACE(testing::Message() << p << " ranks, root " << root);
      const Schedule schedule =
          build_schedule(**find_algorithm("rabenseifner"), {Collective::kBroadcast, p, root})
              .value();
      const auto ranks = static_cast<std::uint32_t>(p);
      const Proof proof = counts::proof_of(schedule);
      const std::uint32_t rounds = counts::ceil_log(ranks, 2);
      EXPECT_LE(proof.depth, 2 * rounds - 1);
      if (std::has_single_bit(ranks)) {
        EXPECT_EQ(proof.depth, 2 * rounds - 1);
        EXPECT_EQ(proof.max_sent_chunks, 2 * (ranks - 1));
      }
      std::uint64_t sent = 0;
      for (const RankProgram& program : schedule.ranks) sent += counts::of(program).sent_chunks;
      EXPECT_EQ(sent, std::uint64_t{ranks} * (ranks - 1));  // (p-1) n, of n = p chunks
    }
}

TEST(RabenseifnerReduce, FormulasHoldAtEveryCountAndRoot) {
  for (std::int32_t p = 2; p <= 65; ++p)
    for (const Rank root : {0, p / 3, p - 1}) {
      SCOPED_TRACE(testing::Message() << p << " ranks, root " << root);
      const Schedule schedule =
          build_schedule(**find_algorithm("rabenseifner"), {Collective::kReduce, p, root}).value();
      const auto ranks = static_cast<std::uint32_t>(p);
      const Proof proof = counts::proof_of(schedule);
      EXPECT_LE(proof.depth, 2 * counts::ceil_log(ranks, 2));
      // p - 1 chunks of the reduce-scatter, and what was collected; the root has that in the end.
      EXPECT_EQ(counts::of(schedule.ranks[static_cast<std::size_t>(root)]).sent_chunks, ranks - 1);
      if (std::has_single_bit(ranks)) {
        EXPECT_EQ(proof.depth, 2 * counts::ceil_log(ranks, 2));
        EXPECT_EQ(proof.max_sent_chunks, ranks - 1 + ranks / 2);
      }
    }
}

}  // namespace
}  // namespace tutti
