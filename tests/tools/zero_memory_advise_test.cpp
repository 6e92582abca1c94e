// SPDX-License-Identifier: Apache-2.0
// The advice with prices made up so that every step can be worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "advise.hpp"
#include "cluster_prices.hpp"
#include "report.hpp"
#include "step_walk.hpp"

namespace tutti::zero_memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 0.01 ns a byte among all and between hosts, 0.001 inside one; an all-reduce takes it twice.
Result<double> made_price(Group group, Collective collective, std::uint64_t bytes) {
  const double each = group == Group::kHost ? 1e-12 : 1e-11;
  return static_cast<double>(bytes) * each * (collective == Collective::kAllReduce ? 2 : 1);
}

// Two units of 2e9 parameters on 2 hosts of 2 ranks, two sequences of 1000 tokens each. A unit's
// forward takes 0.016 s and its backward 0.032 s with both sequences at once; its reduce-scatter or
// all-gather takes 0.04 s, its all-reduce 0.08 s, all updates together 0.08 s.
AdviseQuestion small() {
  AdviseQuestion question;
  question.model = {"small", 4'000'000'000, {}};
  question.units = 2;
  question.ranks = 4;
  question.ranks_per_host = 2;
  question.batch = 8;
  question.sequence = 1000;
  question.memory_bytes = 80'000'000'000;
  question.peak_flops = 1e15;
  question.mfu = 0.5;
  question.memory_GBps = 1400;
  return question;
}

std::vector<std::string> names(const std::vector<Advice>& advice) {
  std::vector<std::string> of;
  for (const Advice& each : advice) of.push_back(each.name());
  return of;
}

std::vector<Advice> advised(const AdviseQuestion& question) {
  return advise(question, made_price).value();
}

TEST(Advise, OrderIsTheOneByHand) {
  const std::vector<Advice> advice = advised(small());
  EXPECT_THAT(names(advice), ElementsAre("ZeRO-3 in hosts", "ZeRO-1 in hosts", "ZeRO-2 in hosts",
                                         "ZeRO-1", "ZeRO-2", "ZeRO-3", "DDP"));
  const std::vector<double> seconds{0.196, 0.200, 0.200, 0.244, 0.244, 0.260, 0.304};
  const std::vector<double> GB{52, 40, 48, 28, 34, 36, 64};
  for (std::size_t i = 0; i < advice.size(); ++i) {
    EXPECT_NEAR(advice[i].time.total(), seconds[i], 1e-9) << advice[i].name();
    EXPECT_DOUBLE_EQ(advice[i].memory.total(), GB[i] * 1e9) << advice[i].name();
    EXPECT_EQ(advice[i].sharding.microsteps, 1U);
    EXPECT_EQ(advice[i].microbatch, 2U);
    EXPECT_NEAR(advice[i].time.compute, 0.096, 1e-9);
    EXPECT_EQ(advice[i].impossible, "");
  }
  // ZeRO-3 over all: six collectives of 0.04 s, of which 0.096 s hide.
  EXPECT_NEAR(advice[5].time.communication, 0.24, 1e-9);
  EXPECT_NEAR(advice[5].time.exposed, 0.144, 1e-9);
  EXPECT_NEAR(advice[5].time.update, 0.02, 1e-9);
}

// Units are padded to the shards of each strategy: 100 + 99 elements to 256 + 256 for 8 shards of
// whole lines, to 128 + 128 for the 2 or 4 of a host.
TEST(Advise, PadsUnitsToTheShardsOfEachStrategy) {
  AdviseQuestion question = small();
  question.model = {"odd", 199, {}};
  question.ranks = 8;
  for (const std::uint64_t in_host : {2U, 4U}) {
    question.ranks_per_host = in_host;
    for (const Advice& each : advised(question)) {
      const std::uint64_t shards = each.hybrid ? in_host : 8, padded = each.hybrid ? 128 : 256;
      const std::vector<std::uint64_t> units{padded, padded};
      EXPECT_EQ(each.memory.state.total(),
                exact_state_bytes(units, each.sharding.stage, question.accounting, shards).total())
          << each.name();
    }
  }
}

TEST(Advise, SaysWhyOneIsImpossible) {
  AdviseQuestion question = small();
  question.memory_bytes = 51'000'000'000;
  std::vector<Advice> advice = advised(question);
  EXPECT_THAT(names(advice), ElementsAre("ZeRO-1 in hosts", "ZeRO-2 in hosts", "ZeRO-1", "ZeRO-2",
                                         "ZeRO-3", "ZeRO-3 in hosts", "DDP"));
  EXPECT_THAT(advice[6].impossible, HasSubstr("needs 64 GB (state 64, unit buffers 0"));
  EXPECT_THAT(advice[5].impossible, HasSubstr("usable are 51"));
  question.reserve_bytes = 24'000'000'000;  // what ZeRO-1 needs least is 28 GB
  for (const Advice& each : advised(question)) EXPECT_NE(each.impossible, "");
}

TEST(Advise, RefusesABatchThatRanksDoNotDivide) {
  AdviseQuestion question = small();
  question.batch = 9;
  EXPECT_THAT(advise(question, made_price).error().message,
              HasSubstr("--batch 9 is not divisible by the cluster's 4 ranks"));
  question.batch = std::uint64_t{4} << 20;
  EXPECT_THAT(advise(question, made_price).error().message, HasSubstr("the most are 65536"));
  question = small();
  question.reserve_bytes = question.memory_bytes;
  EXPECT_THAT(advise(question, made_price).error().message, HasSubstr("--reserve"));
}

// With activations the microbatch must shrink or be recomputed: the fastest that fits is taken.
TEST(Advise, TakesMicrobatchAndRecomputationThatFit) {
  AdviseQuestion question = small();
  question.model = *find_model("gpt2-xl");
  question.sequence = 1024;
  question.batch = 64;
  question.ranks_per_host = 4;
  const auto best = [&](std::uint64_t memory_bytes) {
    question.memory_bytes = memory_bytes;
    return advised(question).front();
  };
  const Advice ample = best(1'000'000'000'000), tight = best(16'000'000'000);
  EXPECT_EQ(ample.recomputation, Recomputation::kNone);
  EXPECT_EQ(ample.impossible, "");
  EXPECT_EQ(tight.impossible, "");
  EXPECT_LE(tight.memory.total(), 16e9);
  EXPECT_GE(tight.time.total(), ample.time.total());
  EXPECT_TRUE(tight.microbatch < ample.microbatch || tight.recomputation != Recomputation::kNone);
  for (const Advice& each : advised(question)) {
    EXPECT_EQ(each.microbatch * each.sharding.microsteps, 16U) << each.name();
  }
}

// One rank, so that a step is its operations: 6 P D, the attention's where they are asked for, and
// those of the recomputation that little memory enforces.
TEST(Advise, CountsOperationsAndActivations) {
  AdviseQuestion question;
  question.model = *find_model("gpt2");
  const GptShape shape = *question.model.shape;
  question.batch = 8;
  question.sequence = shape.sequence;
  question.memory_bytes = 80'000'000'000;
  question.peak_flops = 1e15;
  question.mfu = 0.5;
  const double P = 124'439'808, D = 8 * 1024, attention = 12.0 * 12 * 768 * 1024 * D;
  Advice best = advised(question).front();
  EXPECT_NEAR(best.time.total(), 6 * P * D / 0.5e15, 1e-9);
  EXPECT_EQ(best.recomputation, Recomputation::kNone);
  question.attention = true;
  EXPECT_NEAR(advised(question).front().time.total(), (6 * P * D + attention) / 0.5e15, 1e-9);
  question.attention = false;
  // Less than one sequence needs without recomputation: 3.28 GB, with selective 2.58.
  question.memory_bytes = 2'900'000'000;
  best = advised(question).front();
  EXPECT_EQ(best.recomputation, Recomputation::kSelective);
  EXPECT_NEAR(best.time.total(), (6 * P * D + attention / 3) / 0.5e15, 1e-9);
  EXPECT_DOUBLE_EQ(best.memory.activations,
                   activation_bytes(shape, best.microbatch, Recomputation::kSelective).total());
  question.memory_bytes = 2'500'000'000;
  best = advised(question).front();
  EXPECT_EQ(best.recomputation, Recomputation::kFull);
  EXPECT_NEAR(best.time.total(), (8 * P * D + attention / 3) / 0.5e15, 1e-9);
  EXPECT_LE(best.memory.total(), 2.5e9);
}

// More memory never makes the best step slower.
TEST(Advise, MoreMemoryIsNeverSlower) {
  AdviseQuestion question = small();
  question.model = *find_model("gpt2-xl");
  question.sequence = 1024;
  question.batch = 64;
  double before = 1e9;
  for (std::uint64_t GB = 14; GB <= 200; GB += 6) {
    question.memory_bytes = GB * 1'000'000'000;
    const Advice best = advised(question).front();
    ASSERT_EQ(best.impossible, "") << GB;
    EXPECT_LE(best.time.total(), before) << GB;
    before = best.time.total();
  }
}

TEST(StepWalkTest, ManyMicrostepsAreTheSumOfThem) {
  const std::vector<UnitWork> units{{1, 2, 0.5, 0.25}, {1, 2, 3, 4}};
  const StepWalk nine = walk_step(units, units, 9), ten = walk_step(units, units, 10);
  const StepWalk eleven = walk_step(units, units, 11);
  EXPECT_DOUBLE_EQ(ten.compute, 60);
  EXPECT_DOUBLE_EQ(ten.communication, 10 * (2 * 0.5 + 0.25 + 2 * 3 + 4));
  EXPECT_NEAR(eleven.total - ten.total, ten.total - nine.total, 1e-9);
  // Without communication the step is its work; with one that is short, all but its ends hides.
  EXPECT_DOUBLE_EQ(walk_step({{1, 2, 0, 0}}, {{1, 2, 0, 0}}, 3).total, 9);
  EXPECT_DOUBLE_EQ(walk_step({}, {{1, 2, 0.5, 0.25}}, 1).total, 0.5 + 3 + 0.25);
}

TEST(StepWalkTest, WithoutPrefetchGathersHideNothing) {
  const std::vector<UnitWork> units(5, {1, 2, 0.5, 0});
  EXPECT_DOUBLE_EQ(walk_step(units, units, 3, false).total, 3 * 5 * (1 + 2 + 2 * 0.5));
  EXPECT_DOUBLE_EQ(walk_step(units, units, 3, true).total, 3 * (5 * (1 + 2) + 0.5));
}

// Within the sum and the larger of the two.
TEST(StepWalkTest, HidesNoMoreThanThereIs) {
  for (const double gather : {0.0, 0.1, 1.0, 5.0})
    for (const double reduce : {0.0, 0.2, 2.0}) {
      const std::vector<UnitWork> units(5, {1, 2, gather, reduce});
      const StepWalk walk = walk_step(units, units, 7);
      EXPECT_LE(walk.total, walk.compute + walk.communication + 1e-9);
      EXPECT_GE(walk.total, std::max(walk.compute, walk.communication) - 1e-9);
    }
}

constexpr const char* kCluster = R"({"name": "two", "nodes": 2, "gpus_per_node": 4, "gpu": "h100",
 "intra": {"kind": "nvlink4"}, "nics_per_node": 2, "nic": {"kind": "ndr200", "GBps": 25}})";

