// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes.hpp"

#include <gtest/gtest.h>

#include "samples.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

TEST(Replicate, OnceIsTheIdentity) {
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t ranks : {1, 2, 3, 8, 13}) {
      const Schedule schedule = samples::built(algorithm->name, ranks);
      EXPECT_EQ(replicate(schedule, 1), schedule) << algorithm->name << " " << ranks;
    }
}

TEST(Replicate, OneRankAloneIsWhatTheWholeHas) {
  const Schedule schedule = samples::built("tree", 9);
  const Schedule whole = replicate(schedule, 3);
  EXPECT_EQ(whole.shape, replicate_shape(schedule.shape, 3));
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
    EXPECT_EQ(whole.ranks[r], replicate_program(schedule.shape, schedule.ranks[r], 3));
}

TEST(Replicate, MultipliesConnectionsAndNothingElse) {
  ScheduleShape expected = samples::built("tree", 9).shape;
  const ScheduleShape shape = replicate_shape(expected, 3);
  expected.replicas = 3;
  expected.max_incoming = 12;
  expected.max_per_pair = 6;
  EXPECT_EQ(shape, expected);
}

// Undoing what replica j was given gives back the original, for schedules with every kind of
// operand, waits and scratch.
TEST(Replicate, EveryReplicaIsTheOriginalMoved) {
  constexpr std::uint32_t kReplicas = 3;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Schedule schedule = samples::RandomSchedule(seed).make();
    const Schedule whole = replicate(schedule, kReplicas);
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      const std::vector<Lane>& original = schedule.ranks[r].lanes;
      const std::vector<Lane>& lanes = whole.ranks[r].lanes;
      ASSERT_EQ(lanes.size(), original.size() * kReplicas);
      for (std::size_t i = 0; i < lanes.size(); ++i) {
        const auto j = static_cast<std::uint32_t>(i / original.size());
        Lane back = lanes[i];
        ASSERT_EQ(back.replica, j);
        ASSERT_EQ(back.name, original[i % original.size()].name + "#" + std::to_string(j));
        back.name = original[i % original.size()].name;
        back.replica = 0;
        for (Step& step : back.steps) {
          for (std::vector<Operand>* operands : {&step.destinations, &step.sources})
            for (Operand& operand : *operands) {
              if (operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv) {
                ASSERT_EQ(operand.tag / schedule.shape.tags, j);
                operand.tag = static_cast<Tag>(operand.tag % schedule.shape.tags);
              } else if (operand.buffer == BufferKind::kScratch) {
                ASSERT_EQ(operand.span.first / schedule.shape.scratch_chunks, j);
                operand.span.first %= schedule.shape.scratch_chunks;
              }
            }
          for (Wait& wait : step.waits) {
            ASSERT_EQ(wait.lane / original.size(), j);
            ASSERT_EQ(lanes[wait.lane].replica, j);
            wait.lane %= static_cast<std::uint32_t>(original.size());
          }
        }
        ASSERT_EQ(back, original[i % original.size()]);
      }
    }
  }
}

TEST(RankOrder, TakesEachRankOnce) {
  const RankOrder order = *RankOrder::make({2, 0, 1});
  EXPECT_EQ(order.rank_at(0), 2);
  EXPECT_EQ(order.place_of(2), 0);
  EXPECT_EQ(order.place_of(1), 2);
  EXPECT_TRUE(RankOrder::make({0, 1, 2})->is_by_number());
  EXPECT_EQ(RankOrder().rank_at(7), 7);
  for (const auto& wrong : {std::vector<Rank>{0, 0}, {0, 2}, {-1, 0}})
    EXPECT_EQ(RankOrder::make(wrong).error().code, Code::kInvalidArgument);
}

TEST(Reorder, ByNumberIsTheIdentity) {
  const Schedule schedule = samples::built("tree", 9);
  EXPECT_EQ(reorder(schedule, RankOrder()), schedule);
}

// The root of a collective that has one goes to the rank at its place, and the verifier looks
// there.
TEST(Reorder, RootsMove) {
  const RankOrder order = *RankOrder::make({3, 1, 0, 2});
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    const Algorithm& butterfly = **find_algorithm("butterfly");
    const Schedule moved =
        reorder(*build_schedule(butterfly, {.collective = collective, .ranks = 4}), order);
    EXPECT_EQ(moved.shape.root, 3);
    EXPECT_TRUE(verify(moved));
    Schedule wrong = moved;
    wrong.shape.root = 0;
    EXPECT_FALSE(verify(wrong));
  }
}

// Sums in the order of ranks' numbers are in the order of places afterwards; the proof says so.
TEST(Reorder, LosesRankOrderAndNothingElse) {
  const Schedule schedule = samples::built("one_shot", 5);
  const Proof before = *verify(schedule);
  const Proof after = *verify(reorder(schedule, *RankOrder::make({4, 2, 0, 1, 3})));
  EXPECT_TRUE(before.in_rank_order);
  EXPECT_FALSE(after.in_rank_order);
  EXPECT_EQ(after.max_roundings, before.max_roundings);
  EXPECT_EQ(after.depth, before.depth);
}

}  // namespace
}  // namespace tutti
