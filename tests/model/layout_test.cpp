// SPDX-License-Identifier: Apache-2.0
// Orders of ranks over real machines: as good as all permutations where these can be tried, never
// worse than rank order, NVLink alone where that goes around.
#include "model/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <random>

#include "tests/seed.hpp"
#include "topology/hwloc_reader.hpp"
#include "topology/merge.hpp"
#include "topology/nccl_reader.hpp"
#include "topology/path.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;
using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;

std::string fixture(const std::string& name) { return std::string(TUTTI_FIXTURES) + name; }

Graph machine(const std::string& name) {
  auto graph = topology::read_nccl_file(fixture("nccl/" + name));
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

std::vector<Layout> rings(const Graph& graph, const std::vector<DeviceId>& devices) {
  auto layouts = lay_rings(graph, devices);
  EXPECT_TRUE(layouts) << layouts.error().message;
  return *std::move(layouts);
}

CostMatrix costs_of(const Graph& graph, const std::vector<DeviceId>& devices) {
  auto costs = hop_costs(graph, devices);
  EXPECT_TRUE(costs) << costs.error().message;
  return *std::move(costs);
}

Order plain(std::size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

OrderCost best_of_all(const CostMatrix& costs) {
  Order order = plain(costs.places());
  OrderCost best = tour_cost(costs, order);
  while (std::next_permutation(order.begin() + 1, order.end()))
    best = std::min(best, tour_cost(costs, order));
  return best;
}

bool is_permutation_of_all(Order order) {
  std::ranges::sort(order);
  return order == plain(order.size());
}

CostMatrix random_costs(std::size_t places, std::mt19937_64& random, std::uint64_t distinct) {
  CostMatrix costs(places);
  for (std::size_t i = 0; i < places; ++i)
    for (std::size_t j = 0; j < i; ++j)
      costs.set(i, j, static_cast<double>(1 + random() % distinct));
  return costs;
}

TEST(Tour, UpToSevenPlacesItIsTheBestOfAll) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    const CostMatrix costs = random_costs(1 + random() % 7, random, 1 + random() % 20);
    const Order order = best_tour(costs);
    EXPECT_TRUE(is_permutation_of_all(order));
    EXPECT_EQ(tour_cost(costs, order), best_of_all(costs));
  }
}

TEST(Tour, TreesToo) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const std::size_t places = 2 + random() % 5;
    const CostMatrix costs = random_costs(places, random, 9);
    Edges tree;
    for (std::uint32_t k = 1; k < places; ++k)
      tree.emplace_back(k, static_cast<std::uint32_t>(random() % k));
    Order order = plain(places);
    OrderCost best = edges_cost(costs, tree, order);
    while (std::next_permutation(order.begin(), order.end()))
      best = std::min(best, edges_cost(costs, tree, order));
    EXPECT_EQ(edges_cost(costs, tree, improve_edges(costs, tree, plain(places))), best);
    const CostMatrix many = random_costs(12 + random() % 12, random, 9);
    Edges heap;
    for (std::uint32_t k = 1; k < many.places(); ++k) heap.emplace_back(k, (k - 1) / 2);
    const Order found = improve_edges(many, heap, plain(many.places()));
    EXPECT_TRUE(is_permutation_of_all(found));
    EXPECT_LE(edges_cost(many, heap, found), edges_cost(many, heap, plain(many.places())));
  }
}

TEST(Tour, BeyondItIsNeverWorseThanTheOrderGiven) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    const CostMatrix costs = random_costs(10 + random() % 40, random, 2 + random() % 20);
    const Order order = best_tour(costs);
    EXPECT_TRUE(is_permutation_of_all(order));
    EXPECT_LE(tour_cost(costs, order), tour_cost(costs, plain(costs.places())));
    EXPECT_EQ(order, best_tour(costs));
  }
}

TEST(Tour, FindsTheRingAmongShuffledPlaces) {
  // Neighbours on a circle of 40, numbered at random.
  std::mt19937_64 random(7);
  Order number = plain(40);
  std::ranges::shuffle(number, random);
  CostMatrix costs(40);
  for (std::uint32_t i = 0; i < 40; ++i)
    for (std::uint32_t j = 0; j < i; ++j) {
      const std::uint32_t around = (number[i] + 40 - number[j]) % 40;
      costs.set(i, j, std::min(around, 40 - around));
    }
  EXPECT_EQ(tour_cost(costs, best_tour(costs)), (OrderCost{1, 40}));
}

