// SPDX-License-Identifier: Apache-2.0
// The orders that a job's ranks stand in: neighbours near, hosts and NUMA nodes in one piece, never
// worse than by number.
#include "model/rank_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "topology/hwloc_reader.hpp"
#include "topology/merge.hpp"
#include "topology/nccl_reader.hpp"

namespace tutti {
namespace {

using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;

Graph synthetic(const std::string& text) {
  auto graph = topology::read_synthetic(text);
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

RankLayout laid(const Graph& graph, const std::vector<DeviceId>& devices) {
  auto layout = lay_ranks(graph, devices);
  EXPECT_TRUE(layout) << layout.error().message;
  return *std::move(layout);
}

Order order_of(const RankOrder& order, std::size_t ranks) {
  Order by_place;
  for (std::size_t place = 0; place < ranks; ++place)
    by_place.push_back(static_cast<std::uint32_t>(order.rank_at(static_cast<Rank>(place))));
  return by_place;
}

// Steps of a ring that lead from one group to another.
std::size_t crossings(const Order& order,
                      const std::function<std::uint32_t(std::uint32_t)>& group) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < order.size(); ++k)
    count += group(order[k]) != group(order[(k + 1) % order.size()]) ? 1 : 0;
  return count;
}

// Eight cores of two NUMA nodes, dealt to the ranks in turn.
std::vector<DeviceId> dealt_cores(const Graph& graph) {
  const std::vector<DeviceId> cores = graph.of_kind(DeviceKind::kCore);
  std::vector<DeviceId> devices;
  for (std::size_t rank = 0; rank < cores.size(); ++rank)
    devices.push_back(cores[rank % 2 * cores.size() / 2 + rank / 2]);
  return devices;
}

TEST(RankLayout, DealtRanksFindTheirNumaNode) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const Graph graph = synthetic("numa:2 core:4 pu:1");
  const std::vector<DeviceId> devices = dealt_cores(graph);
  const RankLayout layout = laid(graph, devices);
  const auto parity = [](std::uint32_t rank) { return rank % 2; };
  EXPECT_FALSE(layout.rings.front().is_by_number());
  EXPECT_EQ(crossings(order_of(layout.rings.front(), 8), parity), 2u);
  EXPECT_EQ(layout.groups, "2x4");
  EXPECT_EQ(layout.crossings_by_number, 8u);
  EXPECT_EQ(layout.crossings, 2u);
  for (Rank place = 0; place < 4; ++place) EXPECT_EQ(layout.rings.front().rank_at(place) % 2, 0);
  // Tree edges between the nodes: as few as a tree can have, per tree.
  const Edges edges = *edges_of(**find_algorithm("tree"), 8);
  const CostMatrix costs = *hop_costs(graph, devices);
  EXPECT_LT(edges_cost(costs, edges, order_of(layout.tree, 8)),
            edges_cost(costs, edges, order_of(RankOrder(), 8)));
}

// Of one node the caches part the ranks; of several nodes they do not.
TEST(RankLayout, DealtRanksFindTheirCache) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const Graph graph = synthetic("numa:1 l3:2 core:4 pu:1");
  const RankLayout layout = laid(graph, dealt_cores(graph));
  EXPECT_EQ(crossings(order_of(layout.rings.front(), 8), [](auto rank) { return rank % 2; }), 2u);
  EXPECT_EQ(layout.groups, "2x4");
  EXPECT_EQ(layout.crossings_by_number, 8u);
  EXPECT_EQ(layout.crossings, 2u);
  const Graph nodes = synthetic("numa:2 l3:2 core:2 pu:1");
  EXPECT_EQ(laid(nodes, nodes.of_kind(DeviceKind::kCore)).groups, "2x4");
}

TEST(RankLayout, WhereNothingIsBetterNumbersStay) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const Graph graph = synthetic("numa:2 core:4 pu:1");
  const RankLayout packed = laid(graph, graph.of_kind(DeviceKind::kCore));
  EXPECT_TRUE(packed.rings.front().is_by_number());
  EXPECT_EQ(packed.groups, "2x4");
  const DeviceId host = graph.of_kind(DeviceKind::kHost).front();
  const RankLayout unbound = laid(graph, std::vector<DeviceId>(8, host));
  EXPECT_TRUE(unbound.rings.front().is_by_number());
  EXPECT_TRUE(unbound.tree.is_by_number());
  EXPECT_EQ(unbound.groups, "");
  EXPECT_EQ(unbound.crossings, 0u);
}

