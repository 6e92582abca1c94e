// SPDX-License-Identifier: Apache-2.0
#include "lab/cluster_network.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace tutti {
namespace {

Cluster cluster_of(const std::string& text) { return parse_cluster(text, "test").value(); }

// `more` begins with a comma.
Cluster gpus(int nodes, int per_node, const std::string& more = "") {
  return cluster_of(fmt::format(
      R"({{"name":"g","nodes":{},"gpus_per_node":{},"gpu":"h100","nic":{{"kind":"ndr200"}}{}}})",
      nodes, per_node, more));
}

bool share_links(const Route& a, const Route& b) {
  return std::ranges::any_of(
      a.links(), [&](LinkId id) { return std::ranges::find(b.links(), id) != b.links().end(); });
}

TEST(ClusterNetwork, InsideANodeThroughPortsOrAMesh) {
  const ClusterNetwork switched(gpus(2, 8));
  const Route route = switched.route(1, 5);
  EXPECT_EQ(route.hop, Hop::kDevice);
  ASSERT_EQ(route.links().size(), 2U);
  for (const LinkId id : route.links())
    EXPECT_DOUBLE_EQ(switched.link_ns_per_byte()[id], 1 / 450.0);
  EXPECT_TRUE(share_links(route, switched.route(1, 6)));    // out of 1
  EXPECT_TRUE(share_links(route, switched.route(2, 5)));    // into 5
  EXPECT_FALSE(share_links(route, switched.route(5, 1)));   // the other direction
  EXPECT_FALSE(share_links(route, switched.route(9, 13)));  // another node
  const ClusterNetwork mesh(gpus(1, 4));
  EXPECT_FALSE(share_links(mesh.route(0, 1), mesh.route(0, 2)));
  EXPECT_DOUBLE_EQ(mesh.route(0, 1).ns_per_byte, 3 / 450.0);
}

TEST(ClusterNetwork, BetweenNodesByTheNicOfTheRank) {
  const ClusterNetwork network(gpus(2, 4, R"(,"nics_per_node":2)"));
  const Route route = network.route(0, 5);
  EXPECT_EQ(route.hop, Hop::kNetwork);
  EXPECT_DOUBLE_EQ(route.ns_per_byte, 1 / 25.0);
  EXPECT_TRUE(share_links(route, network.route(2, 4)));   // GPUs 0 and 2 share a NIC
  EXPECT_FALSE(share_links(route, network.route(1, 4)));  // GPU 1 has the other one
  EXPECT_EQ(network.block(), 4);
  const ClusterNetwork narrow(cluster_of(
      R"({"name":"n","nodes":2,"ranks_per_node":1,"nic":{"kind":"hdr200","pcie":"pcie3x16"}})"));
  EXPECT_NEAR(1 / narrow.route(0, 1).ns_per_byte, 15.76, 0.01);
}

TEST(ClusterNetwork, HostRanksShareMemoryAndCores) {
  const ClusterNetwork network(cluster_of(
      R"({"name":"c","nodes":1,"ranks_per_node":8,"cores_per_node":4,"intra":{"kind":"shm-l3"}})"));
  EXPECT_EQ(network.route(0, 1).hop, Hop::kShared);
  EXPECT_TRUE(share_links(network.route(0, 1), network.route(6, 3)));
  EXPECT_EQ(network.pool_ranks(), 8);
  EXPECT_EQ(network.pool_workers(), 4);
  EXPECT_EQ(ClusterNetwork(gpus(1, 8)).pool_ranks(), 1);
}

TEST(ClusterNetwork, OversubscribedLevelsAreSharedByTheirGroups) {
  const ClusterNetwork network(gpus(8, 4, R"(,"switches":[
      {"nodes_per_group":2,"latency_ns":100},
      {"nodes_per_group":4,"oversubscription":2,"latency_ns":200},
      {"nodes_per_group":8,"latency_ns":300}])"));
  EXPECT_EQ(network.block(), 0);
  const Route near = network.route(0, 4), next = network.route(0, 8), far = network.route(0, 16);
  EXPECT_EQ(near.links().size(), 2U);
  EXPECT_EQ(next.links().size(), 2U);
  ASSERT_EQ(far.links().size(), 4U);
  // 4 nodes of 4 NICs of 25 GB/s, halved.
  EXPECT_DOUBLE_EQ(network.link_ns_per_byte()[far.links()[2]], 1 / 200.0);
  EXPECT_DOUBLE_EQ(next.latency_ns - near.latency_ns, 100 + 200);
  EXPECT_DOUBLE_EQ(far.latency_ns - near.latency_ns, 100 + 2 * 200 + 300);
  EXPECT_TRUE(share_links(far, network.route(13, 17)));  // up from the one half, into the other
  EXPECT_FALSE(share_links(far, network.route(16, 0)));  // the other way
}

TEST(ClusterNetwork, OnRailsOtherNicsAreFar) {
  const ClusterNetwork network(gpus(4, 4, R"(,"rails":true,"switches":[
      {"nodes_per_group":4,"oversubscription":4}])"));
  // All nodes below one switch a rail, so no uplink is crossed within a rail, nor are there any.
  EXPECT_EQ(network.route(0, 4).links().size(), 2U);
  EXPECT_EQ(network.block(), 4);
}

TEST(ClusterNetwork, TorusInOrderOfDimensions) {
  const ClusterNetwork network(cluster_of(R"({"name":"t","nodes":64,"ranks_per_node":1,
      "nic":{"kind":"tofud"},"torus":{"shape":[4,4,4],"hop_ns":100}})"));
  const double nic = (*find_technology("tofud"))->latency_ns;
  EXPECT_DOUBLE_EQ(network.route(0, 1).latency_ns, nic + 100);
  EXPECT_DOUBLE_EQ(network.route(0, 3).latency_ns, nic + 100);   // around
  EXPECT_DOUBLE_EQ(network.route(0, 42).latency_ns, nic + 600);  // 2, 2, 2
  EXPECT_EQ(network.route(0, 42).links().size(), 2U + 6U);
  EXPECT_TRUE(share_links(network.route(0, 2), network.route(1, 3)));   // the hop from 1 to 2
  EXPECT_FALSE(share_links(network.route(0, 1), network.route(3, 0)));  // before it
  EXPECT_EQ(network.block(), 0);
}

TEST(ClusterNetwork, LongWaysAreToldByAFewLinks) {
  const ClusterNetwork network(cluster_of(R"({"name":"t","nodes":1000,"ranks_per_node":1,
      "nic":{"kind":"tofud"},"torus":{"shape":[1000]}})"));
  const Route route = network.route(0, 500);
  EXPECT_EQ(route.links().size(), Route::kMostLinks);
  EXPECT_EQ(std::set<LinkId>(route.links().begin(), route.links().end()).size(), Route::kMostLinks);
  EXPECT_TRUE(share_links(route, network.route(0, 1)));
}

// What network.hpp promises of every network.
void expect_contract(const ClusterNetwork& network) {
  const Rank ranks = network.ranks(), block = network.block();
  for (Rank from = 0; from < ranks; ++from)
    for (Rank to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const Route route = network.route(from, to);
      ASSERT_GT(route.ns_per_byte, 0);
      ASSERT_FALSE(route.links().empty());
      for (const LinkId id : route.links()) ASSERT_LT(id, network.link_ns_per_byte().size());
      if (block == 0) continue;
      // All nodes one further: the same route, with links one node further.
      const Route moved = network.route((from + block) % ranks, (to + block) % ranks);
      const auto nodes = static_cast<std::size_t>(ranks / block);
      const auto per_node = static_cast<LinkId>(network.link_ns_per_byte().size() / nodes);
      ASSERT_EQ(moved.latency_ns, route.latency_ns);
      ASSERT_EQ(moved.link_count, route.link_count);
      for (std::size_t i = 0; i < route.links().size(); ++i)
        ASSERT_EQ(moved.links()[i],
                  (route.links()[i] + per_node) % network.link_ns_per_byte().size());
    }
}

TEST(ClusterNetwork, KeepsTheContractOfNetworks) {
  expect_contract(ClusterNetwork(gpus(3, 8)));
  expect_contract(ClusterNetwork(gpus(3, 4, R"(,"nics_per_node":2)")));
  expect_contract(ClusterNetwork(gpus(4, 2, R"(,"rails":true,"switches":[
      {"nodes_per_group":2,"oversubscription":2},{"nodes_per_group":4}])")));
  expect_contract(ClusterNetwork(gpus(4, 2, R"(,"switches":[{"nodes_per_group":1,
      "oversubscription":2,"latency_ns":50}])")));
  expect_contract(ClusterNetwork(
      cluster_of(R"({"name":"c","nodes":3,"ranks_per_node":4,"nic":{"kind":"edr"}})")));
  expect_contract(ClusterNetwork(cluster_of(R"({"name":"t","nodes":12,"ranks_per_node":2,
      "nic":{"kind":"tofud"},"torus":{"shape":[3,4]}})")));
}

}  // namespace
}  // namespace tutti
