// SPDX-License-Identifier: Apache-2.0
// Stores into slots, through the cache or around it: the choice, for times that are given; and
// exact results whichever way a message is stored.
#include "exec/store_gauge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "local_fabric.hpp"

namespace tutti::test {
namespace {

using Way = StoreGauge::Way;

struct Machine {
  double through = 0, around = 0;  // ns per byte
};
constexpr Machine kNear{0.04, 0.045}, kFar{0.25, 0.05};

// Returns how many of `messages` went around the cache.
int run(StoreGauge& gauge, const Machine& machine, int messages) {
  int around = 0;
  for (int i = 0; i < messages; ++i) {
    const StoreGauge::Turn turn = gauge.next();
    around += turn.way == Way::kAround ? 1 : 0;
    if (turn.timed)
      gauge.took(turn.way, turn.way == Way::kAround ? machine.around : machine.through);
  }
  return around;
}

constexpr int kBegin = StoreGauge::kFirstTurns;

TEST(StoreGauge, TriesBothWaysAndKeepsTheCheaper) {
  StoreGauge near, far;
  EXPECT_EQ(run(near, kNear, kBegin), kBegin / 2);
  EXPECT_EQ(run(far, kFar, kBegin), kBegin / 2);
  EXPECT_EQ(near.cheaper(), Way::kThrough);
  EXPECT_EQ(far.cheaper(), Way::kAround);
  // But for one trial each.
  EXPECT_EQ(run(near, kNear, StoreGauge::kTurnsPerTrial), 1);
  EXPECT_EQ(run(far, kFar, StoreGauge::kTurnsPerTrial), StoreGauge::kTurnsPerTrial - 1);
}

TEST(StoreGauge, PagesThatAreMetForTheFirstTimeSayNothing) {
  StoreGauge gauge;
  for (int i = 0; i < kBegin; ++i) {
    const StoreGauge::Turn turn = gauge.next();
    const double first = i < 2 ? 10 : 0;
    if (turn.timed) gauge.took(turn.way, 0.04 + first);
  }
  EXPECT_EQ(gauge.cheaper(), Way::kThrough);
}

TEST(StoreGauge, EverySlotIsMetForTheFirstTimeBeforeTurnsAreTimed) {
  constexpr std::uint32_t kSlots = 32;
  StoreGauge gauge(kSlots);
  for (std::uint32_t i = 0; i < kSlots; ++i) EXPECT_FALSE(gauge.next().timed) << i;
  for (std::uint32_t i = 0; i < StoreGauge::kTimedTurns; ++i) EXPECT_TRUE(gauge.next().timed) << i;
}

TEST(StoreGauge, NoticesThatTheCoresHaveMoved) {
  StoreGauge gauge;
  run(gauge, kNear, 1000);
  run(gauge, kFar, 2 * StoreGauge::kTurnsPerTrial);
  EXPECT_EQ(gauge.cheaper(), Way::kAround);
  run(gauge, kNear, StoreGauge::kTurnsPerTrial);
  EXPECT_EQ(gauge.cheaper(), Way::kThrough);
}

TEST(StoreGauge, ALostCoreChangesNothing) {
  StoreGauge gauge;
  run(gauge, kNear, kBegin);
  gauge.took(Way::kThrough, 100);
  EXPECT_EQ(gauge.cheaper(), Way::kThrough);
  StoreGauge far;
  run(far, kFar, kBegin);
  far.took(Way::kAround, 100);
  EXPECT_EQ(far.cheaper(), Way::kAround);
}

TEST(StoreGauge, AdvantageThatTheReaderLosesIsNone) {
  StoreGauge gauge;
  run(gauge, {0.06, 0.05}, 100);
  EXPECT_EQ(gauge.cheaper(), Way::kThrough);
}

class StoredSlots : public testing::TestWithParam<const char*> {};

TEST_P(StoredSlots, AreExactBothWays) {
  constexpr std::int32_t kRanks = 3;
  constexpr std::uint64_t kArena = 4 << 20, kCount = 1'200'007;  // odd, and many messages
  LocalFabric fabric(kRanks, kArena);
  const std::vector<Plan> plans = all_reduce_plans(
      GetParam(), kRanks,
      {.protocol = Protocol::kSlots, .slots = 2, .slot_bytes = 64 << 10, .arena_bytes = kArena});
  const auto executors = fabric.bind_all(plans);
  std::vector<std::vector<std::int32_t>> inputs(kRanks, std::vector<std::int32_t>(kCount)),
      outputs(kRanks, std::vector<std::int32_t>(kCount + 1, -7));
  std::vector<std::int32_t> want(kCount, 0);
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < kCount; ++i)
      want[i] += inputs[r][i] = static_cast<std::int32_t>(i * (r + 1) % 1013);
    const Call call{.collective = Collective::kAllReduce,
                    .input = inputs[r].data(),
                    .output = outputs[r].data() + r % 2,  // aligned, and not
                    .count = kCount,
                    .type = DataType::kInt32};
    ASSERT_TRUE(executors[r]->start({.call = &call,
                                     .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum),
                                     .operation = 1,
                                     .signature = 1001}));
  }
  while (!std::ranges::all_of(executors, [](const auto& e) { return e->done(); })) {
    bool moved = false;
    for (const auto& executor : executors) moved |= executor->advance();
    ASSERT_TRUE(moved);
  }
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_TRUE(std::equal(want.begin(), want.end(), outputs[r].begin() + r % 2)) << "rank " << r;
    const TrafficCounters& traffic = executors[r]->traffic();
    EXPECT_GT(traffic.around_bytes, 0u) << "rank " << r;
    EXPECT_LT(traffic.around_bytes, traffic.payload_bytes) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(, StoredSlots,
                         testing::Values("ring", "tree", "two_shot", "one_shot", "butterfly"));

