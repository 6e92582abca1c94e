// SPDX-License-Identifier: Apache-2.0
// What a configuration needs, against the formulas of the ZeRO paper and of plan.hpp.
#include "zero/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace tutti::zero {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Units without padding among 4 ranks, so that the formulas are those of the paper.
const std::vector<Unit> kUnits{
    {"a", {{"a", {1024}}}}, {"b", {{"b", {4096}}}}, {"c", {{"c", {512}}}}};
constexpr std::uint64_t kAll = 1024 + 4096 + 512, kLargest = 4096;
constexpr int kRanks = 4;

Memory needed(const Config& config, int ranks = kRanks) { return memory_of(kUnits, config, ranks); }

TEST(ZeroPlan, StatesAreThoseOfThePaper) {
  Config config{.compute = Number::kBfloat16};
  config.stage = Stage::kDdp;
  EXPECT_EQ(needed(config).state(), (2 + 4 + 12) * kAll);
  config.stage = Stage::kZero1;
  EXPECT_EQ(needed(config).state(), (2 + 4) * kAll + 12 * kAll / kRanks);
  config.stage = Stage::kZero2;
  EXPECT_EQ(needed(config).state(), 2 * kAll + (4 + 12) * kAll / kRanks);
  config.stage = Stage::kZero3;
  EXPECT_EQ(needed(config).state(), (2 + 4 + 12) * kAll / kRanks);
  config.compute = Number::kFloat32;  // which is its own master copy
  EXPECT_EQ(needed(config).state(), (4 + 4 + 8) * kAll / kRanks);
  config.shard_ranks = 2;
  EXPECT_EQ(needed(config).state(), (4 + 4 + 8) * kAll / 2);
}

TEST(ZeroPlan, PoolsAreUnitsInUseAndAhead) {
  Config config{.stage = Stage::kZero3, .slots = 4, .prefetch = 0, .units_in_use = 1};
  EXPECT_EQ(needed(config).gathered, 4 * kLargest);
  EXPECT_EQ(needed(config).reducing, 2 * 4 * kLargest);  // at hand, and on its way
  config.overlap = false;
  EXPECT_EQ(needed(config).reducing, 4 * kLargest);
  config.prefetch = 1;
  EXPECT_EQ(needed(config).gathered, 2 * 4 * kLargest);
  config.prefetch = 10;
  EXPECT_EQ(needed(config).gathered, 3 * 4 * kLargest);
  config.keep_after_forward = true;
  EXPECT_EQ(needed(config).gathered, 4 * kAll);
  config.slots = 32;  // 8 for each rank: sums of 4, 2, 1 and a slot
  EXPECT_EQ(needed(config).reducing, 4 * 4 * kLargest);
  config.order = Order::kFast;
  EXPECT_EQ(needed(config).reducing, 2 * 4 * kLargest);
  config.stage = Stage::kZero2;
  EXPECT_EQ(needed(config).gathered, 0U);
}

TEST(ZeroPlan, SumsOverMicrosteps) {
  Config config{.stage = Stage::kZero2, .slots = 32, .microsteps = 8};
  EXPECT_EQ(needed(config).gradients, 3 * 4 * kAll / kRanks);  // shards: sums of 4, 2 and 1
  config.sync = Config::Sync::kOnce;
  EXPECT_EQ(needed(config).gradients, 3 * 4 * kAll);
  config.order = Order::kFast;
  EXPECT_EQ(needed(config).gradients, 4 * kAll);
  config.stage = Stage::kDdp;
  EXPECT_EQ(needed(config).gradients, 4 * kAll);
  config.sync = Config::Sync::kEachMicrostep;
  EXPECT_EQ(needed(config).gradients, 4 * kAll + 4 * kAll / kRanks);
}

TEST(ZeroPlan, NarrowReductionsHaveBuffersOfTheirOwn) {
  Config config{.stage = Stage::kZero3, .reduce = Number::kBfloat16, .slots = 4, .units_in_use = 1};
  EXPECT_EQ(needed(config).reducing, 4 * kLargest + 2 * 2 * kLargest);
  config.shard_ranks = 2;
  EXPECT_EQ(needed(config).reducing, 4 * kLargest + 2 * 2 * kLargest + (2 + 4) * kLargest / 2);
  EXPECT_EQ(needed(config, 1 * 2).reducing, 4 * 2 * kLargest + 2 * 2 * kLargest);
}

TEST(ZeroPlan, OneRankNeedsNothingOnItsWay) {
  Config config{.slots = 1, .units_in_use = 1};
  EXPECT_EQ(needed(config, 1).gathered, 0U);
  EXPECT_EQ(needed(config, 1).reducing, 4 * kLargest);
  config.stage = Stage::kDdp;
  EXPECT_EQ(needed(config, 1).reducing, 0U);
}

void expect_refused(const Config& config, const char* text, int ranks = kRanks) {
  EXPECT_THAT([&] { static_cast<void>(needed(config, ranks)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
}

TEST(ZeroPlan, RefusesWhatIsWrong) {
  expect_refused({.slots = 0}, "Config::slots is 0");
  expect_refused({.slots = 8, .microsteps = 0}, "Config::microsteps is 0");
  expect_refused({.prefetch = -1}, "Config::prefetch is -1");
  expect_refused({.units_in_use = 0}, "Config::units_in_use is 0");
  expect_refused({.shard_ranks = 3}, "Config::shard_ranks is 3, which does not divide 4 ranks");
  expect_refused({.clip_norm = -1}, "Config::clip_norm");
  expect_refused({.loss_scaling = {.initial = 3}}, "Config::loss_scaling.initial");
  expect_refused({.loss_scaling = {.initial = 4, .growth_steps = 0}}, "growth_steps is 0");
  expect_refused({.slots = 12}, "12 slots cannot be summed in canonical order by 4 ranks");
  expect_refused({}, "at least 1", 0);
  const std::vector<Unit> empty{{"a", {{"a", {0}}}}};
  EXPECT_THROW(static_cast<void>(memory_of(empty, Config{}, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace tutti::zero
