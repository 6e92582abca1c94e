// SPDX-License-Identifier: Apache-2.0
// Hosts' graphs as one: the network without and with a description.
#include "topology/merge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.hpp"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

Cluster described(const std::string& text) {
  const auto cluster = parse_cluster(text, "test.json");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

std::vector<Graph> copies(const Graph& host, std::size_t count) {
  return std::vector<Graph>(count, host);
}

Graph merged(std::size_t count, const std::string& text) {
  const Cluster cluster = described(text);
  const auto graph = merge(copies(nccl("dgx1v-own.xml"), count), &cluster);
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

// Of GPU `from` of host 0 to GPU `to` of host `host`.
Path between(const Graph& graph, std::size_t from, std::uint32_t host, std::size_t to) {
  return path_between(graph, graph.of_kind(DeviceKind::kGpu, 0)[from],
                      graph.of_kind(DeviceKind::kGpu, host)[to]);
}

TEST(Merge, OneHostStaysAsItIs) {
  const Graph host = nccl("dgx1v-own.xml");
  const auto graph = merge(std::span(&host, 1), nullptr);
  ASSERT_TRUE(graph);
  EXPECT_EQ(encode(*graph), encode(host));
}

TEST(Merge, WithoutADescriptionOneSwitchJoinsTheNics) {
  const auto graph = merge(copies(nccl("dgx1v-own.xml"), 3), nullptr);
  ASSERT_TRUE(graph);
  EXPECT_EQ(graph->hosts(), 3);
  EXPECT_EQ(graph->count(DeviceKind::kSwitch), 1);
  EXPECT_EQ(graph->count(DeviceKind::kGpu), 24);
  const Path path = between(*graph, 0, 2, 5);
  EXPECT_EQ(path.name(), "NET");
  EXPECT_DOUBLE_EQ(path.bytes_per_ns, 12.5);
  // GPU, PCI switch, NIC, network switch and the same backwards.
  EXPECT_EQ(path.crossings.size(), 6);
}

TEST(Merge, ManagementNicsStayOutOfTheNetwork) {
  Graph host;
  const DeviceId root = host.add_device({.kind = DeviceKind::kHost});
  for (const double rate : {0.125, 25.0, 12.5, 1.25, 0.0})
    host.add_device({.kind = DeviceKind::kNic, .parent = root, .rate_bytes_per_ns = rate});
  EXPECT_EQ(fabric_nics(host, 0), (std::vector<DeviceId>{2, 3}));
}

TEST(Merge, HostsWithoutNicsGetThem) {
  Graph host;
  const DeviceId root = host.add_device({.kind = DeviceKind::kHost});
  host.add_device({.kind = DeviceKind::kNuma, .parent = root});
  host.add_link({.a = 0, .b = 1, .bytes_per_ns = 10, .latency_ns = 1});
  const auto bare = merge(copies(host, 2), nullptr);
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->count(DeviceKind::kNic), 2);
  const Cluster cluster = described(
      R"({"name": "c", "nodes": 2, "ranks_per_node": 4, "nics_per_node": 2,
          "nic": {"kind": "ndr200"}})");
  const auto graph = merge(copies(host, 2), &cluster);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->count(DeviceKind::kNic), 4);
  EXPECT_DOUBLE_EQ(path_between(*graph, 1, graph->of_kind(DeviceKind::kNuma)[1]).bytes_per_ns, 25);
}

TEST(Merge, RailsMeetOnlyInsideHosts) {
  const Graph graph = merged(2, R"({"name": "c", "nodes": 2, "gpus_per_node": 8, "gpu": "v100",
      "nics_per_node": 4, "nic": {"kind": "edr", "latency_ns": 1000}, "rails": true})");
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 4);
  EXPECT_EQ(between(graph, 0, 1, 0).crossings.size(), 6);
  // GPU 0's rail is not GPU 7's: there the bus brings it to its NIC.
  EXPECT_GT(between(graph, 0, 1, 7).crossings.size(), 6);
  EXPECT_DOUBLE_EQ(between(graph, 0, 1, 1).latency_ns, 4 * 250 + 1000);
}

TEST(Merge, LevelsOfSwitchesNarrowAndDelay) {
  const Graph graph = merged(8, R"({"name": "c", "nodes": 8, "gpus_per_node": 8, "gpu": "v100",
      "nics_per_node": 4, "nic": {"kind": "edr", "latency_ns": 1000, "GBps": 12},
      "switches": [{"nodes_per_group": 2, "oversubscription": 16, "latency_ns": 100},
                   {"nodes_per_group": 4, "oversubscription": 1, "latency_ns": 200},
                   {"nodes_per_group": 8, "oversubscription": 1, "latency_ns": 400}]})");
  EXPECT_EQ(graph.count(DeviceKind::kSwitch), 4 + 2 + 1);
  const double base_ns = 4 * 250 + 1000;
  EXPECT_DOUBLE_EQ(between(graph, 0, 1, 0).latency_ns, base_ns + 100);
  EXPECT_DOUBLE_EQ(between(graph, 0, 1, 0).bytes_per_ns, 12);
  EXPECT_DOUBLE_EQ(between(graph, 0, 2, 0).latency_ns, base_ns + 2 * 100 + 200);
  // Two nodes of four ports, a sixteenth of them upwards.
  EXPECT_DOUBLE_EQ(between(graph, 0, 2, 0).bytes_per_ns, 2 * 4 * 12 / 16.0);
  EXPECT_DOUBLE_EQ(between(graph, 0, 7, 0).latency_ns, base_ns + 2 * 100 + 2 * 200 + 400);
}

TEST(Merge, TorusTakesTheShorterWayAround) {
  const Graph graph = merged(6, R"({"name": "c", "nodes": 6, "gpus_per_node": 8, "gpu": "v100",
      "nics_per_node": 4, "nic": {"kind": "tofud", "latency_ns": 400},
      "torus": {"shape": [3, 2], "link_GBps": 6.8, "hop_ns": 100}})");
  const double base_ns = 4 * 250 + 400;
  EXPECT_DOUBLE_EQ(between(graph, 0, 2, 0).latency_ns, base_ns + 100);  // back around
  EXPECT_DOUBLE_EQ(between(graph, 0, 4, 0).latency_ns, base_ns + 200);
}

TEST(Merge, WrongSizesAreSaid) {
  const Cluster cluster =
      described(R"({"name": "small", "nodes": 2, "ranks_per_node": 4, "nic": {"kind": "ndr200"}})");
  const auto graph = merge(copies(nccl("ndv2-topo.xml"), 3), &cluster);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("described with 2 nodes, but the job has 3 hosts"));
}

}  // namespace
}  // namespace tutti::topology