TEST(Layout, RingOfNvlinksAloneOnDgx1) {
  const Graph graph = machine("dgx1v-own.xml");
  const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
  const std::vector<Layout> found = rings(graph, gpus);
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(found[0].nics.empty());
  ASSERT_TRUE(is_permutation_of_all(found[0].order));
  for (std::size_t k = 0; k < 8; ++k) {
    const auto path =
        path_between(graph, gpus[found[0].order[k]], gpus[found[0].order[(k + 1) % 8]]);
    EXPECT_EQ(path.kind, topology::PathClass::kNvlink) << path.name();
  }
  // By number, GPU 3 and GPU 4 have no link.
  EXPECT_EQ(path_between(graph, gpus[3], gpus[4]).name(), "SYS");
  const CostMatrix costs = costs_of(graph, gpus);
  EXPECT_LT(tour_cost(costs, found[0].order), tour_cost(costs, plain(8)));
}

TEST(Layout, XgmiMeshesGoAroundOnXgmi) {
  for (const char* name : {"rccl_topo_8p_90a_1.xml"}) {
    const Graph graph = machine(name);
    const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
    const Order order = rings(graph, gpus)[0].order;
    for (std::size_t k = 0; k < order.size(); ++k)
      EXPECT_EQ(path_between(graph, gpus[order[k]], gpus[order[(k + 1) % order.size()]]).kind,
                topology::PathClass::kXgmi)
          << name;
  }
  // Two rings of four: the way from one to the other is taken twice, no more.
  const Graph graph = machine("rccl_topo_8p_rome.xml");
  const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
  const Order order = rings(graph, gpus)[0].order;
  int outside = 0;
  for (std::size_t k = 0; k < 8; ++k)
    outside += path_between(graph, gpus[order[k]], gpus[order[(k + 1) % 8]]).kind !=
               topology::PathClass::kXgmi;
  EXPECT_EQ(outside, 2);
}

TEST(Layout, OnEveryFixtureItIsOptimalOrNoWorse) {
  for (const auto& entry : std::filesystem::directory_iterator(fixture("nccl"))) {
    const auto graph = topology::read_nccl_file(entry.path());
    ASSERT_TRUE(graph) << graph.error().message;
    if (graph->hosts() > 1) continue;
    std::vector<DeviceId> gpus = graph->of_kind(DeviceKind::kGpu);
    const CostMatrix all = costs_of(*graph, gpus);
    EXPECT_LE(tour_cost(all, rings(*graph, gpus)[0].order), tour_cost(all, plain(gpus.size())))
        << entry.path();
    gpus.resize(std::min<std::size_t>(gpus.size(), 7));
    const CostMatrix costs = costs_of(*graph, gpus);
    EXPECT_EQ(tour_cost(costs, rings(*graph, gpus)[0].order), best_of_all(costs)) << entry.path();
  }
}

TEST(Layout, CoresGoByCacheAndPackage) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const auto graph = topology::read_synthetic("package:2 numa:2 l3:2 core:4 pu:1");
  ASSERT_TRUE(graph);
  // Ranks in turn over the caches, as launchers that scatter put them.
  const std::vector<DeviceId> cores = graph->of_kind(DeviceKind::kCore);
  std::vector<DeviceId> scattered;
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t cache = 0; cache < 8; ++cache) scattered.push_back(cores[cache * 4 + i]);
  const Order order = rings(*graph, scattered)[0].order;
  int caches_left = 0, packages_left = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto path = path_between(*graph, scattered[order[k]], scattered[order[(k + 1) % 32]]);
    caches_left += path.kind != topology::PathClass::kCache;
    packages_left += path.kind == topology::PathClass::kSys;
  }
  EXPECT_EQ(caches_left, 8);
  EXPECT_EQ(packages_left, 2);
}

TEST(Layout, NumaDistancesCount) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const auto graph = topology::read_hwloc_file(fixture("hwloc/epyc-corona.xml"));
  ASSERT_TRUE(graph);
  const std::vector<DeviceId> cores = graph->of_kind(DeviceKind::kCore);
  const CostMatrix costs = costs_of(*graph, cores);
  const Order order = rings(*graph, cores)[0].order;
  EXPECT_LE(tour_cost(costs, order), tour_cost(costs, plain(cores.size())));
}

