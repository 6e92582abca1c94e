// SPDX-License-Identifier: Apache-2.0
// Counts off the programs of few ranks, against those off the programs of all.
#include "model/counts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "counted_schedule.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

std::vector<const Algorithm*> algorithms() {
  std::vector<const Algorithm*> all = test::every_form();
  for (const char* name :
       {"ring:exchange=neighbours", "circulant:radix=3", "hierarchical:form=leader",
        "hierarchical:inner=ring:outer=ring", "hierarchical:inner=rabenseifner:outer=butterfly",
        "hierarchical:outer=tree"})
    all.push_back(find_algorithm(name).value());
  return all;
}

// Where the ranks of a job may be.
struct Layout {
  const char* name;
  std::vector<std::int32_t> hosts;  // by rank
};

std::vector<Layout> layouts(std::int32_t ranks) {
  const auto by = [ranks](auto host_of) {
    std::vector<std::int32_t> hosts;
    for (Rank rank = 0; rank < ranks; ++rank) hosts.push_back(host_of(rank));
    return hosts;
  };
  std::vector<Layout> all{{"not told", {}},
                          {"one host", by([](Rank) { return 7; })},
                          {"a rank a host", by([](Rank rank) { return 1000 - rank; })},
                          {"pairs", by([](Rank rank) { return rank / 2; })},
                          {"fours", by([](Rank rank) { return rank / 4; })},
                          {"dealt to 3 hosts", by([](Rank rank) { return rank % 3; })},
                          {"dealt in pairs", by([](Rank rank) { return rank / 2 % 2; })},
                          {"the first alone", by([](Rank rank) { return rank == 0 ? 1 : 0; })},
                          {"halves", by([ranks](Rank rank) { return 2 * rank / ranks; })}};
  std::mt19937 random(static_cast<unsigned>(ranks));
  all.push_back({"anywhere", by([&](Rank) { return static_cast<std::int32_t>(random() % 4); })});
  return all;
}

void expect_same(const ScheduleCounts& few, const ScheduleCounts& all) {
  const auto same = [](const char* what, std::uint64_t a, std::uint64_t b) {
    EXPECT_EQ(a, b) << what;
  };
  same("depth", few.depth, all.depth);
  same("path_steps", few.path_steps, all.path_steps);
  same("total_operands", few.total_operands, all.total_operands);
  same("lane_depth", few.lane_depth, all.lane_depth);
  same("far_depth", few.far_depth, all.far_depth);
  same("path_far_chunks", few.path_far_chunks, all.path_far_chunks);
  same("lane_far_depth", few.lane_far_depth, all.lane_far_depth);
  same("host_far_chunks", few.host_far_chunks, all.host_far_chunks);
  same("max_far_transfers", few.max_far_transfers, all.max_far_transfers);
  same("total_far_operands", few.total_far_operands, all.total_far_operands);
  EXPECT_TRUE(few == all);
}

void expect_equal_counts(const Algorithm& algorithm, const Problem& problem) {
  const Schedule whole = build_schedule(algorithm, problem).value();
  for (const Layout& layout : layouts(problem.ranks)) {
    SCOPED_TRACE(testing::Message()
                 << algorithm.name << ", " << name_of(problem.collective) << ", " << problem.ranks
                 << " ranks, root " << problem.root << ", " << layout.name);
    const auto few = count_schedule(algorithm, problem, layout.hosts);
    ASSERT_TRUE(few) << few.error().message;
    expect_same(*few, whole::count_schedule(whole, layout.hosts));
    if (testing::Test::HasFailure()) return;
  }
}

class AtRankCount : public testing::TestWithParam<std::int32_t> {};

TEST_P(AtRankCount, OfFewRanksAreThoseOfAll) {
  const std::int32_t ranks = GetParam();
  int problems = 0;
  for (const Algorithm* algorithm : algorithms())
    for (std::size_t c = 1; c < kCollectiveCount; ++c)
      for (const Rank root : {0, ranks / 3}) {
        const Problem problem{static_cast<Collective>(c), ranks, root};
        if ((root > 0 && ranks / 3 == 0) || !check_problem(*algorithm, problem)) continue;
        ++problems;
        expect_equal_counts(*algorithm, problem);
        if (HasFailure()) return;
      }
  EXPECT_GE(problems, 2 * static_cast<int>(all_algorithms().size()));
}