TEST(ClusterPrices, FollowSizeGroupAndPorts) {
  const Cluster cluster = *parse_cluster(kCluster, "two.json");
  EXPECT_EQ(between_hosts(cluster).ranks(), 2);
  EXPECT_DOUBLE_EQ(between_hosts(cluster).nic.GBps, 12.5);  // two ranks share a port
  EXPECT_DOUBLE_EQ(rank_memory_GBps(cluster), 3350);
  const Price price = cluster_prices(cluster, *load_profile("tutti"));
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    const double host = *price(Group::kHost, collective, 64'000'000);
    const double all = *price(Group::kAll, collective, 64'000'000);
    EXPECT_GT(all, host) << name_of(collective);
    EXPECT_GT(*price(Group::kAll, collective, 256'000'000), all) << name_of(collective);
    EXPECT_EQ(*price(Group::kAll, collective, 64'000'000), all) << name_of(collective);
  }
  // Two ranks of different hosts exchange halves twice: 2 x 32 MB at 12.5 GB/s, and no faster.
  const double between = *price(Group::kBetween, Collective::kAllReduce, 64'000'000);
  EXPECT_GE(between, 64e6 / 12.5e9);
  EXPECT_LE(between, 1.5 * 64e6 / 12.5e9);
}

}  // namespace
}  // namespace tutti::zero_memory
