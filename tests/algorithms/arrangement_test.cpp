// SPDX-License-Identifier: Apache-2.0
// Ranks in orders of their own: every family, collective and root, proved and run. The executor
// lays the user's data by rank and knows nothing of places but the block map, so that a rank that
// ended with another one's block, or a root at another place, would be seen.
#include "algorithms/arrangement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "reference_executor.hpp"
#include "schedule/block_map.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"
#include "schedule/unroll.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int32_t kMostRanks = 5;
constexpr int kInterleavings = 5;
#else
constexpr std::int32_t kMostRanks = 9;
constexpr int kInterleavings = 10;
#endif
constexpr std::uint64_t kSeed = 20260711;

class Orders {
 public:
  RankOrder any(std::int32_t ranks) {
    std::vector<Rank> rank_at(static_cast<std::size_t>(ranks));
    std::iota(rank_at.begin(), rank_at.end(), 0);
    std::ranges::shuffle(rank_at, random_);
    return *RankOrder::make(std::move(rank_at));
  }
  std::vector<RankOrder> some(std::size_t count, std::int32_t ranks) {
    std::vector<RankOrder> orders;
    for (std::size_t i = 0; i < count; ++i) orders.push_back(any(ranks));
    return orders;
  }

 private:
  std::mt19937_64 random_{kSeed};
};

template <typename Visit>
void for_each_problem(const Algorithm& algorithm, std::int32_t ranks, Visit visit) {
  for (std::size_t c = 1; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (Rank root = 0; root < (info_of(collective).rooted ? ranks : 1); ++root)
      if (const Problem problem{collective, ranks, root}; algorithm.supports(problem))
        visit(problem);
  }
}

class Arranged : public testing::TestWithParam<const Algorithm*> {
 protected:
  Orders orders_;
  reference::Random seeds_{kSeed};
};

TEST_P(Arranged, RanksKeepTheirBlocksAndTheRootItsPlace) {
  for (std::int32_t ranks = 1; ranks <= kMostRanks; ++ranks)
    for_each_problem(*GetParam(), ranks, [&](const Problem& problem) {
      SCOPED_TRACE(testing::Message() << name_of(problem.collective) << ", " << ranks
                                      << " ranks, root " << problem.root << ", seed " << kSeed);
      // Three replicas of two orders, in turn.
      const std::vector<RankOrder> orders = orders_.some(2, ranks);
      const Schedule schedule =
          *arranged_schedule(*GetParam(), problem, {.replicas = 3, .orders = orders});
      ASSERT_EQ(schedule.shape.root, problem.root);
      const Result<Proof> proof = verify(schedule);
      ASSERT_TRUE(proof) << proof.error().message;
      reference::ReferenceExecutor executor(schedule);
      for (int i = 0; i < kInterleavings; ++i) {
        const std::uint64_t seed = seeds_.next();
        const auto failure = executor.run(
            {.slots = proof->minimal_slots, .seed = seed, .slices = 0, .in_place = {}});
        ASSERT_FALSE(failure) << *failure << " (seed " << seed << ")";
      }
    });
}

TEST_P(Arranged, IsReorderedAndReplicated) {
  for_each_problem(*GetParam(), 6, [&](const Problem& problem) {
    const Schedule plain = *build_schedule(*GetParam(), problem);
    EXPECT_EQ(*arranged_schedule(*GetParam(), problem, {}), plain);
    EXPECT_EQ(*arranged_schedule(*GetParam(), problem, {.replicas = 3}), replicate(plain, 3));
    const std::vector<RankOrder> order = orders_.some(1, problem.ranks);
    Problem placed = problem;
    placed.root = order[0].place_of(problem.root);
    const Schedule moved = reorder(*build_schedule(*GetParam(), placed), order[0]);
    EXPECT_EQ(*arranged_schedule(*GetParam(), problem, {.orders = order}), moved);
    EXPECT_EQ(*arranged_schedule(*GetParam(), problem, {.replicas = 2, .orders = order}),
              replicate(moved, 2));
  });
}

// Replicas in several orders have one shape, so nothing of it may hang on the root's place.
TEST_P(Arranged, ShapesDifferByTheRootInNothingElse) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8, 13, 32})
    for_each_problem(*GetParam(), ranks, [&](const Problem& problem) {
      ScheduleShape shape = GetParam()->shape(problem);
      shape.root = 0;
      EXPECT_EQ(shape, GetParam()->shape({problem.collective, ranks}))
          << name_of(problem.collective) << ", " << ranks << " ranks, root " << problem.root;
    });
}

