// SPDX-License-Identifier: Apache-2.0
// Graphs as bytes: what goes out comes back, and nothing that a peer sends is trusted.
#include "topology/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "fixtures.hpp"
#include "tests/seed.hpp"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

TEST(GraphWire, EveryFixtureComesBackAsItWas) {
  for (const std::string& path : fixtures_of("nccl")) {
    const auto graph = read_nccl_file(path);
    ASSERT_TRUE(graph) << graph.error().message;
    const std::vector<std::byte> bytes = encode(*graph);
    const auto back = decode(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(encode(*back), bytes) << path;
    EXPECT_EQ(back->hosts(), graph->hosts());
    const std::vector<DeviceId> gpus = graph->of_kind(DeviceKind::kGpu);
    EXPECT_EQ(path_between(*back, gpus[0], gpus[1]).name(),
              path_between(*graph, gpus[0], gpus[1]).name());
  }
}

TEST(GraphWire, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = encode(nccl("ndv2-topo.xml"));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto graph = decode(std::span(bytes).first(length));
    ASSERT_FALSE(graph) << length;
    EXPECT_EQ(graph.error().code, Code::kRemoteError);
  }
}

TEST(GraphWire, ChangedBytesAreAGraphOrOneLine) {
  const std::uint64_t seed = draw_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::byte> whole = encode(nccl("rccl_topo_8p_90a_1.xml"));
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = whole;
    for (std::uint64_t i = 0; i <= random() % 4; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto graph = decode(bytes);
    if (!graph) {
      EXPECT_EQ(graph.error().message.find('\n'), std::string::npos);
      continue;
    }
    for (const Link& link : graph->links()) {
      ASSERT_LT(std::max(link.a, link.b), graph->devices().size());
      ASSERT_GT(link.bytes_per_ns, 0);
    }
    for (DeviceId id = 0; id < graph->devices().size(); ++id)
      ASSERT_TRUE(graph->device(id).parent == kNoDevice || graph->device(id).parent < id);
  }
}

TEST(Graph, ListsOfProcessorsFindTheirCore) {
  EXPECT_TRUE(holds_cpu("0-3,8", 2));
  EXPECT_TRUE(holds_cpu("0-3,8", 8));
  EXPECT_FALSE(holds_cpu("0-3,8", 4));
  EXPECT_FALSE(holds_cpu("", 0));
  EXPECT_FALSE(holds_cpu("0-,x", 0));
  Graph graph;
  graph.add_device({.kind = DeviceKind::kHost});
  for (const char* cpus : {"0,2", "1,3"}) {
    Device core{.kind = DeviceKind::kCore, .parent = 0};
    core.cpus = cpus;
    graph.add_device(std::move(core));
  }
  EXPECT_EQ(core_of(graph, 0, 2), 1);
  EXPECT_EQ(core_of(graph, 0, 3), 2);
  EXPECT_EQ(core_of(graph, 0, 4), kNoDevice);
  EXPECT_EQ(core_of(graph, 1, 0), kNoDevice);
}

TEST(GraphWire, AnotherFormIsNamed) {
  std::vector<std::byte> bytes = encode(nccl("ndv2-topo.xml"));
  bytes[0] = std::byte{77};
  EXPECT_THAT(decode(bytes).error().message, HasSubstr("has form 77"));
}

}  // namespace
}  // namespace tutti::topology
