// SPDX-License-Identifier: Apache-2.0
// Small calls of single cells, in one thread: run straight as far as the turns of the ranks let
// them, and then on the ordinary way, by turns with calls that begin there.
#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "local_fabric.hpp"

namespace tutti::test {
namespace {

// A call enters once, wherever it stops, and when it has sent what needs no message.
struct CountedCall : StraightCall {
  const StraightLine& line;
  int& entered;
  std::uint64_t& sent;  // until then, in this call and those before

  static std::uint64_t sent_on(const StraightLine& line) {
    std::uint64_t sent = 0;
    for (const CellOp& op : line.ops)
      if (op.kind == CellOp::kSend) sent += op.state->next;
    return sent;
  }
  static void count(const StraightCall& call) {
    const auto& counted = static_cast<const CountedCall&>(call);
    ++counted.entered;
    counted.sent = sent_on(counted.line);
  }
};

class StraightCells : public testing::TestWithParam<const char*> {};

TEST_P(StraightCells, AreExactWhereverTheyStop) {
  constexpr std::size_t kRanks = 4, kCount = 100;
  LocalFabric fabric(kRanks, 1 << 20);
  const std::vector<Plan> plans =
      all_reduce_plans(GetParam(), kRanks, {.protocol = Protocol::kFlagged, .slots = 4});
  const auto executors = fabric.bind_all(plans);
  std::vector<std::vector<std::int32_t>> inputs(kRanks, std::vector<std::int32_t>(kCount)),
      outputs = inputs;
  const ReduceCopyFn sum = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum);
  std::vector<Call> calls;
  std::vector<StraightLine> lines;
  for (std::size_t r = 0; r < kRanks; ++r) {
    calls.push_back({.collective = Collective::kAllReduce,
                     .input = inputs[r].data(),
                     .output = outputs[r].data(),
                     .count = kCount,
                     .type = DataType::kInt32});
    lines.push_back(*executors[r]->straighten({.call = &calls[r], .kernel = sum}));
    EXPECT_FALSE(lines[r].ops.empty()) << "rank " << r;
  }
  std::size_t whole = 0, stopped = 0;
  for (std::uint64_t operation = 1; operation <= 120; ++operation) {
    for (std::size_t r = 0; r < kRanks; ++r)
      std::iota(inputs[r].begin(), inputs[r].end(), static_cast<std::int32_t>(operation * r));
    for (std::size_t turn = 0; turn < kRanks; ++turn) {
      const std::size_t r = (turn + operation) % kRanks;
      if ((operation / 4 + r) % 3 == 0) {
        ASSERT_TRUE(executors[r]->start(
            {.call = &calls[r], .kernel = sum, .operation = operation, .signature = operation}));
        executors[r]->advance();
        continue;
      }
      int entered = 0;
      const std::uint64_t sent_before = CountedCall::sent_on(lines[r]);
      std::uint64_t sent = sent_before;
      static constexpr StraightHooks kHooks{.enter = CountedCall::count};
      const CountedCall call{{.hooks = kHooks,
                              .input_base = calls[r].input_base(static_cast<Rank>(r)),
                              .output_base = calls[r].output_base(static_cast<Rank>(r)),
                              .operation = operation,
                              .signature = operation},
                             lines[r],
                             entered,
                             sent};
      const bool through = executors[r]->run(lines[r], call, 0);
      ++(through ? whole : stopped);
      ASSERT_EQ(entered, 1) << "rank " << r << (through ? "" : " stopped");
      if (through && lines[r].ops.front().kind == CellOp::kSend) {
        ASSERT_GT(sent, sent_before) << "rank " << r;
      }
    }
    while (!std::ranges::all_of(executors, [](const auto& e) { return e->done(); })) {
      bool moved = false;
      for (const auto& executor : executors) moved |= executor->advance();
      ASSERT_TRUE(moved) << "operation " << operation;
    }
    for (const auto& output : outputs)
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(output[i], static_cast<std::int32_t>(4 * i + 6 * operation)) << operation;
  }
  // In these turns a tree's root is never the last.
  EXPECT_TRUE(whole > 0 || std::string_view(GetParam()) == "tree");
  EXPECT_GT(stopped, 0U);
}

INSTANTIATE_TEST_SUITE_P(, StraightCells, testing::Values("one_shot", "butterfly", "tree"));

}  // namespace
}  // namespace tutti::test