std::vector<std::int32_t> rank_counts() {
  std::vector<std::int32_t> counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32};
  if (!test::kSanitized) counts.insert(counts.end(), {48, 64, 96});
  return counts;
}

INSTANTIATE_TEST_SUITE_P(Counts, AtRankCount, testing::ValuesIn(rank_counts()));

// An algorithm that counts the programs it is asked for.
class Counted final : public Algorithm {
 public:
  explicit Counted(const Algorithm& of) : Algorithm(of.name, of.summary, of.source), of_(of) {}
  [[nodiscard]] bool supports(const Problem& problem) const override {
    return of_.supports(problem);
  }
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    return of_.shape(problem);
  }
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    ++programs;
    return of_.program(problem, rank);
  }
  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    return of_.symmetry(problem);
  }
  mutable std::atomic<int> programs = 0;

 private:
  const Algorithm& of_;
};

std::vector<std::int32_t> hosts_of(std::int32_t ranks, std::int32_t size) {
  std::vector<std::int32_t> hosts(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    hosts[rank] = static_cast<std::int32_t>(rank) / size;
  return hosts;
}

TEST(Counts, ThatManyRanksShareAreReadOffOne) {
  constexpr std::int32_t kRanks = 4096;
  for (const std::int32_t host_ranks : {kRanks, 8, 7}) {  // 7: the last host has one rank
    const std::vector<std::int32_t> hosts = hosts_of(kRanks, host_ranks);
    for (const char* name :
         {"ring", "butterfly", "rabenseifner", "circulant", "one_shot", "two_shot",
          "two_shot:access=remote", "two_shot:access=store", "pat", "hierarchical"}) {
      const Counted algorithm(*find_algorithm(name).value());
      const auto counts =
          count_schedule(algorithm, {.collective = Collective::kAllReduce, .ranks = kRanks}, hosts);
      ASSERT_TRUE(counts) << name << ": " << counts.error().message;
      EXPECT_EQ(algorithm.programs, 1) << name << ", hosts of " << host_ranks;
    }
  }
}

// Around a ring whose hosts are unlike and too many ranks to tell each apart.
TEST(Counts, OfUnequalHostsAreThoseOfALineOfThem) {
  const Algorithm& ring = *find_algorithm("ring").value();
  const auto counted = [&](std::int32_t ranks) {
    return count_schedule(ring, {.collective = Collective::kAllReduce, .ranks = ranks},
                          hosts_of(ranks, 8))
        .value();
  };
  const ScheduleCounts even = counted(16384), uneven = counted(16383);
  const auto expect_near = [](std::uint64_t a, std::uint64_t b) {
    EXPECT_NEAR(static_cast<double>(a) / static_cast<double>(b), 1, 0.001);
  };
  EXPECT_EQ(even.far_depth, 2U * 16384 / 8);
  expect_near(uneven.far_depth, even.far_depth);
  expect_near(uneven.path_far_chunks, even.path_far_chunks);
  expect_near(uneven.host_far_chunks, even.host_far_chunks);
  expect_near(uneven.total_far_operands, even.total_far_operands);
  EXPECT_EQ(uneven.total_steps, 16383 * (2 * 16383 - 1));
}

TEST(Counts, WithMoreProgramsThanCanBeReadAreRefused) {
  const Algorithm& tree = *find_algorithm("tree").value();
  const auto counts =
      count_schedule(tree, {.collective = Collective::kAllReduce, .ranks = 1 << 20});
  ASSERT_FALSE(counts);
  EXPECT_EQ(counts.error().code, Code::kNotSupported);
  EXPECT_NE(counts.error().message.find("too large to be priced"), std::string::npos);
}

}  // namespace
}  // namespace tutti
