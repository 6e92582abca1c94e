// SPDX-License-Identifier: Apache-2.0
// The list behind the family seal: whatever proved_by_tests() admits is proved here, every
// algorithm, collective, root, rank count and replication, and nothing else is admitted.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "algorithms/arrangement.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

constexpr std::int32_t kMostRanksWithEveryRoot = test::kSanitized ? 9 : 130;  // of more: three
constexpr std::int32_t kBeyondTheList = 130;

bool is_left_out(std::int32_t ranks) {
  return test::kSanitized && ranks > 9 && ranks != 16 && ranks != 21 && ranks != 48;
}

std::vector<Rank> roots_of(Collective collective, std::int32_t ranks) {
  if (!info_of(collective).rooted) return {0};
  if (ranks > kMostRanksWithEveryRoot) return {0, ranks / 3, ranks - 1};
  std::vector<Rank> roots;
  for (Rank root = 0; root < ranks; ++root) roots.push_back(root);
  return roots;
}

class Proved : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Proved, AllThatTheListAdmits) {
  const Algorithm& algorithm = *GetParam();
  for (std::size_t c = 1; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (std::int32_t ranks = 1; ranks <= kBeyondTheList; ++ranks) {
      if (is_left_out(ranks)) continue;
      for (const Rank root : roots_of(collective, ranks)) {
        const Problem problem{collective, ranks, root};
        const Result<Schedule> schedule = build_schedule(algorithm, problem);
        for (const std::uint32_t replicas : {1U, 2U, 3U, 4U, 5U, 8U}) {
          if (!proved_by_tests(algorithm, problem, {.replicas = replicas})) continue;
          ASSERT_TRUE(schedule) << schedule.error().message;
          const auto proof = verify(replicas == 1 ? *schedule : replicate(*schedule, replicas));
          ASSERT_TRUE(proof) << name_of(collective) << ", " << ranks << " ranks, root " << root
                             << ", " << replicas << " replicas: " << proof.error().message;
          EXPECT_EQ(proof->minimal_slots, 2U);
        }
      }
    }
  }
}

class ProvedAmongMany : public ::testing::TestWithParam<const char*> {};

TEST_P(ProvedAmongMany, AllReduce) {
  const Algorithm& algorithm = **find_algorithm(GetParam());
  for (const std::int32_t ranks : {256, 512}) {
    const Problem problem{Collective::kAllReduce, ranks};
    ASSERT_TRUE(proved_by_tests(algorithm, problem, {}));
    EXPECT_FALSE(proved_by_tests(algorithm, problem, {.replicas = 2}));
    EXPECT_FALSE(proved_by_tests(algorithm, {Collective::kReduce, ranks}, {}));
    if (test::kSanitized && ranks > 256) continue;
    const Result<Schedule> schedule = build_schedule(algorithm, problem);
    ASSERT_TRUE(schedule) << schedule.error().message;
    const auto proof = verify(*schedule);
    ASSERT_TRUE(proof) << ranks << " ranks: " << proof.error().message;
    EXPECT_EQ(proof->minimal_slots, 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(ProvedList, ProvedAmongMany,
                         ::testing::Values("one_shot", "butterfly", "tree"),
                         [](const auto& row) { return std::string(row.param); });

// What the list says of itself, counted.
TEST_P(Proved, TheListIsAsLongAsItSays) {
  const Algorithm& algorithm = *GetParam();
  for (std::size_t c = 1; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    std::set<std::int32_t> ranks_listed;
    std::set<std::uint32_t> replicas_listed;
    for (std::int32_t ranks = 1; ranks <= 255; ++ranks)
      for (std::uint32_t replicas = 1; replicas <= 16; ++replicas)
        if (proved_by_tests(algorithm, {collective, ranks}, {.replicas = replicas})) {
          ranks_listed.insert(ranks);
          replicas_listed.insert(replicas);
        }
    const bool supports = algorithm.supports({collective, 4});
    EXPECT_EQ(ranks_listed.size(), supports ? 37U : 0U) << name_of(collective);
    if (supports) {
      EXPECT_EQ(*ranks_listed.rbegin(), 128);
      EXPECT_EQ(replicas_listed, (std::set<std::uint32_t>{1, 2, 4}));
    }
  }
}

bool admits(std::string_view name, const Problem& problem, const Arrangement& arrangement) {
  return proved_by_tests(**find_algorithm(name), problem, arrangement);
}

TEST(ProvedList, HasAnEnd) {
  using enum Collective;
  EXPECT_TRUE(admits("ring", {kAllReduce, 33}, {.replicas = 4}));
  EXPECT_FALSE(admits("ring", {kAllReduce, 34}, {}));
  EXPECT_FALSE(admits("ring", {kAllReduce, 8}, {.replicas = 3}));
  EXPECT_FALSE(admits("ring", {kAllReduce, 0}, {}));
  EXPECT_FALSE(admits("circulant:radix=3", {kAllReduce, 8}, {}));
}

// The list names what was proved: a collective that the family does not have, no collective at all,
// a root that there is not, and ranks in another order were not.
TEST(ProvedList, KeyHasTheCollectiveTheRootAndTheOrders) {
  using enum Collective;
  EXPECT_TRUE(admits("ring", {kBroadcast, 64, 63}, {.replicas = 4}));
  EXPECT_FALSE(admits("butterfly", {kReduceScatter, 64}, {.replicas = 4}));
  EXPECT_FALSE(admits("two_shot", {kBroadcast, 64}, {.replicas = 4}));
  EXPECT_FALSE(admits("ring", {kNone, 64}, {.replicas = 4}));
  EXPECT_FALSE(admits("ring", {kBroadcast, 64, 64}, {.replicas = 4}));
  const std::vector<RankOrder> by_number{RankOrder(), RankOrder()};
  const std::vector<RankOrder> second{RankOrder(), *RankOrder::make({1, 0, 2})};
  EXPECT_TRUE(admits("ring", {kAllReduce, 3}, {.replicas = 2, .orders = by_number}));
  EXPECT_FALSE(admits("ring", {kAllReduce, 3}, {.replicas = 2, .orders = second}));
  EXPECT_TRUE(admits("ring", {kAllReduce, 3}, {.replicas = 1, .orders = second}));
}

std::string name_of_case(const testing::TestParamInfo<const Algorithm*>& test) {
  std::string name(test.param->name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Proved, testing::ValuesIn(all_algorithms()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Direct, Proved, testing::ValuesIn(direct_algorithms()), name_of_case);

}  // namespace
}  // namespace tutti
