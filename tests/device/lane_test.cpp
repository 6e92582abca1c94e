// SPDX-License-Identifier: Apache-2.0
// The interpreter of device programs, emulated by threads of the host: every algorithm, rank count
// and way of messages against exact sums; several lanes a block and several blocks a lane's rank;
// averages and narrow types; faults and abort.
#include "device/lane.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/device/folds.hpp"
#include "kernels/reduce_copy.hpp"
#include "lane_job.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/sanitizers.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using device::Messages;
using testing::Contains;
using testing::Each;
using IntSum = device::Fold<device::Integer<std::int32_t>, device::Sum>;

constexpr const char* kMessageNames[] = {"slots", "cells", "ll8", "ll16", "ll128"};

unsigned seed() {
  static const unsigned chosen = draw_seed();
  return chosen;
}

// One all-reduce of int32, checked on every rank, with a word behind the output that must stay.
void all_reduce_ints(LaneJob& job, const Launch& shape, std::uint64_t count, bool in_place,
                     std::mt19937& random) {
  std::vector<std::vector<std::int32_t>> inputs(job.ranks()), outputs(job.ranks());
  std::vector<std::int32_t> want(count, 0);
  std::vector<DeviceRank::Call> calls(job.ranks());
  for (std::size_t r = 0; r < job.ranks(); ++r) {
    inputs[r].resize(count + 1, -5);
    for (std::size_t i = 0; i < count; ++i) {
      inputs[r][i] = static_cast<std::int32_t>(random() % 1000);
      want[i] += inputs[r][i];
    }
    outputs[r].assign(count + 1, -5);
    calls[r] = {.input = inputs[r].data(),
                .output = in_place ? inputs[r].data() : outputs[r].data(),
                .count = count};
  }
  job.run<IntSum>(shape, calls);
  for (std::size_t r = 0; r < job.ranks(); ++r) {
    const std::vector<std::int32_t>& got = in_place ? inputs[r] : outputs[r];
    ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin()))
        << "rank " << r << ", count " << count;
    EXPECT_EQ(got.back(), -5) << "wrote past the end on rank " << r;
  }
  EXPECT_THAT(job.faults(), Each(0));
}

struct Case {
  const Algorithm* algorithm;
  Messages messages;
};
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::string name(info.param.algorithm->name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  return name + "_" + kMessageNames[static_cast<int>(info.param.messages)];
}
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm* algorithm : all_algorithms())
    for (const Messages messages :
         {Messages::kSlots, Messages::kCells, Messages::kLl8, Messages::kLl16, Messages::kLl128})
      cases.push_back({algorithm, messages});
  for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
    cases.push_back({algorithm, Messages::kCells});
  return cases;
}

class Lanes : public testing::TestWithParam<Case> {};

