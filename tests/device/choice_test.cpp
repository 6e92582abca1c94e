// SPDX-License-Identifier: Apache-2.0
// The choice among plans on devices: the blocks of a rank are kept busy, the price is that of the
// busiest, and it is near the price of a walk through the same plan's steps; what a device cannot
// do is not chosen, and names lead back.
#include "device/choice.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/job.hpp"
#include "lab/event_price.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/lab/networks.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kLeastPiece = 4 << 10;  // of a chunk, that is worth a block of its own

std::vector<std::uint64_t> sizes() {
  std::vector<std::uint64_t> all;
  for (std::uint64_t bytes = 8; bytes < (std::uint64_t{1} << 30); bytes *= 4) all.push_back(bytes);
  all.push_back(std::uint64_t{1} << 30);
  return all;
}

device::Choice choice_of(std::int32_t ranks, std::uint32_t blocks_each) {
  return device::Choice(
      {.ranks = ranks, .blocks_each = blocks_each, .arena_bytes = device::kArenaBytes});
}

Problem all_reduce(std::int32_t ranks) {
  return {.collective = Collective::kAllReduce, .ranks = ranks};
}

// The walk through the steps of the busiest replica, with the costs that the price weighs.
double walked_ns(const device::Candidate& candidate, std::int32_t ranks, std::uint64_t bytes) {
  const networks::Nodes network(
      {.ranks = ranks, .node = ranks, .inside_ns = 0, .inside_ns_per_byte = 0});
  const PlanModel model = PlanModel::make(*candidate.algorithm, all_reduce(ranks), network).value();
  const HostCosts& costs = device::costs_of(kPriorDeviceCosts, candidate.messages);
  Costs same{.step_ns = costs.step_ns, .operand_ns_per_byte = costs.beta_ns_per_byte};
  same.hops[static_cast<std::size_t>(Hop::kShared)].alpha_ns = costs.alpha_ns;
  const std::uint64_t replicas = candidate.options.replicas;
  const std::uint64_t own = (candidate.slices + replicas - 1) / replicas;
  return model
      .price(same, {.bytes = (bytes * own + candidate.slices - 1) / candidate.slices,
                    .slices = static_cast<std::uint32_t>(own),
                    .most_slices = 32})
      .value()
      .time_ns;
}

TEST(DeviceChoice, KeepsItsBlocksBusy) {
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8, 16})
    for (const std::uint32_t blocks : {1U, 4U, 8U, 33U}) {
      device::Choice choice = choice_of(ranks, blocks);
      for (const std::uint64_t bytes : sizes()) {
        const auto chosen = choice.choose({}, all_reduce(ranks), bytes);
        ASSERT_TRUE(chosen) << chosen.error().message;
        const std::string what =
            fmt::format("{} ranks, {} blocks, {} bytes: {}", ranks, blocks, bytes, chosen->name());
        EXPECT_LE(chosen->options.replicas, blocks) << what;
        // All of them, or as many as have a few KiB of a chunk.
        EXPECT_TRUE(chosen->busy() == chosen->options.replicas ||
                    bytes / chosen->busy() < 2 * kLeastPiece * static_cast<std::uint64_t>(ranks))
            << what << ", busy " << chosen->busy();
        // What is large takes all that there are.
        if (bytes == sizes().back()) {
          EXPECT_GE(chosen->busy(), std::min(blocks, 32U) * 3 / 4) << what;
        }
      }
    }
}

// n loaded and n stored a rank, where all share a device: nothing moves less.
TEST(DeviceChoice, TakesStoresIntoPeersForWhatIsLarge) {
  for (const std::int32_t ranks : {2, 4, 8}) {
    const auto chosen = choice_of(ranks, 8).choose({}, all_reduce(ranks), 256 << 20);
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->algorithm->name, "two_shot:access=store") << ranks;
  }
  // Across devices it is for those who name it.
  device::Choice across(
      {.ranks = 4, .blocks_each = 8, .arena_bytes = device::kArenaBytes, .one_device = false});
  EXPECT_NE(across.choose({}, all_reduce(4), 256 << 20)->algorithm->name, "two_shot:access=store");
  const Forced named = *parse_forced("two_shot:access=store");
  EXPECT_TRUE(across.choose(named, all_reduce(4), 256 << 20));
}

