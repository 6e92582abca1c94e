// SPDX-License-Identifier: Apache-2.0
// What the interpreter costs, counted in the emulation: barriers, fences and loads one after
// another, of the thread that has most, from the launch to its end. And the arithmetic that needs
// no division, against the one that does.
#include <gmock/gmock.h>

#include <random>

#include "kernels/device/folds.hpp"
#include "lane_job.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using device::Messages;
using IntSum = device::Fold<device::Integer<std::int32_t>, device::Sum>;

PlanOptions direct_options(std::uint64_t slice_bytes) {
  PlanOptions options = options_for(Messages::kCells);
  options.protocol = Protocol::kDirect;
  options.slot_bytes = slice_bytes;
  return options;
}

// Of an all-reduce of `count` numbers, after the first, which waits for the carve and has no
// credits to look for.
Costs costs_of(LaneJob& job, std::uint64_t count, std::uint32_t threads, std::uint64_t slices = 0) {
  std::vector<std::vector<std::int32_t>> inputs(job.ranks(), std::vector<std::int32_t>(count, 1));
  std::vector<std::vector<std::int32_t>> outputs = inputs;
  std::vector<DeviceRank::Call> calls(job.ranks());
  for (std::size_t r = 0; r < job.ranks(); ++r)
    calls[r] = {
        .input = inputs[r].data(), .output = outputs[r].data(), .count = count, .slices = slices};
  job.run<IntSum>({.threads = threads}, calls);
  Costs most;
  for (int i = 0; i < 3; ++i) most.take_most(job.run<IntSum>({.threads = threads}, calls));
  for (const auto& output : outputs)
    EXPECT_THAT(output, testing::Each(static_cast<std::int32_t>(job.ranks())));
  return most;
}

// One barrier after the part of the program is taken, two steps of one before and one after, the
// last look. One fence before the rank is done, and for LL8 one before the credits. LL128 loads the
// lines of up to four sources once more after their flags: twice here.
TEST(LaneCosts, OneShotOfPacketsAmongEightRanks) {
  for (const Messages messages : {Messages::kLl8, Messages::kLl16, Messages::kLl128}) {
    LaneJob job(**find_algorithm("one_shot"), 8, messages, options_for(messages));
    // For each operand the threads of a line, or one.
    const bool lines = messages == Messages::kLl128;
    const Costs costs = costs_of(job, 16, lines ? 64 : 16);
    EXPECT_LE(costs.barriers, 6U) << static_cast<int>(messages);
    EXPECT_LE(costs.fences, messages == Messages::kLl8 ? 2U : 1U);
    EXPECT_LE(costs.loads, lines ? 14U : 12U);
    EXPECT_GE(costs.loads, 5U) << "nothing was counted";
  }
}

// Where four slots hold what two operations send, no step needs a fence.
TEST(LaneCosts, TwoShotOfPacketsAmongEightRanks) {
  for (const std::uint32_t slots : {2U, 4U}) {
    PlanOptions options = options_for(Messages::kLl16);
    options.slots = slots;
    LaneJob job(**find_algorithm("two_shot"), 8, Messages::kLl16, options);
    const Costs costs = costs_of(job, 16, 16);
    EXPECT_EQ(costs.fences, slots == 2 ? 9U : 1U);
  }
}

// A message is given, taken and its credit given back behind one fence a step.
TEST(LaneCosts, AStepOfSlotsHasOneFence) {
  for (const std::int32_t ranks : {2, 4, 8}) {
    LaneJob job(**find_algorithm("ring"), ranks, Messages::kSlots, options_for(Messages::kSlots));
    const auto steps = static_cast<std::uint64_t>(job.rank(0).plan().steps.size());
    const Costs costs = costs_of(job, 64, 2);
    EXPECT_LE(costs.fences, steps + 1) << ranks;
    EXPECT_LE(costs.barriers, 2 * steps + 2) << ranks;
  }
}

