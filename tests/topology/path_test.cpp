// SPDX-License-Identifier: Apache-2.0
// Ways through graphs made by hand.
#include "topology/path.hpp"

#include <gtest/gtest.h>

#include <random>

#include "fixtures.hpp"
#include "tests/seed.hpp"

namespace tutti::topology {
namespace {

// Two hosts of two NUMA nodes with a NIC each, NIC i on switch i.
Graph two_hosts() {
  Graph graph;
  std::vector<DeviceId> nics;
  for (int host = 0; host < 2; ++host) {
    const DeviceId root = graph.add_device({.kind = DeviceKind::kHost});
    const auto own = static_cast<std::uint32_t>(host);
    for (int i = 0; i < 2; ++i) {
      const DeviceId numa =
          graph.add_device({.kind = DeviceKind::kNuma, .host = own, .parent = root});
      graph.add_link({.a = root,
                      .b = numa,
                      .kind = LinkKind::kInterconnect,
                      .bytes_per_ns = 16,
                      .latency_ns = 60});
      const DeviceId bus =
          graph.add_device({.kind = DeviceKind::kPciRoot, .host = own, .parent = numa});
      graph.add_link(
          {.a = numa, .b = bus, .kind = LinkKind::kPci, .bytes_per_ns = 64, .latency_ns = 150});
      const DeviceId nic = graph.add_device({.kind = DeviceKind::kNic, .host = own, .parent = bus});
      graph.add_link(
          {.a = bus, .b = nic, .kind = LinkKind::kPci, .bytes_per_ns = 32, .latency_ns = 150});
      nics.push_back(nic);
    }
  }
  for (int i = 0; i < 2; ++i) {
    const DeviceId network = graph.add_device({.kind = DeviceKind::kSwitch, .host = kNoHost});
    for (std::size_t host = 0; host < 2; ++host)
      graph.add_link({.a = nics[host * 2 + static_cast<std::size_t>(i)],
                      .b = network,
                      .kind = LinkKind::kNetwork,
                      .bytes_per_ns = 25,
                      .latency_ns = 700});
  }
  return graph;
}

TEST(Path, NetworkTakesTheNearNicAndNoHostPassesOn) {
  const Graph graph = two_hosts();
  const std::vector<DeviceId> numas = graph.of_kind(DeviceKind::kNuma);
  const Path straight = path_between(graph, numas[0], numas[2]);
  EXPECT_EQ(straight.name(), "NET");
  EXPECT_DOUBLE_EQ(straight.latency_ns, 2 * (150 + 150 + 700));
  EXPECT_DOUBLE_EQ(straight.bytes_per_ns, 25);
  // To the other rail's node: the network, and the interconnect of one of the hosts.
  const Path across = path_between(graph, numas[0], numas[3]);
  EXPECT_DOUBLE_EQ(across.latency_ns, 2000 + 120);
  EXPECT_DOUBLE_EQ(across.bytes_per_ns, 16);
  // In one host the switches are no short cut, however fast.
  EXPECT_EQ(path_between(graph, numas[0], numas[1]).crossings.size(), 2);
  const std::vector<DeviceId> nics = graph.of_kind(DeviceKind::kNic);
  EXPECT_EQ(path_between(graph, nics[0], nics[1]).name(), "SYS");
}

TEST(Path, SharedLinksAreThoseOfOneDirection) {
  const Graph graph = two_hosts();
  const std::vector<DeviceId> numas = graph.of_kind(DeviceKind::kNuma);
  const Path one = path_between(graph, numas[0], numas[2]);
  EXPECT_EQ(shared_links(one, one).size(), one.crossings.size());
  EXPECT_TRUE(shared_links(one, path_between(graph, numas[2], numas[0])).empty());
  EXPECT_TRUE(shared_links(one, path_between(graph, numas[1], numas[3])).empty());
}

TEST(Path, NoWayIsSaid) {
  Graph graph;
  graph.add_device({.kind = DeviceKind::kHost});
  graph.add_device({.kind = DeviceKind::kHost});
  const Path path = path_between(graph, 0, 1);
  EXPECT_FALSE(path.exists());
  EXPECT_EQ(path.name(), "-");
  EXPECT_EQ(path_between(graph, 1, 1).name(), "X");
}

// All simple ways, by exhaustion.
struct Best {
  double latency_ns = 1e300;
  double bytes_per_ns = 0;
};
void walk(const Graph& graph, DeviceId at, DeviceId to, Best so_far, std::vector<bool>& seen,
          Best& best) {
  if (at == to) {
    if (so_far.latency_ns < best.latency_ns ||
        (so_far.latency_ns == best.latency_ns && so_far.bytes_per_ns > best.bytes_per_ns))
      best = so_far;
    return;
  }
  seen[at] = true;
  for (const LinkIndex index : graph.links_of(at)) {
    const DeviceId next = graph.other_end(index, at);
    if (seen[next]) continue;
    const Link& link = graph.link(index);
    walk(graph, next, to,
         {so_far.latency_ns + link.latency_ns, std::min(so_far.bytes_per_ns, link.bytes_per_ns)},
         seen, best);
  }
  seen[at] = false;
}

TEST(Path, AgreesWithExhaustionOnRandomGraphs) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    Graph graph;
    graph.add_device({.kind = DeviceKind::kHost});
    const int size = 2 + below(5);
    for (int i = 1; i < size; ++i) graph.add_device({.kind = DeviceKind::kNuma, .parent = 0});
    for (int i = 0; i < size + below(5); ++i) {
      const auto a = static_cast<DeviceId>(below(size));
      const auto b = static_cast<DeviceId>(below(size));
      if (a != b)
        graph.add_link({.a = a,
                        .b = b,
                        .bytes_per_ns = 1.0 + below(3),
                        .latency_ns = static_cast<double>(1 + below(4))});
    }
    const std::vector<Path> paths = paths_from(graph, 0);
    for (DeviceId to = 1; to < static_cast<DeviceId>(size); ++to) {
      Best best;
      std::vector<bool> seen(graph.devices().size());
      walk(graph, 0, to, {0, 1e300}, seen, best);
      ASSERT_EQ(paths[to].exists(), best.bytes_per_ns > 0);
      if (!paths[to].exists()) continue;
      EXPECT_EQ(paths[to].latency_ns, best.latency_ns);
      EXPECT_EQ(paths[to].bytes_per_ns, best.bytes_per_ns);
    }
  }
}

}  // namespace
}  // namespace tutti::topology
