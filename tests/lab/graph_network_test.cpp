// SPDX-License-Identifier: Apache-2.0
// The network of discovered graphs: its routes are the graph's ways.
#include "lab/graph_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "topology/hwloc_reader.hpp"
#include "topology/merge.hpp"
#include "topology/nccl_reader.hpp"

namespace tutti {
namespace {

using testing::HasSubstr;
using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;

Graph machine(const std::string& name) {
  auto graph = topology::read_nccl_file(std::string(TUTTI_FIXTURES) + "nccl/" + name);
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

Graph cluster_of(const Graph& host, std::size_t hosts, const char* description = nullptr) {
  const std::vector<Graph> copies(hosts, host);
  Cluster cluster;
  if (description != nullptr) {
    const auto parsed = parse_cluster(description, "test");
    EXPECT_TRUE(parsed) << parsed.error().message;
    cluster = *parsed;
  }
  auto graph = topology::merge(copies, description == nullptr ? nullptr : &cluster);
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

GraphNetwork network_of(const Graph& graph, const std::vector<DeviceId>& devices) {
  auto network = GraphNetwork::make(graph, devices);
  EXPECT_TRUE(network) << network.error().message;
  return *std::move(network);
}

// Every route has the way's latency and bandwidth, where the way is the only nearest one.
TEST(GraphNetwork, RoutesAreTheGraphsWays) {
  for (const char* name : {"dgx1v-own.xml", "rccl_topo_8p_rome.xml", "p4d-24xl-topo.xml"}) {
    const Graph graph = cluster_of(machine(name), 2);
    const std::vector<DeviceId> gpus = graph.of_kind(DeviceKind::kGpu);
    const GraphNetwork network = network_of(graph, gpus);
    for (Rank from = 0; from < network.ranks(); ++from)
      for (Rank to = 0; to < network.ranks(); ++to) {
        if (from == to) continue;
        const Route route = network.route(from, to);
        const topology::Path path = path_between(graph, gpus[static_cast<std::size_t>(from)],
                                                 gpus[static_cast<std::size_t>(to)]);
        EXPECT_DOUBLE_EQ(route.latency_ns, path.latency_ns) << name << from << " " << to;
        EXPECT_DOUBLE_EQ(route.ns_per_byte, 1 / path.bytes_per_ns);
        EXPECT_EQ(route.hop, from / 8 == to / 8 ? Hop::kDevice : Hop::kNetwork);
        double slowest = 0;
        std::set<LinkId> seen;
        for (const LinkId link : route.links()) {
          ASSERT_LT(link, network.link_ns_per_byte().size());
          slowest = std::max(slowest, network.link_ns_per_byte()[link]);
          EXPECT_TRUE(seen.insert(link).second);
          EXPECT_FALSE(seen.contains(link ^ 1)) << "a link there and back";
        }
        EXPECT_DOUBLE_EQ(slowest, route.ns_per_byte);
      }
  }
}

TEST(GraphNetwork, HostsAlikeAreBlocks) {
  const Graph graph = cluster_of(machine("dgx1v-own.xml"), 4);
  const GraphNetwork network = network_of(graph, graph.of_kind(DeviceKind::kGpu));
  ASSERT_EQ(network.block(), 8);
  const std::size_t links = network.link_ns_per_byte().size() / 4;
  // Routes from node 1 to node 3 are those from node 0 to node 2, a node's links further.
  for (Rank from = 0; from < 8; ++from)
    for (Rank to = 16; to < 24; ++to) {
      const Route first = network.route(from, to);
      const Route moved = network.route(from + 8, to + 8);
      ASSERT_EQ(first.link_count, moved.link_count);
      for (std::size_t i = 0; i < first.link_count; ++i)
        EXPECT_EQ(first.link_ids[i] + links, moved.link_ids[i]);
    }
  std::vector<DeviceId> devices = graph.of_kind(DeviceKind::kGpu);
  std::swap(devices[0], devices[8]);
  EXPECT_EQ(network_of(graph, devices).block(), 0);
  const Graph levels = cluster_of(machine("dgx1v-own.xml"), 4,
                                  R"({"name": "c", "nodes": 4, "gpus_per_node": 8, "gpu": "v100",
      "nic": {"kind": "edr"}, "switches": [{"nodes_per_group": 2, "oversubscription": 2}]})");
  EXPECT_EQ(network_of(levels, levels.of_kind(DeviceKind::kGpu)).block(), 0);
}

TEST(GraphNetwork, RailsAreKeptApart) {
  const Graph graph = cluster_of(machine("dgx1v-own.xml"), 2,
                                 R"({"name": "c", "nodes": 2, "gpus_per_node": 8, "gpu": "v100",
      "nics_per_node": 4, "nic": {"kind": "edr"}, "rails": true})");
  const GraphNetwork network = network_of(graph, graph.of_kind(DeviceKind::kGpu));
  EXPECT_EQ(network.block(), 8);
  const auto shared = [&](Rank a, Rank b, Rank c, Rank d) {
    const Route one = network.route(a, b), other = network.route(c, d);
    return std::ranges::any_of(one.links(), [&](LinkId link) {
      return std::ranges::find(other.links(), link) != other.links().end();
    });
  };
  EXPECT_TRUE(shared(0, 8, 1, 9));    // GPUs 0 and 1 have one NIC
  EXPECT_FALSE(shared(0, 8, 2, 10));  // GPU 2 has another
}

TEST(GraphNetwork, CoresShareNicsInTurnAndWorkers) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const auto host = topology::read_synthetic("package:2 numa:1 l3:1 core:4 pu:1");
  ASSERT_TRUE(host);
  const Graph graph = cluster_of(*host, 2);
  const std::vector<DeviceId> cores = graph.of_kind(DeviceKind::kCore);
  const GraphNetwork network = network_of(graph, cores);
  EXPECT_EQ(network.pool_ranks(), 8);
  EXPECT_EQ(network.pool_workers(), 8);
  EXPECT_EQ(network.route(0, 1).hop, Hop::kShared);
  EXPECT_DOUBLE_EQ(network.route(0, 1).latency_ns, 30);
  EXPECT_DOUBLE_EQ(network.route(0, 1).ns_per_byte, 1 / 20.0);
  EXPECT_DOUBLE_EQ(network.route(0, 4).latency_ns, 150);
  EXPECT_DOUBLE_EQ(network.route(0, 4).ns_per_byte, 1 / 7.0);
  EXPECT_EQ(network.route(0, 8).hop, Hop::kNetwork);
  // Several ranks on one core.
  const std::vector<DeviceId> one(3, cores[0]);
  EXPECT_EQ(network_of(graph, one).route(0, 2).link_count, 0);
}

TEST(GraphNetwork, RefusesWhatCannotBe) {
  const Graph graph = machine("dgx1v-own.xml");
  const auto refusal = [](const Graph& on, const std::vector<DeviceId>& devices) {
    const auto network = GraphNetwork::make(on, devices);
    return network ? std::string("taken") : network.error().message;
  };
  EXPECT_THAT(refusal(graph, {}), HasSubstr("no ranks"));
  EXPECT_THAT(refusal(graph, {9999}), HasSubstr("device 9999"));
  EXPECT_THAT(refusal(graph, graph.of_kind(DeviceKind::kNic)), HasSubstr("mlx5_0, which is a NIC"));
  Graph apart;
  apart.add_device({.kind = DeviceKind::kHost});
  apart.add_device({.kind = DeviceKind::kHost});
  EXPECT_THAT(refusal(apart, {0, 1}), HasSubstr("no path is known from rank 0"));
}

}  // namespace
}  // namespace tutti