TEST(Layout, OneRingARailThroughHostsThatStayTogether) {
  const std::vector<Graph> hosts(5, machine("dgx1v-own.xml"));
  const auto graph = topology::merge(hosts, nullptr);
  ASSERT_TRUE(graph);
  // Ranks in turn over the hosts: by number no two neighbours are on one host.
  const std::vector<DeviceId> gpus = graph->of_kind(DeviceKind::kGpu);
  std::vector<DeviceId> scattered;
  for (std::size_t gpu = 0; gpu < 8; ++gpu)
    for (std::size_t host = 0; host < 5; ++host) scattered.push_back(gpus[host * 8 + gpu]);
  const std::vector<Layout> found = rings(*graph, scattered);
  ASSERT_EQ(found.size(), 4);
  for (std::size_t rail = 0; rail < 4; ++rail) {
    ASSERT_TRUE(is_permutation_of_all(found[rail].order));
    ASSERT_EQ(found[rail].nics.size(), 5);
    for (std::size_t k = 0; k < 40; ++k) {
      const DeviceId at = scattered[found[rail].order[k]];
      EXPECT_EQ(graph->device(at).host, graph->device(found[rail].nics[k / 8]).host);
      // First and last of a host are the two GPUs at the rail's NIC.
      if (k % 8 == 0 || k % 8 == 7) {
        EXPECT_EQ(path_between(*graph, at, found[rail].nics[k / 8]).name(), "PIX");
      }
    }
  }
}

TEST(Layout, ManyHostsFollowTheSwitches) {
  constexpr std::size_t kHosts = 96;
  Graph host;
  host.add_device({.kind = DeviceKind::kHost});
  const std::vector<Graph> hosts(kHosts, host);
  const auto cluster = parse_cluster(R"({"name": "c", "nodes": 96, "ranks_per_node": 1,
      "nic": {"kind": "ndr200"}, "switches": [{"nodes_per_group": 16, "oversubscription": 4}]})",
                                     "test");
  ASSERT_TRUE(cluster) << cluster.error().message;
  const auto graph = topology::merge(hosts, &*cluster);
  ASSERT_TRUE(graph);
  std::vector<DeviceId> devices = graph->of_kind(DeviceKind::kHost);
  std::mt19937_64 random(3);
  std::shuffle(devices.begin(), devices.end(), random);
  const Order order = rings(*graph, devices)[0].order;
  ASSERT_TRUE(is_permutation_of_all(order));
  int changes = 0;
  for (std::size_t k = 0; k + 1 < kHosts; ++k)
    changes += graph->device(devices[order[k]]).host / 16 !=
               graph->device(devices[order[k + 1]]).host / 16;
  EXPECT_EQ(changes, 5);
}

TEST(Layout, TreesHangOnNearNeighbours) {
  const Graph graph = machine("dgx1v-own.xml");
  const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
  Edges tree;  // a heap: place k hangs at (k - 1) / 2
  for (std::uint32_t k = 1; k < 8; ++k) tree.emplace_back(k, (k - 1) / 2);
  const auto layout = lay_edges(graph, gpus, tree);
  ASSERT_TRUE(layout) << layout.error().message;
  ASSERT_TRUE(is_permutation_of_all(layout->order));
  const CostMatrix costs = costs_of(graph, gpus);
  EXPECT_LE(edges_cost(costs, tree, layout->order), edges_cost(costs, tree, plain(8)));
  // The mesh has a spanning heap of NVLinks.
  for (const auto& [a, b] : tree)
    EXPECT_EQ(path_between(graph, gpus[layout->order[a]], gpus[layout->order[b]]).kind,
              topology::PathClass::kNvlink);
}

TEST(Layout, RefusesWhatCannotBe) {
  const Graph graph = machine("dgx1v-own.xml");
  EXPECT_THAT(lay_rings(graph, {}).error().message, HasSubstr("no ranks"));
  EXPECT_THAT(lay_rings(graph, std::vector<DeviceId>{9999}).error().message, HasSubstr("9999"));
  EXPECT_THAT(lay_edges(graph, std::vector<DeviceId>{0}, {{0, 3}}).error().message,
              HasSubstr("joins ranks 0 and 3"));
}

}  // namespace
}  // namespace tutti
