// SPDX-License-Identifier: Apache-2.0
// Hierarchical, proved over the set of forms, parts and groups that algorithms/hierarchical.cpp
// states: every pair of inner and outer algorithm is a test of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "algorithms/arrangement.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

constexpr std::int32_t kMostRanks = test::kSanitized ? 12 : 128;
constexpr std::int32_t kMostReplicated = 64;  // beyond, 1 replica only
// All ways to cut up to so many ranks into groups.
constexpr std::int32_t kMostCut = test::kSanitized ? 5 : 7;

constexpr std::array kOuters{"ring",      "tree",     "butterfly", "rabenseifner",
                             "circulant", "one_shot", "two_shot",  "pat"};

using Groups = std::vector<std::int32_t>;

struct Pair {
  const char *form, *inner, *outer;
};

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  for (const char* outer : kOuters) {
    for (const char* inner : {"ring", "rabenseifner", "circulant", "two_shot"})
      pairs.push_back({"rails", inner, outer});
    for (const char* inner : {"ring", "tree", "butterfly", "rabenseifner", "one_shot"})
      pairs.push_back({"leader", inner, outer});
  }
  return pairs;
}

class ProvedHierarchies : public testing::TestWithParam<Pair> {
 protected:
  // With 1, 2 and 4 replicas; the other collectives with 1, at the roots of a few places.
  static void prove(const Groups& groups) {
    const std::int32_t ranks = std::accumulate(groups.begin(), groups.end(), 0);
    if (ranks > kMostRanks) return;
    const auto& [form, inner, outer] = GetParam();
    const std::string name = fmt::format("hierarchical:form={}:inner={}:outer={}:groups={}", form,
                                         inner, outer, fmt::join(groups, "+"));
    const Algorithm& algorithm = **find_algorithm(name);
    const auto schedule =
        build_schedule(algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
    ASSERT_TRUE(schedule) << schedule.error().message;
    for (const std::uint32_t replicas : {1U, 2U, 4U}) {
      if (replicas > 1 && ranks > kMostReplicated) continue;
      const auto proof = verify(replicas == 1 ? *schedule : replicate(*schedule, replicas));
      ASSERT_TRUE(proof) << name << ", " << replicas << " replicas: " << proof.error().message;
      EXPECT_EQ(proof->minimal_slots, 2U) << name;
    }
    for (std::size_t c = 1; c < kCollectiveCount; ++c)
      for (const Rank root : std::set<Rank>{0, ranks / 2, ranks - 1}) {
        const Problem problem{static_cast<Collective>(c), ranks, root};
        if (problem.collective == Collective::kAllReduce || !algorithm.supports(problem) ||
            (root > 0 && !info_of(problem.collective).rooted))
          continue;
        const auto proof = verify(*build_schedule(algorithm, problem));
        ASSERT_TRUE(proof) << name << ", " << name_of(problem.collective) << ", root " << root
                           << ": " << proof.error().message;
        EXPECT_EQ(proof->minimal_slots, 2U) << name;
      }
  }
};

TEST_P(ProvedHierarchies, EqualGroupsOfEveryListedRankCount) {
  for (std::int32_t ranks = 1; ranks <= 130; ++ranks) {
    if (!proved_by_tests(**find_algorithm("hierarchical"), {Collective::kAllReduce, ranks}, {}))
      continue;
    for (std::int32_t groups = 1; groups <= ranks; ++groups)
      if (ranks % groups == 0) prove(Groups(static_cast<std::size_t>(groups), ranks / groups));
  }
}

// Bit i of `cuts`: a group ends after rank i.
TEST_P(ProvedHierarchies, EveryWayToCutAFewRanks) {
  for (std::int32_t ranks = 1; ranks <= kMostCut; ++ranks)
    for (unsigned cuts = 0; cuts < 1U << (ranks - 1); ++cuts) {
      Groups groups{1};
      for (std::int32_t rank = 0; rank + 1 < ranks; ++rank)
        if ((cuts >> rank & 1) == 1)
          groups.push_back(1);
        else
          ++groups.back();
      prove(groups);
    }
}

TEST_P(ProvedHierarchies, UnequalGroupsOfMore) {
  const std::vector<Groups> unequal{{4, 4, 1},          {5, 1, 1, 4},     {8, 3},
                                    {7, 5, 3},          {1, 2, 3, 4, 5},  {8, 8, 8, 5},
                                    {6, 6, 6, 6, 6, 3}, {16, 1, 1, 9, 2}, {3, 1, 2, 1, 1, 2, 1, 1}};
  for (const Groups& groups : unequal) prove(groups);
}

INSTANTIATE_TEST_SUITE_P(All, ProvedHierarchies, testing::ValuesIn(all_pairs()),
                         [](const testing::TestParamInfo<Pair>& test) {
                           return fmt::format("{}_{}_{}", test.param.form, test.param.inner,
                                              test.param.outer);
                         });

}  // namespace
}  // namespace tutti