INSTANTIATE_TEST_SUITE_P(All, Arranged, testing::ValuesIn(all_algorithms()),
                         [](const auto& test) { return std::string(test.param->name); });
INSTANTIATE_TEST_SUITE_P(Direct, Arranged, testing::ValuesIn(direct_algorithms()),
                         [](const auto& test) { return std::to_string(test.index); });

// The proof asks for the very rank: with another block map or another root it falls.
TEST(Arrangement, ProofsAreOfTheOrderAtHand) {
  const std::vector<RankOrder> order{*RankOrder::make({2, 0, 3, 1})};
  const Problem scatter{Collective::kReduceScatter, 4};
  Schedule schedule = *arranged_schedule(**find_algorithm("pat"), scatter, {.orders = order});
  EXPECT_TRUE(verify(schedule));
  std::swap(schedule.shape.block_ranks[0], schedule.shape.block_ranks[1]);
  EXPECT_FALSE(verify(schedule));
  schedule.shape.block_ranks.clear();
  EXPECT_FALSE(verify(schedule));
  const Problem broadcast{Collective::kBroadcast, 4, 3};
  schedule = *arranged_schedule(**find_algorithm("tree"), broadcast, {.orders = order});
  EXPECT_TRUE(verify(schedule));
  schedule.shape.root = 2;
  EXPECT_FALSE(verify(schedule));
}

// Replicas alike in tags and steps whose ranks stand in different orders are proved one by one.
TEST(Arrangement, EveryReplicasBlocksAreProved) {
  const Problem gather{Collective::kAllGather, 3};
  Schedule schedule = *arranged_schedule(**find_algorithm("ring"), gather, {.replicas = 2});
  schedule.shape.block_ranks = {0, 1, 2, 0, 2, 1};
  const Result<Proof> proof = verify(schedule);
  ASSERT_FALSE(proof);
  EXPECT_EQ(proof.error().message.rfind("input extent: ", 0), 0U) << proof.error().message;
}

TEST(Arrangement, TheMapIsABijectionOfChunks) {
  const std::vector<Rank> ranks{2, 0, 1};
  const BlockMap map{ranks.data(), 4};
  std::vector<std::uint32_t> seen;
  for (std::uint32_t chunk = 0; chunk < 12; ++chunk) {
    seen.push_back(map.data_chunk(chunk));
    EXPECT_EQ(map.data_chunk(chunk) / 4, static_cast<std::uint32_t>(map.owner_of(chunk)));
    EXPECT_EQ(map.data_chunk(chunk) % 4, chunk % 4);
  }
  std::ranges::sort(seen);
  for (std::uint32_t chunk = 0; chunk < 12; ++chunk) EXPECT_EQ(seen[chunk], chunk);
  EXPECT_EQ(BlockMap{}.data_chunk(7), 7U);
}

TEST(Arrangement, TheMapIsPrintedReadAndUnrolled) {
  const Problem gather{Collective::kAllGather, 3};
  const Algorithm& ring = **find_algorithm("ring");
  const std::vector<RankOrder> orders{*RankOrder::make({2, 0, 1}), RankOrder()};
  const Schedule two = *arranged_schedule(ring, gather, {.replicas = 2, .orders = orders});
  EXPECT_EQ(two.shape.block_ranks, (std::vector<Rank>{2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(from_json(to_json(two)), two);
  EXPECT_NE(to_text(two).find(", blocks of ranks 2 0 1 0 1 2;"), std::string::npos);
  EXPECT_EQ(unroll(two, 4).error().code, Code::kNotSupported);
  const Schedule one =
      *arranged_schedule(ring, gather, {.replicas = 2, .orders = std::span(orders).first(1)});
  const Result<Schedule> unrolled = unroll(one, 4);
  ASSERT_TRUE(unrolled);
  EXPECT_EQ(unrolled->shape.block_ranks, (std::vector<Rank>{2, 0, 1}));
  const Result<Proof> proof = verify(*unrolled);
  EXPECT_TRUE(proof) << proof.error().message;
}

}  // namespace
}  // namespace tutti