// Eight GPUs of a DGX-1 on each of three hosts, ranks dealt to the hosts one by one.
TEST(RankLayout, HostsStandTogetherWhereverTheirRanksAre) {
  const Graph host = *topology::read_nccl_file(std::string(TUTTI_FIXTURES) + "nccl/dgx1v-own.xml");
  const std::vector<Graph> hosts(3, host);
  const Graph graph = *topology::merge(hosts, nullptr);
  std::vector<DeviceId> devices;
  for (std::uint32_t rank = 0; rank < 24; ++rank)
    devices.push_back(graph.of_kind(DeviceKind::kGpu, rank % 3)[rank / 3]);
  const RankLayout layout = laid(graph, devices);
  const auto host_of = [&](std::uint32_t rank) { return graph.device(devices[rank]).host; };
  EXPECT_EQ(crossings(order_of(layout.rings.front(), 24), host_of), 3u);
  EXPECT_EQ(layout.groups, "3x8");
  // A ring for each NIC, over the same hosts, none like another.
  ASSERT_EQ(layout.rings.size(), graph.of_kind(DeviceKind::kNic, 0).size());
  ASSERT_GT(layout.rings.size(), 1u);
  for (const RankOrder& ring : layout.rings) {
    EXPECT_EQ(crossings(order_of(ring, 24), host_of), 3u);
    EXPECT_EQ(std::ranges::count(layout.rings, ring), 1);
  }
  devices.pop_back();
  EXPECT_EQ(laid(graph, devices).groups, "2x8+7");
}

// Searched or too large for that.
TEST(RankLayout, ManyHostsStandTogether) {
  const Graph host = *topology::read_nccl_file(std::string(TUTTI_FIXTURES) + "nccl/dgx1v-own.xml");
  const std::vector<Graph> hosts(128, host);
  const Graph graph = *topology::merge(hosts, nullptr);
  std::vector<DeviceId> devices;
  for (std::uint32_t rank = 0; rank < 1024; ++rank)
    devices.push_back(graph.of_kind(DeviceKind::kGpu, rank % 128)[rank / 128]);
  for (const std::uint64_t most_searched : {std::uint64_t{0}, kMostSearched}) {
    const RankLayout layout = *lay_ranks(graph, devices, most_searched);
    EXPECT_EQ(layout.crossings, 128u);
    EXPECT_EQ(layout.crossings_by_number, 1024u);
    EXPECT_EQ(layout.groups, "128x8");
  }
  devices.front() = 999'999;
  EXPECT_FALSE(lay_ranks(graph, devices, 0));
}

TEST(RankLayout, IsNeverWorseThanNumbers) {
  constexpr std::uint32_t kSeed = 20261122;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const Graph graph = *topology::read_nccl_file(std::string(TUTTI_FIXTURES) + "nccl/dgx1v-own.xml");
  const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
  for (int round = 0; round < 20; ++round) {
    std::vector<DeviceId> devices(3 + random() % 10);
    for (DeviceId& device : devices) device = gpus[random() % gpus.size()];
    const RankLayout layout = laid(graph, devices);
    const CostMatrix costs = *hop_costs(graph, devices);
    const Order plain = order_of(RankOrder(), devices.size());
    EXPECT_LE(tour_cost(costs, order_of(layout.rings.front(), devices.size())),
              tour_cost(costs, plain));
    const Edges edges =
        *edges_of(**find_algorithm("tree"), static_cast<std::int32_t>(devices.size()));
    EXPECT_LE(edges_cost(costs, edges, order_of(layout.tree, devices.size())),
              edges_cost(costs, edges, plain));
    if (!layout.groups.empty()) {
      const std::string name = "hierarchical:groups=" + layout.groups;
      const auto algorithm = find_algorithm(name);
      ASSERT_TRUE(algorithm) << name;
      EXPECT_TRUE((*algorithm)
                      ->supports({.collective = Collective::kAllReduce,
                                  .ranks = static_cast<std::int32_t>(devices.size())}));
    }
  }
}

TEST(RankLayout, RefusesWhatIsNoSeat) {
  const Graph graph = *topology::read_nccl_file(std::string(TUTTI_FIXTURES) + "nccl/dgx1v-own.xml");
  EXPECT_FALSE(lay_ranks(graph, {}));
  EXPECT_FALSE(lay_ranks(graph, std::vector<DeviceId>{0, 99'999, 0}));
}

}  // namespace
}  // namespace tutti
