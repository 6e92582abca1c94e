// SPDX-License-Identifier: Apache-2.0
// How the time of a plan grows with its slices, counted in steps.
#include "schedule/pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "samples.hpp"
#include "schedule/passes.hpp"

namespace tutti {
namespace {

Pace pace(std::string_view name, std::int32_t ranks, std::uint32_t replicas = 1) {
  const auto found = pace_of(replicate(samples::built(name, ranks), replicas), 2);
  EXPECT_TRUE(found) << name << " " << ranks;
  return found.value_or(Pace{});
}

TEST(Pace, OneLaneTakesAllItsStepsForEverySlice) {
  for (const std::int32_t p : {2, 3, 8, 31}) {
    const Pace ring = pace("ring", p);
    EXPECT_EQ(ring.first_slice, static_cast<std::uint64_t>(2 * p - 1));
    EXPECT_EQ(ring.per_slice, 2 * p - 1);
  }
}

TEST(Pace, ReplicasOverlapSlices) {
  EXPECT_EQ(pace("ring", 8, 2).per_slice, 7.5);  // 15 steps for two slices at once
  EXPECT_EQ(pace("ring", 8, 4).per_slice, 3.75);
}

// Depth + slices, not depth * slices: what a slice adds does not grow with the number of ranks.
TEST(Pace, ATreeTakesDepthPlusSlices) {
  for (const std::int32_t p : {4, 8, 16, 33, 64, 128}) {
    const Pace tree = pace("tree", p);
    EXPECT_EQ(tree.per_slice, 1) << p;
    EXPECT_EQ(plan_time(samples::built("tree", p), 2, 100), tree.first_slice + 99) << p;
  }
  EXPECT_GT(pace("tree", 128).first_slice, pace("tree", 8).first_slice);
}

TEST(Pace, AHierarchyOfTreesTakesDepthPlusSlices) {
  const std::string trees = "hierarchical:form=leader:inner=tree:outer=tree:groups=";
  for (const char* groups : {"2x4", "4x4", "8x8", "8x16", "4+4+1"}) {
    const std::string name = trees + groups;
    const std::int32_t ranks = groups == std::string("2x4")    ? 8
                               : groups == std::string("4x4")  ? 16
                               : groups == std::string("8x8")  ? 64
                               : groups == std::string("8x16") ? 128
                                                               : 9;
    const Pace of_trees = pace(name, ranks);
    EXPECT_EQ(of_trees.per_slice, 1) << groups;
    EXPECT_GT(of_trees.first_slice, 8U) << groups;
  }
}

// Between levels: while one slice is between the groups, the next is inside them, so a slice costs
// the longest part and not the sum of the parts.
TEST(Pace, LevelsOverlap) {
  const Pace rails = pace("hierarchical:inner=ring:outer=ring:groups=4x4", 16);
  const double inner = 4, outer = 7;  // steps of a lane: s, and 2g - 1
  EXPECT_GE(rails.first_slice, static_cast<std::uint64_t>(inner + outer + inner - 2));
  EXPECT_LE(rails.per_slice, outer + 1);
}

// In both forms, with parts that are one lane each: depth + slices of the longest of these lanes.
TEST(Pace, ASliceOfAHierarchyCostsItsLongestLane) {
  for (const char* name : {"hierarchical", "hierarchical:form=leader"})
    for (const std::int32_t p : {4, 6, 8, 9, 16, 33, 64, 96, 128}) {
      std::size_t longest = 0;
      for (const RankProgram& program : samples::built(name, p).ranks)
        for (const Lane& lane : program.lanes) longest = std::max(longest, lane.steps.size());
      const Pace whole = pace(name, p);
      EXPECT_EQ(whole.per_slice, static_cast<double>(longest)) << name << " " << p;
      EXPECT_GT(whole.first_slice, longest) << name << " " << p;
    }
}

TEST(Pace, AStuckScheduleHasNone) {
  Schedule schedule = samples::built("ring", 3);
  schedule.ranks[1].lanes[0].steps.pop_back();
  EXPECT_FALSE(pace_of(schedule, 2));
  EXPECT_FALSE(pace_of(samples::built("ring", 3), 0));
}

}  // namespace
}  // namespace tutti
