// SPDX-License-Identifier: Apache-2.0
// Ranks that hear from everyone they send to need no credits, where two operations' messages of a
// connection fit into its slots: Proof::mutual, judged by an executor that shares no code with the
// verifier and lets a sender overwrite what is not read.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "algorithms/algorithm.hpp"
#include "model/counts.hpp"
#include "reference_executor.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti {
namespace {

using reference::ReferenceExecutor;
using reference::RunOptions;

constexpr int kInterleavings = 60;
constexpr std::uint32_t kOperations = 4;

// What failed in any of many interleavings. Not in place: where a message is sent before its step
// ends, as packets are, whatever else orders steps that share memory (one block, on a device) is
// not here.
std::optional<std::string> run(const Schedule& schedule, std::uint32_t slots,
                               std::uint32_t slices) {
  ReferenceExecutor executor(schedule);
  for (int i = 0; i < kInterleavings; ++i)
    if (auto failure = executor.run({.slots = slots,
                                     .credits = false,
                                     .operations = kOperations,
                                     .seed = static_cast<std::uint64_t>(i),
                                     .slices = slices,
                                     .in_place = std::vector<bool>(schedule.ranks.size())}))
      return failure;
  return std::nullopt;
}

Schedule schedule_of(const Algorithm& algorithm, const Problem& problem, std::uint32_t replicas) {
  return replicate(*build_schedule(algorithm, problem), replicas);
}

TEST(Credits, AreNotNeededAmongRanksThatHearFromAllThatTheySendTo) {
  int mutual = 0, others = 0;
  for (const Algorithm* const algorithm : test::every_form())
    for (std::size_t collective = 0; collective < kCollectiveCount; ++collective)
      for (std::int32_t ranks = 2; ranks <= 9; ++ranks) {
        const Problem problem{static_cast<Collective>(collective), ranks, ranks / 2};
        if (!algorithm->supports(problem)) continue;
        for (const std::uint32_t replicas : {1U, 2U}) {
          const Schedule schedule = schedule_of(*algorithm, problem, replicas);
          const Proof proof = *verify(schedule, {.slots = 64});
          const ScheduleCounts counts = *count_schedule(*algorithm, problem);
          const std::string what = fmt::format("{}, {}, {} ranks, {} replicas", algorithm->name,
                                               name_of(problem.collective), ranks, replicas);
          EXPECT_EQ(counts.mutual, proof.mutual) << what;
          EXPECT_EQ(counts.connection_messages, proof.connection_messages) << what;
          ++(proof.mutual ? mutual : others);
          if (!proof.mutual) continue;
          for (const std::uint32_t each : {1U, 2U})
            EXPECT_EQ(run(schedule, 2 * each * proof.connection_messages, each * replicas),
                      std::nullopt)
                << what << ", slices for each replica: " << each;
        }
      }
  EXPECT_GT(mutual, 100);
  EXPECT_GT(others, 100);
}

// What the verifier says of all ranks, and the counts of a few that stand for them.
TEST(Credits, AreCountedAsTheyAreProved) {
  for (const Algorithm* const algorithm : test::every_form())
    for (std::size_t collective = 0; collective < kCollectiveCount; ++collective)
      for (const std::int32_t ranks : {10, 12, 15, 16, 24, 32}) {
        const Problem problem{static_cast<Collective>(collective), ranks, 3};
        if (!algorithm->supports(problem)) continue;
        const Proof proof = *verify(*build_schedule(*algorithm, problem), {.slots = 64});
        const ScheduleCounts counts = *count_schedule(*algorithm, problem);
        EXPECT_EQ(counts.mutual, proof.mutual) << algorithm->name << " among " << ranks;
        EXPECT_EQ(counts.connection_messages, proof.connection_messages)
            << algorithm->name << " among " << ranks;
      }
}

// The executor sees it where they are.
TEST(Credits, AreNeededElsewhere) {
  const Problem all_reduce{Collective::kAllReduce, 4};
  const Schedule one_shot = schedule_of(**find_algorithm("one_shot"), all_reduce, 1);
  EXPECT_EQ(verify(one_shot)->connection_messages, 1U);
  EXPECT_NE(run(one_shot, 1, 1), std::nullopt) << "room for one operation";
  EXPECT_EQ(run(one_shot, 2, 1), std::nullopt);
  const Schedule two_shot = schedule_of(**find_algorithm("two_shot"), all_reduce, 1);
  EXPECT_NE(run(two_shot, 1, 1), std::nullopt);
  const Schedule tree = schedule_of(**find_algorithm("tree"), {Collective::kBroadcast, 4, 1}, 1);
  EXPECT_FALSE(verify(tree)->mutual);
  EXPECT_NE(run(tree, 2 * verify(tree)->connection_messages, 1), std::nullopt)
      << "the root hears nothing";
}

}  // namespace
}  // namespace tutti