// In place they would need a second output.
TEST(DeviceChoice, LeavesPlansWithInputAndOutputApartToHosts) {
  const Problem problem{.collective = Collective::kAllToAll, .ranks = 4};
  const auto chosen = choice_of(4, 8).choose({}, problem, 256 << 20);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_FALSE(chosen->algorithm->shape(problem).apart);
  const auto named = choice_of(4, 8).choose(*parse_forced("two_shot:access=remote"), problem, 8);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().message,
            "there is no plan on devices for alltoall of 8 bytes by two_shot:access=remote: it "
            "needs input and output apart, and a kernel has one output");
  // Who names no collective means those that have it.
  const ForcedSet all = *parse_forced_set("two_shot:access=remote");
  EXPECT_EQ(choice_of(4, 8).choose(all.of(problem), problem, 256 << 20)->algorithm,
            chosen->algorithm);
  EXPECT_EQ(choice_of(4, 8).choose(all.of(all_reduce(4)), all_reduce(4), 8)->algorithm->name,
            "two_shot:access=remote");
}

// Both prices know the same costs. Of all candidates, chosen or not.
TEST(DeviceChoice, PricesTheBusiestReplica) {
  constexpr double kMostApart = 1.5;
  double least = 1, most = 1;
  for (const std::int32_t ranks : {2, 3, 4, 8, 16}) {
    device::Choice choice = choice_of(ranks, 8);
    for (const std::uint64_t bytes : sizes()) {
      const auto all = choice.price({}, all_reduce(ranks), bytes);
      ASSERT_TRUE(all);
      for (const device::Candidate& one : *all) {
        const double ratio = walked_ns(one, ranks, bytes) / one.cost.time_ns;
        least = std::min(least, ratio);
        most = std::max(most, ratio);
        EXPECT_GE(ratio, 1 / kMostApart) << one.name() << ", " << bytes << " bytes, " << ranks;
        EXPECT_LE(ratio, kMostApart) << one.name() << ", " << bytes << " bytes, " << ranks;
      }
    }
  }
  fmt::print("walked over priced: {:.3f} to {:.3f}\n", least, most);
}

// How much longer than the best of all candidates the chosen one is, if the walk is right.
TEST(DeviceChoice, LosesLittleAgainstTheWalk) {
  double sum = 0, worst = 1;
  int count = 0;
  std::string where;
  for (const std::int32_t ranks : {2, 3, 4, 8, 16}) {
    device::Choice choice = choice_of(ranks, 8);
    for (const std::uint64_t bytes : sizes()) {
      double best = INFINITY;
      const std::vector<device::Candidate> all = choice.price({}, all_reduce(ranks), bytes).value();
      for (const device::Candidate& one : all) best = std::min(best, walked_ns(one, ranks, bytes));
      const device::Candidate chosen = choice.choose({}, all_reduce(ranks), bytes).value();
      const double regret = walked_ns(chosen, ranks, bytes) / best;
      sum += regret;
      ++count;
      if (regret > worst) {
        worst = regret;
        where = fmt::format("{} ranks, {} bytes: {}", ranks, bytes, chosen.name());
      }
    }
  }
  fmt::print("regret against the walk: {:.2f} % mean, {:.1f} % worst ({})\n",
             100 * (sum / count - 1), 100 * (worst - 1), where);
  EXPECT_LE(sum / count, 1.10);
  EXPECT_LE(worst, 1.5) << where;
}

