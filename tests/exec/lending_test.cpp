// SPDX-License-Identifier: Apache-2.0
// Messages that are sent from the user's memory, and received there: nothing writes to what is lent
// before the transport has taken it, however late that is, and a call ends no earlier; nothing
// reads what is offered before its message is there, and the transport writes nowhere that is still
// read.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "pumped_fabric.hpp"
#include "schedule/builder.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kSlotBytes = (128 << 10) + kSlotHeaderBytes;
constexpr std::uint64_t kArenaBytes = 8 << 20;
// Of several slices, and of one, in which the chunks of a message may lie one behind the other.
constexpr std::uint64_t kManySlices = 200'003, kOneSlice = 24'000;
constexpr std::uint32_t kSeed = 20'261'122;

struct Case {
  const Algorithm* algorithm;
  std::int32_t ranks;
  bool in_place;
  std::uint64_t count;
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::string name(info.param.algorithm->name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  return name + "_p" + std::to_string(info.param.ranks) + (info.param.in_place ? "_in_place" : "") +
         (info.param.count == kOneSlice ? "_one_slice" : "");
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t ranks : {2, 3, 4, 8})
      for (const bool in_place : {false, true})
        for (const std::uint64_t count : {kManySlices, kOneSlice})
          cases.push_back({algorithm, ranks, in_place, count});
  return cases;
}

class Lending : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto [algorithm, ranks, in_place, count] = GetParam();
    for (Rank r = 0; r < ranks; ++r)
      plans_.push_back(*compile_plan(
          *algorithm, {.collective = Collective::kAllReduce, .ranks = ranks},
          {.protocol = Protocol::kSlots, .slot_bytes = kSlotBytes, .arena_bytes = kArenaBytes}, r));
    for (const Plan& plan : plans_) executors_.push_back(fabric_.bind(plan));
    want_.assign(count, 0);
    for (std::size_t r = 0; r < plans_.size(); ++r) {
      inputs_.emplace_back(count);
      for (std::int32_t& value : inputs_.back()) value = static_cast<std::int32_t>(random_() % 999);
      for (std::size_t i = 0; i < count; ++i) want_[i] += inputs_.back()[i];
      outputs_.emplace_back(count, -7);
    }
  }
  [[nodiscard]] std::vector<std::int32_t>& result(std::size_t rank) {
    return GetParam().in_place ? inputs_[rank] : outputs_[rank];
  }
  void start(bool lend) {
    for (std::size_t r = 0; r < executors_.size(); ++r) {
      const Call call{.collective = Collective::kAllReduce,
                      .input = inputs_[r].data(),
                      .output = result(r).data(),
                      .count = GetParam().count,
                      .type = DataType::kInt32};
      ASSERT_TRUE(
          executors_[r]->start({.call = &call,
                                .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum),
                                .operation = 1,
                                .signature = 9,
                                .lend_input = lend,
                                .lend_output = lend}));
    }
  }
  // In a random order of ranks and arrivals. What was done is overwritten at once.
  void run() {
    std::vector<bool> checked(executors_.size());
    for (int turns = 0; std::ranges::find(checked, false) != checked.end(); ++turns) {
      ASSERT_LT(turns, 3'000'000) << "nobody moves any more";
      const std::size_t r = random_() % executors_.size();
      executors_[r]->advance();
      fabric_.pump(random_);
      ASSERT_FALSE(fabric_.wrote_lent()) << "seed " << kSeed;
      if (checked[r] || !executors_[r]->done()) continue;
      checked[r] = true;
      ASSERT_EQ(result(r), want_) << "rank " << r << ", seed " << kSeed;
      std::ranges::fill(inputs_[r], -1);
      std::ranges::fill(outputs_[r], -1);
    }
  }
  [[nodiscard]] TrafficCounters traffic() const {
    TrafficCounters sum;
    for (const auto& executor : executors_) sum += executor->traffic();
    return sum;
  }

  std::mt19937 random_{kSeed};
  PumpedFabric fabric_{kArenaBytes};
  std::vector<Plan> plans_;
  std::vector<std::unique_ptr<HostExecutor>> executors_;
  std::vector<std::vector<std::int32_t>> inputs_, outputs_;
  std::vector<std::int32_t> want_;
};

// Do the chunks lie one behind the other? In slices, those of one chunk alone do.
bool in_one_piece(const Span& span, const Plan& plan, std::uint64_t count) {
  if (span.count() == 1) return true;
  const bool ascends = span.repetitions == 1 || span.stride == span.run;
  return ascends && span.first + span.count() <= plan.shape.chunks &&
         plan.slices_for(count, sizeof(std::int32_t)) == 1;
}

// How large the step's messages are, nearly.
std::uint64_t message_bytes(const Plan& plan, const PlanStep& step, std::uint64_t count) {
  return plan.operands[step.first_operand].span.count() *
         (count / plan.shape.chunks * sizeof(std::int32_t) /
          plan.slices_for(count, sizeof(std::int32_t)));
}

bool in_users_memory(const PlanOperand& operand, const Plan& plan, std::uint64_t count) {
  return operand.kind == OperandKind::kLocal && operand.buffer != BufferKind::kScratch &&
         in_one_piece(operand.span, plan, count);
}

struct Operands {
  std::span<const PlanOperand> written, read;
};
Operands operands_of(const Plan& plan, const PlanStep& step) {
  const PlanOperand* const first = &plan.operands[step.first_operand];
  return {{first, step.destinations}, {first + step.destinations, step.sources}};
}

