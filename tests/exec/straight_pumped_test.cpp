// SPDX-License-Identifier: Apache-2.0
// Small calls whose messages are pumped, in one thread: run straight as far as the turns of the
// ranks and the looks let them, and then on the ordinary way, by turns with calls that begin there.
#include <gtest/gtest.h>

#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "local_fabric.hpp"
#include "pumped_fabric.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

struct PumpedCall : StraightCall {
  PumpedFabric& fabric;
  std::mt19937& random;
  int& entered;
  int& pumps_left;    // 0: the pump fails
  int& flushes_left;  // 0: nothing is left to send

  static void enter_call(const StraightCall& call) {
    ++static_cast<const PumpedCall&>(call).entered;
  }
  static bool pump_fabric(const StraightCall& call, bool over) {
    const auto& own = static_cast<const PumpedCall&>(call);
    if (own.pumps_left == 0) return false;
    --own.pumps_left;
    if (over && own.flushes_left > 0) --own.flushes_left;
    own.fabric.pump(own.random);
    return true;
  }
  static bool is_flushed(const StraightCall& call) {
    return static_cast<const PumpedCall&>(call).flushes_left == 0;
  }
};

struct Case {
  const char* algorithm;
  std::size_t ranks;
};
void PrintTo(const Case& it, std::ostream* out) { *out << it.algorithm << ' ' << it.ranks; }

class StraightPumped : public testing::TestWithParam<Case> {};

TEST_P(StraightPumped, AreExactWhereverTheyStop) {
  constexpr std::size_t kCount = 100;
  constexpr std::uint64_t kArenaBytes = 1 << 20;
  const std::size_t ranks = GetParam().ranks;
  std::mt19937 random(draw_seed());
  PumpedFabric fabric(kArenaBytes);
  const std::vector<Plan> plans = all_reduce_plans(
      GetParam().algorithm, static_cast<std::int32_t>(ranks),
      {.protocol = Protocol::kSlots, .slot_bytes = 4096, .arena_bytes = kArenaBytes});
  std::vector<std::unique_ptr<HostExecutor>> executors;
  for (const Plan& plan : plans) executors.push_back(fabric.bind(plan));
  std::vector<std::vector<std::int32_t>> inputs(ranks, std::vector<std::int32_t>(kCount)),
      outputs = inputs;
  const ReduceCopyFn sum = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum);
  std::vector<Call> calls;
  std::vector<StraightLine> lines;
  for (std::size_t r = 0; r < ranks; ++r) {
    calls.push_back({.collective = Collective::kAllReduce,
                     .input = inputs[r].data(),
                     .output = outputs[r].data(),
                     .count = kCount,
                     .type = DataType::kInt32});
    lines.push_back(*executors[r]->straighten({.call = &calls[r], .kernel = sum}, true));
    EXPECT_TRUE(lines[r].ops.empty()) << "rank " << r;
  }
  std::size_t whole = 0, failed = 0, unflushed = 0;
  for (std::uint64_t operation = 1; operation <= 300; ++operation) {
    for (std::size_t r = 0; r < ranks; ++r)
      std::iota(inputs[r].begin(), inputs[r].end(), static_cast<std::int32_t>(operation * r));
    for (std::size_t turn = 0; turn < ranks; ++turn) {
      const std::size_t r = (turn + operation) % ranks;
      if (random() % 3 == 0) {
        ASSERT_TRUE(executors[r]->start(
            {.call = &calls[r], .kernel = sum, .operation = operation, .signature = operation}));
        executors[r]->advance();
        continue;
      }
      int entered = 0, pumps_left = static_cast<int>(random() % 30),
          flushes_left = static_cast<int>(random() % 3);
      static constexpr StraightHooks kHooks{.enter = PumpedCall::enter_call,
                                            .pump = PumpedCall::pump_fabric,
                                            .flushed = PumpedCall::is_flushed};
      const PumpedCall call{{.hooks = kHooks,
                             .input_base = calls[r].input_base(static_cast<Rank>(r)),
                             .output_base = calls[r].output_base(static_cast<Rank>(r)),
                             .operation = operation,
                             .signature = operation},
                            fabric,
                            random,
                            entered,
                            pumps_left,
                            flushes_left};
      const bool through =
          executors[r]->run(lines[r], call, static_cast<std::uint32_t>(random() % 20));
      ASSERT_EQ(entered, 1);
      ASSERT_EQ(executors[r]->done() && flushes_left == 0, through) << "rank " << r;
      whole += through;
      failed += !through && pumps_left == 0;
      unflushed += !through && executors[r]->done();
    }
    while (!std::ranges::all_of(executors, [](const auto& e) { return e->done(); })) {
      fabric.pump(random);
      for (const auto& executor : executors)
        if (!executor->done()) executor->advance();
    }
    const auto all = static_cast<std::int32_t>(ranks);
    for (const auto& output : outputs)
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(output[i], all * static_cast<std::int32_t>(i) +
                                 all * (all - 1) / 2 * static_cast<std::int32_t>(operation))
            << operation;
  }
  EXPECT_GT(failed, 0U);
  if (ranks == 2) {  // of more, who comes last still lacks what others have yet to send
    EXPECT_GT(whole, 0U);
    EXPECT_GT(unflushed, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(, StraightPumped,
                         testing::Values(Case{"one_shot", 2}, Case{"butterfly", 2}, Case{"ring", 3},
                                         Case{"tree", 4}),
                         [](const auto& test) {
                           return std::string(test.param.algorithm) + "_p" +
                                  std::to_string(test.param.ranks);
                         });

}  // namespace
}  // namespace tutti::test