// A call that runs as a straight line, as far as one thread's turns let it.
TEST(StraightSlots, AreExactBothWays) {
  constexpr std::int32_t kRanks = 2;
  constexpr std::uint64_t kArena = 1 << 20, kCount = 4096;
  LocalFabric fabric(kRanks, kArena);
  const std::vector<Plan> plans = all_reduce_plans(
      "butterfly", kRanks,
      {.protocol = Protocol::kSlots, .slots = 2, .slot_bytes = 64 << 10, .arena_bytes = kArena});
  const auto executors = fabric.bind_all(plans);
  std::vector<std::vector<std::int32_t>> inputs(kRanks), outputs(kRanks);
  std::vector<StraightLine> lines;
  std::vector<Call> calls(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    inputs[r].resize(kCount);
    outputs[r].resize(kCount);
    calls[r] = {.collective = Collective::kAllReduce,
                .input = inputs[r].data(),
                .output = outputs[r].data(),
                .count = kCount,
                .type = DataType::kInt32};
    lines.push_back(*executors[r]->straighten(
        {.call = &calls[r], .kernel = reduce_copy_kernel(DataType::kInt32, ReduceOp::kSum)}));
  }
  for (std::uint64_t operation = 1; operation <= 3 * StoreGauge::kFirstTurns; ++operation) {
    std::uint64_t whole = 0;
    for (std::size_t r = 0; r < kRanks; ++r)
      std::iota(inputs[r].begin(), inputs[r].end(), static_cast<std::int32_t>(operation * r));
    for (std::size_t r = 0; r < kRanks; ++r)
      whole += executors[r]->run(lines[r],
                                 {.input_base = calls[r].input_base(static_cast<Rank>(r)),
                                  .output_base = calls[r].output_base(static_cast<Rank>(r)),
                                  .operation = operation,
                                  .signature = 1001},
                                 1)
                   ? 1
                   : 0;
    EXPECT_EQ(whole, 1U);  // rank 0 has to wait
    while (!executors[0]->done()) ASSERT_TRUE(executors[0]->advance());
    for (const auto& output : outputs)
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(output[i], static_cast<std::int32_t>(2 * i + operation));
  }
  for (const auto& executor : executors) {
    EXPECT_GT(executor->traffic().around_bytes, 0U);
    EXPECT_LT(executor->traffic().around_bytes, executor->traffic().payload_bytes);
  }
}

}  // namespace
}  // namespace tutti::test