// Whatever the bytes of a slice: what is copied or read from a peer's memory is not cut.
TEST(LaneCosts, BarriersOfDirectPlansDoNotGrowWithBytes) {
  for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
    for (const std::int32_t ranks : {2, 4, 8}) {
      LaneJob job(*algorithm, ranks, Messages::kCells, direct_options(1 << 20));
      const Costs small = costs_of(job, 1000, 2), large = costs_of(job, 200'000, 2);
      EXPECT_EQ(small.barriers, large.barriers) << algorithm->name << " among " << ranks;
      EXPECT_EQ(small.fences, large.fences) << algorithm->name << " among " << ranks;
    }
}

// Two signals sent and two heard, each behind one fence, and the end: what is stored in between is
// made visible by the signal that follows.
TEST(LaneCosts, StoresIntoPeersHaveNoFenceOfTheirOwn) {
  for (const std::int32_t ranks : {2, 4, 8}) {
    LaneJob job(**find_algorithm("two_shot:access=store"), ranks, Messages::kCells,
                direct_options(1 << 20));
    const Costs costs = costs_of(job, 10'000, 2);
    EXPECT_LE(costs.fences, 5U) << ranks;
    EXPECT_LE(costs.barriers, 2U * 5 + 2) << ranks;
  }
}

TEST(LaneCosts, BarriersAreTwoAStepAndSlice) {
  LaneJob job(**find_algorithm("two_shot"), 4, Messages::kSlots, options_for(Messages::kSlots));
  std::uint64_t steps = 0;
  for (std::size_t rank = 0; rank < 4; ++rank)
    steps = std::max<std::uint64_t>(steps, job.rank(rank).plan().steps.size());
  for (const std::uint64_t slices : {1, 2, 5})
    EXPECT_LE(costs_of(job, 640, 2, slices).barriers, 2 * steps * slices + 2) << slices;
}

// A message that never comes: the threads that read packets, and the warp that looks for the
// others.
TEST(LaneCosts, WhoeverWaitsForAPacketGivesUp) {
  for (const Messages messages :
       {Messages::kLl8, Messages::kLl16, Messages::kLl128, Messages::kSlots, Messages::kCells}) {
    LaneJob job(**find_algorithm("one_shot"), 2, messages, options_for(messages), 1, 20'000'000);
    std::vector<std::int32_t> data(64, 1);
    std::vector<DeviceRank::Call> calls(2,
                                        {.input = data.data(), .output = data.data(), .count = 64});
    job.run<IntSum>({.threads = 2}, calls, 1);  // rank 1 never comes
    const device::FaultFound fault = job.rank(0).fault();
    EXPECT_EQ(fault.fault, device::Fault::kTimeout) << static_cast<int>(messages);
    EXPECT_EQ(fault.peer, 1) << static_cast<int>(messages);
    EXPECT_TRUE(fault.place.receives);
    EXPECT_NE(fault.place.expected, fault.place.seen);
  }
}

TEST(Divisor, DividesAsTheProcessorDoes) {
  const unsigned seed = draw_seed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200'000; ++i) {
    const auto number = static_cast<std::uint32_t>(1 + (random() >> (33 + random() % 31)));
    const device::Divisor divisor(number);
    const std::uint64_t near = random() % 4;  // a multiple, or beside one
    const std::uint64_t drawn = random() >> (1 + random() % 63);
    for (const std::uint64_t x : {drawn, drawn / number * number, drawn / number * number + near}) {
      ASSERT_EQ(divisor.quotient(x), x / number) << x << " / " << number << ", seed " << seed;
      ASSERT_EQ(divisor.rest(x), x % number) << x << " / " << number << ", seed " << seed;
    }
  }
}

TEST(DeviceCut, GivesTheRangesOfTheUniformCut) {
  const unsigned seed = draw_seed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    UniformCut cut;
    cut.count = random() >> (20 + random() % 44);
    cut.blocks = random() % 3 == 0 ? static_cast<std::uint32_t>(1 + random() % 17) : 1;
    cut.chunks = cut.blocks * static_cast<std::uint32_t>(1 + random() % 40);
    cut.slices = static_cast<std::uint32_t>(1 + (random() >> (44 + random() % 20)));
    cut.grain = std::uint64_t{1} << random() % 7;
    const device::DeviceCut same(cut);
    for (int k = 0; k < 8; ++k) {
      const auto chunk = static_cast<std::uint32_t>(random() % cut.chunks);
      const auto slice =
          k == 0 ? cut.slices - 1 : static_cast<std::uint32_t>(random() % cut.slices);
      const ElementRange want = cut.slice(chunk, slice), got = same.slice(chunk, slice);
      ASSERT_EQ(want.begin, got.begin) << "seed " << seed;
      ASSERT_EQ(want.end, got.end) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tutti::test
