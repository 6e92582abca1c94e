// SPDX-License-Identifier: Apache-2.0
#include "schedule/unroll.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "samples.hpp"
#include "schedule/passes.hpp"
#include "schedule/space_time.hpp"

namespace tutti {
namespace {

using namespace operands;

Schedule one_rank(ScheduleShape shape, std::vector<LaneBuilder> lanes) {
  Schedule schedule;
  schedule.shape = std::move(shape);
  schedule.ranks.push_back(assemble(lanes));
  return schedule;
}

TEST(Unroll, OneSliceOfOneReplicaIsTheSchedule) {
  for (const Algorithm* algorithm : all_algorithms()) {
    const Schedule schedule = samples::built(algorithm->name, 5);
    const Result<Schedule> unrolled = unroll(schedule, 1);
    ASSERT_TRUE(unrolled);
    EXPECT_EQ(unrolled->shape, schedule.shape);
    EXPECT_EQ(*unrolled, schedule) << algorithm->name;
  }
}

// A span of slice s names exactly the s-th slices of the original's chunks, in order.
TEST(Unroll, SpansNameTheSlicesOfTheirChunks) {
  constexpr std::uint32_t kSlices = 3;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Schedule schedule = samples::RandomSchedule(seed).make();
    const Result<Schedule> unrolled = unroll(schedule, kSlices);
    ASSERT_TRUE(unrolled) << unrolled.error().message;
    ASSERT_EQ(unrolled->shape.chunks, schedule.shape.chunks * kSlices);
    const std::vector<Step>& steps = schedule.ranks[0].lanes[0].steps;
    const std::vector<Step>& many = unrolled->ranks[0].lanes[0].steps;
    ASSERT_EQ(many.size(), steps.size() * kSlices);
    for (std::size_t i = 0; i < many.size(); ++i)
      for (std::size_t o = 0; o < many[i].sources.size(); ++o) {
        const Operand &was = steps[i % steps.size()].sources[o], &is = many[i].sources[o];
        if (was.kind == OperandKind::kLocal && was.buffer == BufferKind::kScratch) continue;
        ASSERT_EQ(is.span.count(), was.span.count());
        const auto slice = static_cast<std::uint32_t>(i / steps.size());
        for (std::uint32_t k = 0; k < was.span.count(); ++k)
          ASSERT_EQ(is.span.at(k, unrolled->shape.chunks),
                    was.span.at(k, schedule.shape.chunks) * kSlices + slice);
      }
  }
}

TEST(Unroll, WaitsPointIntoTheSliceTheyMean) {
  LaneBuilder a("a"), b("b");
  a.step().to(output(chunk(0))).from(input(chunk(0))).after(1, 1);
  a.step().to(output(chunk(0))).from(input(chunk(0))).after(1, 0, 2);
  for (int i = 0; i < 3; ++i) b.step().to(output(chunk(0))).from(input(chunk(0)));
  const Schedule schedule = one_rank({.algorithm = "made"}, {a, b});
  const Result<Schedule> unrolled = unroll(schedule, 4);
  ASSERT_TRUE(unrolled);
  const std::vector<Step>& steps = unrolled->ranks[0].lanes[0].steps;
  ASSERT_EQ(steps.size(), 8U);
  EXPECT_EQ(steps[4].waits, (std::vector<Wait>{{1, 2 * 3 + 1, 0}}));  // slice 2: b's step 1 there
  EXPECT_EQ(steps[3].waits, std::vector<Wait>{});                     // slice 1: two before is none
  EXPECT_EQ(steps[7].waits, (std::vector<Wait>{{1, 1 * 3 + 0, 0}}));  // slice 3: b's in slice 1
}

TEST(Unroll, ReplicasTakeTheirSlicesAndBecomePlainLanes) {
  const Schedule schedule = replicate(samples::built("ring", 3), 2);
  const Result<Schedule> unrolled = unroll(schedule, 5);
  ASSERT_TRUE(unrolled);
  EXPECT_EQ(unrolled->shape.replicas, 1U);
  EXPECT_EQ(unrolled->shape.tags, 2U);
  const std::vector<Lane>& lanes = unrolled->ranks[1].lanes;
  ASSERT_EQ(lanes.size(), 2U);
  EXPECT_EQ(lanes[0].steps.size(), 3U * 5);  // slices 0, 2, 4 of 5 steps
  EXPECT_EQ(lanes[1].steps.size(), 2U * 5);  // slices 1, 3
  EXPECT_EQ(lanes[1].replica, 0U);
  EXPECT_EQ(lanes[1].steps[0].sources[0].span, (Span{.first = 1 * 5 + 1}));
}

TEST(Unroll, ReplicasWithoutASliceVanish) {
  const Schedule tree = samples::built("tree", 6);
  const Result<Schedule> two = unroll(replicate(tree, 3), 2);
  ASSERT_TRUE(two);
  const Result<Schedule> expected = unroll(replicate(tree, 2), 2);
  ASSERT_TRUE(expected);
  EXPECT_EQ(two->ranks, expected->ranks);
  EXPECT_EQ(two->shape.max_incoming, expected->shape.max_incoming);
  EXPECT_EQ(two->shape.max_per_pair, expected->shape.max_per_pair);
}

TEST(Unroll, ScratchRoomsOfAllVersionsAndReplicasAreApart) {
  LaneBuilder lane("a");
  lane.step().to(scratch(chunk(1))).from(input(chunk(0)));
  const Schedule schedule =
      one_rank({.algorithm = "made", .scratch_chunks = 2, .scratch_versions = 3}, {lane});
  const Result<Schedule> unrolled = unroll(replicate(schedule, 2), 6);
  ASSERT_TRUE(unrolled);
  EXPECT_EQ(unrolled->shape.scratch_chunks, 2U * 3 * 2);
  std::vector<std::uint32_t> rooms;
  for (const Lane& l : unrolled->ranks[0].lanes)
    for (const Step& step : l.steps) {
      EXPECT_LT(step.destinations[0].span.first, unrolled->shape.scratch_chunks);
      rooms.push_back(step.destinations[0].span.first);
    }
  std::sort(rooms.begin(), rooms.end());
  EXPECT_EQ(std::unique(rooms.begin(), rooms.end()), rooms.end());
}

TEST(Unroll, RefusesWhatItCannotWrite) {
  const Schedule ring = samples::built("ring", 3);
  EXPECT_EQ(unroll(ring, 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(unroll(ring, 2'000'000'000).error().code, Code::kNotSupported);
  LaneBuilder lane("a");
  lane.step().to(output({0, 2, 4, 2})).from(input({0, 2, 4, 2}));
  const Schedule both = one_rank({.algorithm = "made", .chunks = 8}, {lane});
  EXPECT_EQ(unroll(both, 2).error().code, Code::kNotSupported);
}

// Depth tells why replicate exists: one lane alone runs its slices one after the other.
TEST(Unroll, ReplicasOverlapSlicesWhereOneLaneDoesNot) {
  const Schedule ring = samples::built("ring", 4);
  const SpaceTime alone = space_time(*unroll(ring, 4));
  const SpaceTime two = space_time(*unroll(replicate(ring, 2), 4));
  EXPECT_EQ(alone.depth, 4U * 7 - 1);
  EXPECT_EQ(two.depth, 2U * 7 - 1);
  EXPECT_EQ(alone.stuck_steps + two.stuck_steps, 0U);
}

}  // namespace
}  // namespace tutti
