// SPDX-License-Identifier: Apache-2.0
// The device form of plans: unrolled again it is the plan, and it does not grow with the ranks.
#include "device/encode.hpp"

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

Plan plan_of(const Algorithm& algorithm, std::int32_t ranks, Rank rank, std::uint32_t replicas) {
  auto plan =
      compile_plan(algorithm, {.collective = Collective::kAllReduce, .ranks = ranks},
                   {.replicas = replicas, .slot_bytes = 1024, .arena_bytes = 1 << 20}, rank);
  EXPECT_TRUE(plan) << plan.error().message;
  return *std::move(plan);
}

void expect_operand(const Plan& plan, const PlanOperand& want, const device::Operand& got,
                    std::uint32_t repetition) {
  EXPECT_EQ(want.kind, got.kind);
  const bool local = want.kind == OperandKind::kLocal;
  if (local || want.kind == OperandKind::kRemote) {
    EXPECT_EQ(want.buffer, got.buffer);
  }
  if (!local) {
    EXPECT_EQ(want.connection, got.connection);
  }
  const bool scratch = local && want.buffer == BufferKind::kScratch;
  const std::uint32_t modulus =
      scratch ? plan.shape.scratch_chunks * plan.shape.replicas : plan.shape.chunks;
  const device::Divisor spaces(std::max(modulus, 1U));
  ASSERT_EQ(want.span.count(), got.span.count());
  for (std::uint32_t k = 0; k < got.span.count(); ++k)
    ASSERT_EQ(want.span.at(k, modulus), device::chunk_at(got, repetition, k, spaces));
}

// Walks the loops of a lane beside the plan's steps.
void expect_lane(const Plan& plan, const device::Program& program, std::size_t index) {
  const PlanLane& want = plan.lanes[index];
  const device::Lane& lane = program.lanes[index];
  EXPECT_EQ(want.replica, lane.replica);
  ASSERT_EQ(want.steps, lane.steps);
  std::uint32_t at = want.first_step;
  for (std::uint32_t l = 0; l < lane.loops; ++l) {
    const device::Loop& loop = program.loops[lane.first_loop + l];
    for (std::uint32_t repetition = 0; repetition < loop.repetitions; ++repetition)
      for (std::uint32_t i = 0; i < loop.steps; ++i, ++at) {
        ASSERT_LT(at, want.first_step + want.steps);
        const PlanStep& step = plan.steps[at];
        const device::Step& got = program.steps[loop.first_step + i];
        ASSERT_EQ(step.destinations, got.destinations);
        ASSERT_EQ(step.sources, got.sources);
        ASSERT_EQ(step.waits, got.waits);
        EXPECT_EQ(step.finish, got.finish);
        for (std::uint32_t o = 0; o < std::uint32_t{step.destinations} + step.sources; ++o)
          expect_operand(plan, plan.operands[step.first_operand + o],
                         program.operands[got.first_operand + o], repetition);
        for (std::uint32_t w = 0; w < step.waits; ++w) {
          const device::LoopWait& wait = program.waits[got.first_wait + w];
          Wait unrolled = wait.wait;
          unrolled.step += wait.advance * repetition;
          EXPECT_EQ(plan.waits[step.first_wait + w], unrolled);
        }
      }
  }
  EXPECT_EQ(at, want.first_step + want.steps);
}

TEST(Encode, UnrolledItIsThePlan) {
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t ranks : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33})
      for (const std::uint32_t replicas : {1u, 2u})
        for (const Rank rank : {0, ranks / 2, ranks - 1}) {
          SCOPED_TRACE(std::string(algorithm->name) + " rank " + std::to_string(rank) + " of " +
                       std::to_string(ranks));
          const Plan plan = plan_of(*algorithm, ranks, rank, replicas);
          const auto program = device::encode_program(plan);
          ASSERT_TRUE(program) << program.error().message;
          ASSERT_EQ(plan.lanes.size(), program->lanes.size());
          for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane)
            expect_lane(plan, *program, lane);
          if (HasFailure()) return;
        }
}

TEST(Encode, ARingIsAsLongAmong64RanksAsAmong8) {
  const Algorithm& ring = **find_algorithm("ring");
  const auto small = device::encode_program(plan_of(ring, 8, 3, 1));
  const auto large = device::encode_program(plan_of(ring, 64, 3, 1));
  ASSERT_TRUE(small);
  ASSERT_TRUE(large);
  EXPECT_EQ(small->bytes(), large->bytes());
  EXPECT_LT(large->steps.size(), 8U);
}

TEST(Encode, RefusesStepsOfTooManyOperands) {
  const auto program = device::encode_program(plan_of(**find_algorithm("one_shot"), 300, 0, 1));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, Code::kNotSupported);
  EXPECT_EQ(
      program.error().message,
      "one_shot among 300 ranks has steps with 300 operands, but a device block holds 256; use "
      "another algorithm");
}

}  // namespace
}  // namespace tutti::test
