// SPDX-License-Identifier: Apache-2.0
// Counts read off schedules, and what a further slice costs by them.
#include "model/price.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "samples.hpp"
#include "schedule/pace.hpp"

namespace tutti {
namespace {

constexpr HostCosts kCosts{.alpha_ns = 100, .step_ns = 10, .beta_ns_per_byte = 0.5};
constexpr std::int32_t kManyCores = 1024;

ScheduleCounts counted(std::string_view name, std::int32_t ranks,
                       std::span<const std::int32_t> hosts = {}) {
  return count_schedule(*find_algorithm(name).value(),
                        {.collective = Collective::kAllReduce, .ranks = ranks}, hosts)
      .value();
}

double price(const ScheduleCounts& counts, std::uint64_t bytes, std::uint32_t slices,
             std::uint32_t replicas = 1, const HostCosts& costs = kCosts) {
  return PlanPrices(counts, costs, {.replicas = replicas, .cores = kManyCores})
      .at(bytes, slices)
      .time_ns;
}

TEST(ScheduleCounts, OfARingItsLaneIsItsPath) {
  for (const std::int32_t p : {2, 3, 8, 33}) {
    const ScheduleCounts ring = counted("ring", p);
    EXPECT_EQ(ring.depth, static_cast<std::uint32_t>(2 * (p - 1)));
    EXPECT_EQ(ring.lane_depth, ring.depth);
    EXPECT_EQ(ring.lane_steps, ring.path_steps);
    EXPECT_EQ(ring.lane_operands, ring.path_operands);
  }
}

// parent <- own, left, right; and own, left, right <- parent. A root with two children, which a
// power of two has none of, has both: own, left, right <- own, left, right.
TEST(ScheduleCounts, OfATreeALaneIsOneStep) {
  for (const auto& [p, operands] : {std::pair{8, 4U}, {33, 6U}, {128, 4U}}) {
    const ScheduleCounts tree = counted("tree", p);
    EXPECT_EQ(tree.lane_depth, 0U) << p;
    EXPECT_EQ(tree.lane_steps, 1U) << p;
    EXPECT_EQ(tree.lane_operands, operands) << p;
    EXPECT_GT(tree.path_steps, 4U) << p;
  }
}

// Groups of two, so that the rails through a ring among 8 groups are the longest lanes.
TEST(ScheduleCounts, OfAHierarchyALaneIsALevel) {
  const ScheduleCounts whole = counted("hierarchical:outer=ring:groups=8x2", 16);
  const ScheduleCounts rail = counted("ring", 8);
  EXPECT_EQ(whole.lane_depth, rail.depth);
  EXPECT_EQ(whole.lane_steps, rail.path_steps);
  EXPECT_GT(whole.depth, rail.depth);
}

TEST(ScheduleCounts, RemoteOperandsOfALaneAreCountedToo) {
  const ScheduleCounts direct = counted("two_shot:access=remote", 4);
  EXPECT_EQ(direct.lane_remotes, direct.path_remotes);
  EXPECT_EQ(direct.lane_remotes, 6U);  // the own chunk in three inputs, three chunks in outputs
  EXPECT_EQ(direct.total_stores, 0U);
}

// n loaded and n stored by each rank, and two signals in a row; the form that only loads writes n
// too, and reads the result's other chunks once more.
TEST(ScheduleCounts, AStoreInAPeersMemoryIsAnOperandOfWhoStores) {
  for (const std::int32_t p : {2, 4, 8}) {
    const auto ranks = static_cast<std::uint64_t>(p);
    const ScheduleCounts store = counted("two_shot:access=store", p);
    const ScheduleCounts load = counted("two_shot:access=remote", p);
    EXPECT_EQ(store.chunks, ranks);
    EXPECT_EQ(store.max_operands, 2 * ranks) << p;
    EXPECT_EQ(load.max_operands, 3 * ranks - 1) << p;
    EXPECT_EQ(store.max_remotes, 2 * (ranks - 1)) << p;
    EXPECT_EQ(store.total_stores, ranks * (ranks - 1)) << p;
    EXPECT_EQ(store.depth, 2U) << p;
    EXPECT_EQ(load.depth, 3U) << p;
  }
}

// Each message is an operand of its sender and one of its receiver. Signals carry nothing.
TEST(ScheduleCounts, OperandsThatAreMessagesAreCountedAtBothEnds) {
  for (const std::int32_t p : {2, 3, 8}) {
    const ScheduleCounts ring = counted("ring", p);
    const auto ranks = static_cast<std::uint64_t>(p);
    EXPECT_EQ(ring.path_transfers, 4 * (ranks - 1)) << p;
    EXPECT_EQ(ring.lane_transfers, ring.path_transfers) << p;
    EXPECT_EQ(ring.max_transfers, 4 * (ranks - 1)) << p;
    EXPECT_EQ(ring.total_transfers, 4 * (ranks - 1) * ranks) << p;
  }
  EXPECT_EQ(counted("two_shot:access=remote", 4).total_transfers, 0U);
}

// The steps of a lane from when it may start are at least those that a slice adds to the pace.
TEST(ScheduleCounts, AFurtherSliceTakesNoMoreStepsThanTheLane) {
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t p : {2, 3, 4, 6, 8, 9, 16}) {
      const Schedule schedule = samples::built(algorithm->name, p);
      const ScheduleCounts counts = counted(algorithm->name, p);
      SCOPED_TRACE(testing::Message() << algorithm->name << ", " << p << " ranks");
      constexpr std::uint32_t kSlots = 64;  // so that the lanes alone set the pace
      const auto pace = pace_of(schedule, kSlots);
      ASSERT_TRUE(pace);
      EXPECT_GE(static_cast<double>(counts.lane_steps), pace->per_slice);
      EXPECT_LE(counts.lane_steps, counts.path_steps);
      EXPECT_LE(counts.lane_depth, counts.depth);
      EXPECT_LE(counts.lane_operands, counts.path_operands);
      EXPECT_LE(counts.lane_remotes, counts.path_remotes);
    }
}

TEST(Price, OneSliceCostsItsPathBehindTheStepsOfOtherLanes) {
  for (const char* name : {"ring", "tree", "hierarchical"}) {
    const ScheduleCounts counts = counted(name, 16);
    const std::uint64_t others = counts.max_steps - counts.lane_steps;
    EXPECT_EQ(others == 0, std::string_view(name) == "ring");
    const double piece = 4096.0 / counts.chunks;
    const double expected = counts.depth * kCosts.alpha_ns +
                            static_cast<double>(counts.path_steps + others) * kCosts.step_ns +
                            static_cast<double>(counts.path_operands) * piece * 0.5;
    EXPECT_DOUBLE_EQ(price(counts, 4096, 1), expected) << name;
    EXPECT_DOUBLE_EQ(price(counts, 4096, 1, 2), expected) << name;
  }
}

TEST(Price, BytesOfMessagesCostBesideThoseOfAllOperands) {
  HostCosts costs = kCosts;
  costs.message_ns_per_byte = 3;
  const ScheduleCounts ring = counted("ring", 4);
  const double bytes = 4096.0 / ring.chunks * static_cast<double>(ring.path_transfers);
  EXPECT_DOUBLE_EQ(price(ring, 4096, 1, 1, costs), price(ring, 4096, 1) + 3 * bytes);
  const ScheduleCounts direct = counted("two_shot:access=remote", 4);
  EXPECT_DOUBLE_EQ(price(direct, 4096, 1, 1, costs), price(direct, 4096, 1));
}

// Two hosts of two ranks: what crosses between them, in buffers.
constexpr std::int32_t kTwoHosts[] = {0, 0, 1, 1};

TEST(ScheduleCounts, OfMessagesBetweenHosts) {
  const auto crossing = [](std::string_view name) {
    const ScheduleCounts counts = counted(name, 4, kTwoHosts);
    return static_cast<double>(counts.host_far_chunks) / counts.chunks;
  };
  EXPECT_DOUBLE_EQ(crossing("hierarchical:groups=2x2"), 1);  // 2(h-1)/h
  EXPECT_DOUBLE_EQ(crossing("ring"), 1.5);                   // 2(p-1)/p over one edge
  EXPECT_DOUBLE_EQ(crossing("butterfly"), 2);                // each rank's own to its partner
  EXPECT_DOUBLE_EQ(crossing("one_shot"), 4);                 // each rank's own to both ranks there
  const ScheduleCounts butterfly = counted("butterfly", 4, kTwoHosts);
  EXPECT_EQ(butterfly.depth, 2U);
  EXPECT_EQ(butterfly.far_depth, 1U);
  for (const Algorithm* algorithm : all_algorithms()) {
    const ScheduleCounts together = counted(algorithm->name, 4, std::vector<std::int32_t>(4, 7));
    EXPECT_EQ(together.far_depth, 0U) << algorithm->name;
    EXPECT_EQ(together.host_far_chunks, 0U) << algorithm->name;
  }
}

TEST(Price, AMessageBetweenHostsCostsTheWireInstead) {
  const auto priced = [](std::string_view name, std::uint64_t bytes, std::uint32_t slices) {
    const ScheduleCounts counts = counted(name, 4, kTwoHosts);
    return PlanPrices(counts, kCosts,
                      {.replicas = 2,
                       .cores = kManyCores,
                       .wire = {.alpha_ns = 10'000,
                                .beta_ns_per_byte = 8,
                                .overhead_ns = 500,
                                .overhead_ns_per_byte = 1}})
        .at(bytes, slices);
  };
  const PlanCost small = priced("butterfly", 8, 1);
  EXPECT_DOUBLE_EQ(small.messages_ns, 10'000 + kCosts.alpha_ns);
  // Both ranks' 8 bytes by one interface, and by a core's hand out and in.
  EXPECT_DOUBLE_EQ(small.wire_ns, 2 * 8 * 8 + 2 * 8);
  // To two ranks and from two, of which alpha has one message.
  EXPECT_DOUBLE_EQ(priced("one_shot", 8, 1).wire_ns, 4 * 8 * 8 + 4 * 8 + 2 * 500);
  // Many slices: the busiest interface alone sets the pace.
  constexpr std::uint64_t kLarge = 64 << 20;
  for (const auto& [name, crossing] :
       {std::pair{"hierarchical:groups=2x2", 1.0}, {"ring", 1.5}, {"butterfly", 2.0}})
    EXPECT_NEAR(priced(name, kLarge, 1000).wire_ns / (crossing * 8 * kLarge), 1, 0.01) << name;
}

// With bytes that cost nothing only the slices' own messages and steps remain.
TEST(Price, AFurtherSliceCostsALaneWithoutReplicas) {
  constexpr HostCosts kFree{.alpha_ns = 100, .step_ns = 10};
  const ScheduleCounts ring = counted("ring", 16), tree = counted("tree", 16);
  const auto further = [&](const ScheduleCounts& counts) {
    return (price(counts, 1 << 20, 101, 1, kFree) - price(counts, 1 << 20, 1, 1, kFree)) / 100;
  };
  EXPECT_DOUBLE_EQ(further(ring), 30 * 100 + 31 * 10);  // all of the path: depth and steps
  EXPECT_DOUBLE_EQ(further(tree), static_cast<double>(tree.max_steps) * 10);  // a rank's own work
  const ScheduleCounts levels = counted("hierarchical:outer=ring:groups=8x2", 16);
  EXPECT_DOUBLE_EQ(further(levels), 14 * 100 + 15 * 10);  // the ring between 8 groups
}

// Each replica's lanes take its own slices one after another.
TEST(Price, ALaneIsSharedByReplicas) {
  constexpr HostCosts kFree{.alpha_ns = 100, .step_ns = 1};
  const ScheduleCounts ring = counted("ring", 16);
  const double lane = 30 * 100 + 31 * 1;
  for (const std::uint32_t replicas : {1U, 2U, 4U}) {
    EXPECT_DOUBLE_EQ(price(ring, 1 << 20, 101, replicas, kFree), lane * (1 + 100 / replicas));
    EXPECT_DOUBLE_EQ(price(ring, 1 << 20, replicas, replicas, kFree),
                     lane + (replicas - 1) * static_cast<double>(ring.max_steps));
  }
}

// Around a ring of two hosts each of the 2(p-1) messages waits for a slot of one connection.
TEST(Price, AConnectionBetweenHostsHasAsManyMessagesUnderWayAsSlots) {
  const std::vector<std::int32_t> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const ScheduleCounts ring = counted("ring", 8, hosts);
  EXPECT_EQ(ring.far_connection_messages, 14U);
  EXPECT_EQ(ring.far_connection_chunks, 14U);
  for (const std::uint32_t slots : {1U, 2U, 7U})
    EXPECT_DOUBLE_EQ(PlanPrices(ring, {.alpha_ns = 1},
                                {.slots = slots, .cores = kManyCores, .wire = {.alpha_ns = 10'000}})
                         .at(8, 1)
                         .time_ns,
                     std::max(14 * 10'000 / slots, 4U * 10'000 + 10))
        << slots;
}

TEST(Price, ReplicasNeverMakeSlicesDearer) {
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t p : {2, 4, 9, 16})
      for (const std::uint32_t slices : {1U, 2U, 64U}) {
        const ScheduleCounts counts = counted(algorithm->name, p);
        EXPECT_LE(price(counts, 1 << 20, slices, 2), price(counts, 1 << 20, slices, 1))
            << algorithm->name << " " << p << " " << slices;
      }
}

// Who shares a core waits for each message until the others have had their turn.
TEST(Price, ACoreGoesRoundItsRanksForEachMessageOfThePath) {
  constexpr HostCosts kSwitch{.switch_ns = 100};
  for (const auto& [name, depth] : {std::pair{"one_shot", 1}, {"two_shot", 2}, {"ring", 6}}) {
    const auto among = [&, name = name](std::int32_t cores) {
      return PlanPrices(counted(name, 4), kSwitch, {.cores = cores}).at(4096, 1).time_ns;
    };
    EXPECT_DOUBLE_EQ(among(4), 0) << name;
    EXPECT_DOUBLE_EQ(among(2), 100 * 2 * depth) << name;
    EXPECT_DOUBLE_EQ(among(1), 100 * 4 * depth) << name;
  }
}

// Each message's line is another core's, and with nothing else to do a core waits for it: what 128
// ranks send to each other on two cores is no cheaper than 7 messages of each one after the other.
TEST(Price, CountsEachMessageWhereRanksOutnumberCores) {
  constexpr HostCosts kLines{.alpha_ns = 50};
  for (const auto& [name, messages] : {std::pair{"one_shot", 128 * 127}, {"butterfly", 128 * 7}}) {
    const auto among = [&, name = name](std::int32_t cores) {
      return PlanPrices(counted(name, 128), kLines, {.cores = cores}).at(8, 1).time_ns;
    };
    EXPECT_DOUBLE_EQ(among(2), 50.0 * messages / 2) << name;
    EXPECT_LE(among(128), 50.0 * 7) << name;
  }
}

TEST(Price, IsNeverUnderTheWorkThatTheCoresShare) {
  const ScheduleCounts tree = counted("tree", 16);
  const PlanPrices one_core(tree, kCosts, {.replicas = 2, .cores = 1});
  const double work = 64 * static_cast<double>(tree.total_steps) * kCosts.step_ns +
                      static_cast<double>(tree.total_operands) * (1 << 19) * 0.5;
  EXPECT_GE(one_core.at(1 << 20, 64).time_ns, work * (1 - 1e-9));
}

// A broadcast among four ranks on two cores executes as many operands in every form. Where the root
// does most, its core serves another rank beside: 5 of its own and a third of the others' 6.
TEST(Price, ACoreIsSharedWithTheRankThatWorksMost) {
  constexpr HostCosts kBytes{.beta_ns_per_byte = 1};
  const auto among = [&](std::string_view name, std::int32_t cores) {
    const ScheduleCounts counts = count_schedule(*find_algorithm(name).value(),
                                                 {.collective = Collective::kBroadcast, .ranks = 4})
                                      .value();
    EXPECT_EQ(counts.total_operands, 11U * counts.chunks) << name;
    return PlanPrices(counts, kBytes, {.cores = cores}).at(1 << 20, 1 << 10).time_ns / (1 << 20);
  };
  EXPECT_NEAR(among("one_shot", 2), 5 + 6.0 / 3, 1e-9);
  EXPECT_NEAR(among("ring", 2), 3 + 8.0 / 3, 1e-9);
  EXPECT_NEAR(among("one_shot", 1), 11, 1e-9);
  EXPECT_NEAR(among("one_shot", 4), 5, 0.01);
}

// A rank's lanes share its thread, whatever cores there are.
TEST(Price, IsNeverLessThanTheBusiestRanksWork) {
  constexpr HostCosts kBytes{.beta_ns_per_byte = 1};
  for (const Algorithm* algorithm : all_algorithms())
    for (const std::int32_t p : {2, 4, 9}) {
      const ScheduleCounts counts = counted(algorithm->name, p);
      const double work = static_cast<double>(counts.max_operands) * (1 << 20) / counts.chunks;
      EXPECT_GE(price(counts, 1 << 20, 1, 1, kBytes), work * (1 - 1e-9)) << algorithm->name;
    }
}

}  // namespace
}  // namespace tutti