// Has any rank a message that lies in one piece of the user's memory?
bool any_to_lend(const std::vector<Plan>& plans, std::uint64_t count) {
  for (const Plan& plan : plans) {
    const auto may_lend = [&](const PlanOperand& operand) {
      return in_users_memory(operand, plan, count);
    };
    for (const PlanStep& step : plan.steps) {
      const auto [written, read] = operands_of(plan, step);
      const bool sends =
          std::ranges::find(written, OperandKind::kSend, &PlanOperand::kind) != written.end();
      const bool large = message_bytes(plan, step, count) >= kLeastLentBytes;
      const bool copies = step.sources == 1 && may_lend(read[0]);
      if (sends && large && (copies || std::ranges::any_of(written, may_lend))) return true;
    }
  }
  return false;
}

// Has any rank a step that copies a message to one piece of the output?
bool any_to_offer(const std::vector<Plan>& plans, std::uint64_t count) {
  for (const Plan& plan : plans)
    for (const PlanStep& step : plan.steps) {
      const auto [written, read] = operands_of(plan, step);
      const bool large = message_bytes(plan, step, count) >= kLeastOfferedBytes;
      const bool copies = step.sources == 1 && read[0].kind == OperandKind::kRecv;
      const auto takes = [&](const PlanOperand& operand) {
        return in_users_memory(operand, plan, count);
      };
      if (large && copies && std::ranges::any_of(written, takes)) return true;
    }
  return false;
}

TEST_P(Lending, WhatIsLentOrReceivedInPlaceArrivesAsItWas) {
  start(true);
  run();
  EXPECT_EQ(traffic().lent_bytes > 0, any_to_lend(plans_, GetParam().count));
  EXPECT_EQ(traffic().placed_bytes > 0, any_to_offer(plans_, GetParam().count));
}

TEST_P(Lending, NothingIsLentUnasked) {
  start(false);
  run();
  EXPECT_EQ(traffic().lent_bytes, 0u);
  EXPECT_EQ(traffic().placed_bytes > 0, any_to_offer(plans_, GetParam().count));
}

// Rank 1 sends its data to rank 0 and receives the sum, which is ordered after that by nothing but
// the messages: it looks for the sum before it sends.
class ThereAndBack final : public Algorithm {
 public:
  ThereAndBack() : Algorithm("there_and_back", "", "") {}
  [[nodiscard]] bool supports(const Problem& problem) const override { return problem.ranks == 2; }
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .chunks = 1,
            .max_incoming = 1,
            .max_per_pair = 1};
  }
  [[nodiscard]] RankProgram program(const Problem& /*problem*/, Rank rank) const override {
    using namespace operands;
    const auto all = chunk(0);
    LaneBuilder first("first"), second("second");
    if (rank == 0) {
      first.step()
          .to(output(all))
          .to(send(1, 0, all))
          .from(input(all))
          .from(recv(1, 0, all))
          .finish();
      return assemble(std::move(first));
    }
    first.step().to(output(all)).from(recv(0, 0, all));
    second.step().to(send(0, 0, all)).from(input(all));
    return assemble({std::move(first), std::move(second)});
  }
};

// In place, rank 1 lends what it has offered before. The sum comes while that is lent still.
TEST(LendingOffered, TheTransportDoesNotWriteWhereItMayRead) {
  const ThereAndBack algorithm;
  PumpedFabric fabric(kArenaBytes);
  std::vector<Plan> plans;
  std::vector<std::unique_ptr<HostExecutor>> executors;
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(kOneSlice, 5));
  for (Rank r = 0; r < 2; ++r)
    plans.push_back(*compile_plan(
        algorithm, {.collective = Collective::kAllReduce, .ranks = 2},
        {.protocol = Protocol::kSlots, .slot_bytes = kSlotBytes, .arena_bytes = kArenaBytes}, r));
  for (std::size_t r = 0; r < 2; ++r) {
    executors.push_back(fabric.bind(plans[r]));
    const Call call{.collective = Collective::kAllReduce,
                    .input = data[r].data(),
                    .output = data[r].data(),
                    .count = kOneSlice,
                    .type = DataType::kInt32};
    ASSERT_TRUE(executors[r]->start({.call = &call,
                                     .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum),
                                     .operation = 1,
                                     .signature = 9,
                                     .lend_input = true,
                                     .lend_output = true}));
  }
  executors[1]->advance();
  fabric.carry_all();
  executors[0]->advance();
  fabric.carry_all();
  EXPECT_FALSE(fabric.wrote_lent());
  executors[1]->advance();
  EXPECT_EQ(executors[1]->blocked_on(), 0) << "it has what it lent to let go";
  fabric.let_go_all();
  executors[1]->advance();
  EXPECT_TRUE(executors[1]->done());
  EXPECT_EQ(executors[1]->traffic().lent_bytes, kOneSlice * sizeof(std::int32_t));
  EXPECT_EQ(executors[1]->traffic().placed_bytes, 0u);
  EXPECT_EQ(data[1], std::vector<std::int32_t>(kOneSlice, 10));
}

INSTANTIATE_TEST_SUITE_P(All, Lending, testing::ValuesIn(all_cases()), name_of_case);

}  // namespace
}  // namespace tutti::test