TEST_P(Lanes, SumExactly) {
  const Case& c = GetParam();
  PlanOptions options = options_for(c.messages);
  const auto direct = test::direct_forms(Collective::kAllReduce);
  if (std::ranges::find(direct, c.algorithm) != direct.end()) {
    options.protocol = Protocol::kDirect;
    options.slot_bytes = 4096;
  }
  std::mt19937 random(seed());
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8}) {
    if (kSanitized && (ranks == 4 || ranks == 8)) continue;
    // One block that owns all lanes, or a block for each of some.
    LaneJob job(*c.algorithm, ranks, c.messages, options,
                static_cast<std::uint32_t>(1 + random() % 3));
    for (const std::uint64_t count : {1, 63, 1000, 5003}) {
      if (kSanitized && random() % 2 == 0) continue;
      // With room for a program and its ends, or too little.
      const Launch shape{.threads = static_cast<std::uint32_t>(1 + random() % 3),
                         .room_bytes = random() % 4 == 0 ? 64U : 20U << 10,
                         .warp = static_cast<std::uint32_t>(1 + random() % 3)};
      all_reduce_ints(job, shape, count, random() % 2 == 0, random);
      if (HasFailure()) FAIL() << ranks << " ranks, seed " << seed();
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, Lanes, testing::ValuesIn(all_cases()), name_of_case);

// A step has 128 chunks of three operands: more than a block has addresses for at once.
TEST(LanesOfManyRanks, MoveMoreChunksThanAddresses) {
  for (const Messages messages : {Messages::kSlots, Messages::kLl16}) {
    PlanOptions options = options_for(messages);
    options.slot_bytes = 8192;
    options.arena_bytes = 1 << 20;
    options.cells_per_pair = 64;
    LaneJob job(**find_algorithm("rabenseifner"), 256, messages, options);
    const Plan& plan = job.rank(0).plan();
    std::uint32_t most = 0;
    for (const PlanStep& step : plan.steps)
      most = std::max(most, (step.destinations + step.sources) *
                                plan.operands[step.first_operand].span.count());
    EXPECT_GT(most, device::kMaxOperands);
    std::mt19937 random(seed());
    all_reduce_ints(job, {}, 600, true, random);
  }
}

// Operations that need credits and operations that do not, in turns: the slots that the one has
// filled are not the other's to count.
TEST(LanesWithoutCredits, TakeTurnsWithOthers) {
  for (const Messages messages :
       {Messages::kSlots, Messages::kCells, Messages::kLl16, Messages::kLl128})
    for (const char* const name : {"one_shot", "butterfly", "two_shot"}) {
      PlanOptions options = options_for(messages);
      options.slots = 4;
      options.replicas = 2;
      LaneJob job(**find_algorithm(name), 4, messages, options, 2);
      std::mt19937 random(seed());
      for (int operation = 0; operation < 30; ++operation) {
        const std::uint64_t count = random() % 3 == 0 ? 3000 : 1 + random() % 8;
        all_reduce_ints(job, {.threads = 2}, count, random() % 2 == 0, random);
        if (HasFailure()) FAIL() << name << ", seed " << seed();
      }
    }
}

class LanesOf : public testing::TestWithParam<Messages> {};

// One, two and four lines of LL128 at once, and threads that have none to do.
TEST_P(LanesOf, SumInBlocksOfManyThreads) {
  std::mt19937 random(seed());
  for (const std::uint32_t threads : {8, 16, 32})
    for (const char* const name : {"one_shot", "ring"})
      for (const std::int32_t ranks : {2, 5}) {
        LaneJob job(**find_algorithm(name), ranks, GetParam(), options_for(GetParam()),
                    static_cast<std::uint32_t>(1 + random() % 2));
        for (const std::uint64_t count : {30, 31, 700})
          all_reduce_ints(job, {.threads = threads, .warp = threads}, count, random() % 2 == 0,
                          random);
        if (HasFailure())
          FAIL() << name << ", " << ranks << " ranks, " << threads << " threads, seed " << seed();
      }
}

// Every type and operation, averages included, bit for bit what the host's kernels give: two ranks,
// so that the order of the sources is the same in every algorithm.
TEST_P(LanesOf, GiveTheHostsBits) {
  std::mt19937 random(seed());
  constexpr std::uint64_t kCount = 1237;
  LaneJob job(**find_algorithm("one_shot"), 2, GetParam(), options_for(GetParam()));
  for (int t = 0; t < kDataTypeCount; ++t)
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      const ReduceCopyFn kernel = reduce_copy_kernel(type, op);
      if (kernel == nullptr) continue;
      const std::uint64_t bytes = kCount * element_bytes(type);
      std::vector<std::vector<std::byte>> inputs(2), outputs(2);
      std::vector<DeviceRank::Call> calls(2);
      const std::uint32_t average_over = op == ReduceOp::kAvg ? 2 : 0;
      for (std::size_t r = 0; r < 2; ++r) {
        inputs[r].resize(bytes);
        for (std::byte& byte : inputs[r]) byte = static_cast<std::byte>(random());
        outputs[r].resize(bytes);
        calls[r] = {.input = inputs[r].data(),
                    .output = outputs[r].data(),
                    .count = kCount,
                    .type = type,
                    .average_over = average_over};
      }
      if (!device::visit_fold(type, op,
                              [&]<class Fold>() { job.run<Fold>({.threads = 2}, calls); }))
        continue;
      std::vector<std::byte> want(bytes);
      const void* const sources[] = {inputs[0].data(), inputs[1].data()};
      void* const destinations[] = {want.data()};
      kernel({.sources = sources,
              .source_count = 2,
              .destinations = destinations,
              .destination_count = 1,
              .elements = kCount,
              .average_over = average_over});
      for (std::size_t r = 0; r < 2; ++r)
        EXPECT_EQ(outputs[r], want)
            << name_of(type) << " " << name_of(op) << ", rank " << r << ", seed " << seed();
    }
}