// A profile of a device takes the priors' place, and each of its two parts counts.
TEST(DeviceChoice, IsByTheCostsThatItIsGiven) {
  const auto chosen = [](const DeviceCosts& costs, std::uint64_t bytes) {
    device::Choice choice(
        {.ranks = 4, .blocks_each = 8, .arena_bytes = device::kArenaBytes, .costs = costs});
    return choice.choose({}, all_reduce(4), bytes).value().messages;
  };
  constexpr std::uint64_t kSmall = 64, kLarge = 64 << 20;
  EXPECT_TRUE(device::in_packets(chosen(kPriorDeviceCosts, kSmall)));
  EXPECT_FALSE(device::in_packets(chosen(kPriorDeviceCosts, kLarge)));
  DeviceCosts costs = kPriorDeviceCosts;
  costs.packets.alpha_ns = 50'000;
  EXPECT_FALSE(device::in_packets(chosen(costs, kSmall)));
  costs = kPriorDeviceCosts;
  costs.slots.beta_ns_per_byte = 100 * costs.packets.beta_ns_per_byte;
  EXPECT_TRUE(device::in_packets(chosen(costs, kLarge)));
}

constexpr std::uint64_t kArena = 256 << 10;

Forced forced(std::string_view name) { return *parse_forced(name); }

// They read the program's buffers, which another device need not reach.
TEST(DeviceChoice, AmongDevicesThereIsNoDirectPlanUnlessItIsNamed) {
  bool seen = false;
  for (const bool one_device : {true, false}) {
    device::Choice choice(
        {.ranks = 8, .blocks_each = 16, .arena_bytes = kArena, .one_device = one_device});
    for (std::uint64_t bytes = 4; bytes <= (256 << 20); bytes *= 2)
      for (const char* const name : {"auto", "auto@direct"}) {
        const auto chosen = choice.choose(forced(name), all_reduce(8), bytes);
        if (!chosen || chosen->options.protocol != Protocol::kDirect) continue;
        EXPECT_TRUE(one_device) << name << ", " << bytes;
        seen = true;
      }
    EXPECT_TRUE(
        choice.choose(forced(std::string(test::direct_forms(Collective::kAllReduce).front()->name)),
                      all_reduce(8), 1 << 20));
  }
  EXPECT_TRUE(seen);
}

TEST(DeviceChoice, WhereLinesMayComeInPartsThereIsNoLl128) {
  bool seen = false;
  for (const bool whole : {true, false}) {
    device::Choice choice(
        {.ranks = 8, .blocks_each = 16, .arena_bytes = kArena, .whole_lines = whole});
    for (std::uint64_t bytes = 4; bytes <= (1 << 20); bytes *= 2)
      for (const char* const name : {"auto", "auto@flagged", "ring@flagged"}) {
        const auto chosen = choice.choose(forced(name), all_reduce(8), bytes);
        if (!chosen || chosen->messages != device::Messages::kLl128) continue;
        EXPECT_TRUE(whole) << name << ", " << bytes;
        seen = true;
      }
  }
  EXPECT_TRUE(seen);
}

TEST(DeviceChoice, WherePairsMayComeInPartsPacketsAreLl8) {
  for (const bool whole : {true, false}) {
    device::Choice choice(
        {.ranks = 8, .blocks_each = 16, .arena_bytes = kArena, .whole_lines = whole});
    const auto chosen = choice.choose(forced("auto@flagged"), all_reduce(8), 8);
    ASSERT_TRUE(chosen);
    EXPECT_EQ(chosen->messages == device::Messages::kLl8, !whole) << chosen->name();
  }
}

// A candidate's name forces that candidate.
TEST(DeviceChoice, NamesLeadBack) {
  device::Choice choice({.ranks = 8, .blocks_each = 16, .arena_bytes = kArena});
  for (const std::uint64_t bytes : {64, 64 << 10, 16 << 20}) {
    const std::vector<device::Candidate> all = *choice.price({}, all_reduce(8), bytes);
    for (const device::Candidate& one : all) {
      const auto again = choice.choose(forced(one.name()), all_reduce(8), bytes);
      ASSERT_TRUE(again) << one.name();
      EXPECT_EQ(again->name(), one.name());
      EXPECT_EQ(again->messages, one.messages);
    }
  }
}

}  // namespace
}  // namespace tutti::test