// A rank that calls something else is found out, in slots and cells before its bytes are used.
TEST_P(LanesOf, RefuseAnotherOperationsMessages) {
  LaneJob job(**find_algorithm("one_shot"), 3, GetParam(), options_for(GetParam()));
  std::vector<std::int32_t> data(300, 1);
  std::vector<std::vector<std::int32_t>> outputs(3, std::vector<std::int32_t>(100, -1));
  std::vector<DeviceRank::Call> calls(3);
  for (std::size_t r = 0; r < 3; ++r)
    calls[r] = {.input = data.data() + 100 * r,
                .output = outputs[r].data(),
                .count = 100,
                .signature = r == 1 ? 5u : 6u};
  job.run<IntSum>({.threads = 2}, calls);
  // Who finds it first ends the others.
  constexpr auto kWord = static_cast<std::uint64_t>(device::Fault::kSignature);
  std::vector<std::uint64_t> kinds;
  for (const std::uint64_t fault : job.faults()) kinds.push_back(fault >> 32);
  EXPECT_THAT(kinds, Contains(kWord));
  EXPECT_THAT(kinds, Each(testing::AnyOf(0, kWord)));
  // Packets are read as they come, each by another thread than the one that finds it out.
  if (!device::in_packets(GetParam())) {
    EXPECT_THAT(outputs[0], Each(-1));
  }
}

// A rank that never comes: the others wait until the abort word is set, then all blocks end.
TEST_P(LanesOf, EndWhenAborted) {
  LaneJob job(**find_algorithm("ring"), 3, GetParam(), options_for(GetParam()), 2);
  std::vector<std::int32_t> data(3000, 1);
  std::vector<DeviceRank::Call> calls(3);
  for (std::size_t r = 0; r < 3; ++r)
    calls[r] = {.input = data.data() + 1000 * r, .output = data.data() + 1000 * r, .count = 1000};
  std::jthread stop([&job] {
    std::mt19937 random(seed());
    for (auto turns = random() % 200; turns > 0; --turns) ::sched_yield();
    job.abort();
  });
  job.run<IntSum>({.threads = 2}, calls, 2);
  EXPECT_THAT(job.faults(), Each(0));
}

// Any test with emulated blocks fails this way.
TEST(EmulatedBlock, TellsOfThreadsThatWaitAtTwoBarriers) {
  static const auto wait = [](std::uint64_t line) {
    EmulatedBlock::Common common(2, 2, 0);
    std::jthread other([&] { EmulatedBlock(0, 1, 0, 2, common).sync(1); });
    EmulatedBlock(0, 1, 1, 2, common).sync(line);
  };
  wait(1);
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(wait(2), "two barriers");
}

INSTANTIATE_TEST_SUITE_P(All, LanesOf,
                         testing::Values(Messages::kSlots, Messages::kCells, Messages::kLl8,
                                         Messages::kLl16, Messages::kLl128),
                         [](const auto& chosen) {
                           return kMessageNames[static_cast<int>(chosen.param)];
                         });

}  // namespace
}  // namespace tutti::test
