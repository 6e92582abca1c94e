// SPDX-License-Identifier: Apache-2.0
#include "topology/cluster.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kMn5 =
    R"({"name": "mn5", "nodes": 8, "gpus_per_node": 4, "gpu": "h100",
 "intra": {"kind": "nvlink4", "GBps_per_gpu": 450},
 "nics_per_node": 4, "nic": {"kind": "ndr200", "GBps": 25}})";
constexpr std::string_view kCpu =
    R"({"name": "cpu", "nodes": 2, "ranks_per_node": 64, "intra": {"kind": "shm"},
 "nic": {"kind": "hdr200"}})";
constexpr std::string_view kEverything =
    R"({"name": "all", "nodes": 8, "gpus_per_node": 8, "gpu": "A100", "cores_per_node": 128,
 "source": "none", "profile": "nccl",
 "intra": {"kind": "nvlink3", "GBps": 250, "latency_ns": 800, "form": "switch"},
 "nics_per_node": 8, "nic": {"kind": "hdr200", "GBps": 24, "latency_ns": 900, "pcie": "pcie4x16"},
 "rails": true, // one switch a rail
 "switches": [{"name": "leaf", "nodes_per_group": 4, "latency_ns": 130},
              {"nodes_per_group": 8, "oversubscription": 2.5, "latency_ns": 200}]})";
constexpr std::string_view kTorus =
    R"({"name": "t", "nodes": 64, "ranks_per_node": 1, "nics_per_node": 6,
 "nic": {"kind": "tofud"}, "torus": {"shape": [4, 4, 4], "hop_ns": 80}})";

TEST(Cluster, TheLeastFileIsFilledFromTheTables) {
  const Cluster mn5 = parse_cluster(kMn5, "mn5.json").value();
  EXPECT_EQ(mn5.ranks(), 32);
  EXPECT_EQ(mn5.gpu->name, "h100");
  EXPECT_EQ(mn5.intra.GBps, 450);
  EXPECT_EQ(mn5.intra.latency_ns, (*find_technology("nvlink4"))->latency_ns);
  EXPECT_EQ(mn5.nic.latency_ns, (*find_technology("ndr200"))->latency_ns);
  EXPECT_FALSE(mn5.switched);  // four H100 are wired to each other
  EXPECT_TRUE(mn5.switches.empty());
  const Cluster cpu = parse_cluster(kCpu, "cpu.json").value();
  EXPECT_EQ(cpu.gpu, nullptr);
  EXPECT_EQ(cpu.nics_per_node, 1);
  EXPECT_EQ(cpu.nic.GBps, 25);
  EXPECT_GT(cpu.memory_GBps, 0);
}

TEST(Cluster, EveryKeyIsRead) {
  const Cluster all = parse_cluster(kEverything, "all.json").value();
  EXPECT_EQ(all.cores_per_node, 128);
  EXPECT_EQ(all.intra.GBps, 250);
  EXPECT_EQ(all.intra.latency_ns, 800);
  EXPECT_TRUE(all.switched);
  EXPECT_EQ(all.nic.GBps, 24);
  EXPECT_EQ(all.pcie->name, "pcie4x16");
  EXPECT_TRUE(all.rails);
  ASSERT_EQ(all.switches.size(), 2U);
  EXPECT_EQ(all.switches[0].oversubscription, 1);
  EXPECT_EQ(all.switches[1].nodes_per_group, 8);
  EXPECT_EQ(all.switches[1].oversubscription, 2.5);
  EXPECT_EQ(all.profile, "nccl");
  const Cluster torus = parse_cluster(kTorus, "t.json").value();
  EXPECT_THAT(torus.torus.shape, ElementsAre(4, 4, 4));
  EXPECT_EQ(torus.torus.link_GBps, 6.8);
  EXPECT_EQ(torus.torus.hop_ns, 80);
}

TEST(Cluster, OtherSizes) {
  const Cluster torus = parse_cluster(kTorus, "t.json").value();
  EXPECT_THAT(resize(torus, 512)->torus.shape, ElementsAre(8, 8, 8));
  EXPECT_THAT(resize(torus, 24)->torus.shape, ElementsAre(4, 3, 2));
  EXPECT_FALSE(resize(torus, 0));
  EXPECT_FALSE(resize(parse_cluster(kMn5, "m").value(), 1 << 24));
  const Cluster one = parse_cluster(R"({"name":"x","nodes":1,"ranks_per_node":2})", "x").value();
  EXPECT_THAT(resize(one, 2).error().message, HasSubstr("no \"nic\""));
}

struct Refusal {
  const char *from, *to;  // a text of kEverything, and what stands in its place
  const char* says;
};

TEST(Cluster, SaysWhereAndWhat) {
  const auto kRefusals = std::to_array<Refusal>({
      {"\"nodes\": 8", "\"nodes\": 0", "c.json: /nodes: 0 is not a whole number from 1 to"},
      {"\"nodes\": 8", "\"nodes\": 2.5", "/nodes: 2.5 is not a whole number"},
      {"\"nodes\": 8", "\"nodes\": \"8\"", "/nodes: \"8\" is not a whole number"},
      {"\"nodes\": 8", "\"nodes\": 18446744073709551615", "/nodes: 18446744073709551615 is not a"},
      {"\"nodes\": 8", "\"nodes\": 1e999", "number overflow"},
      {"\"nodes\": 8", "\"nodes\": 1000000", "/: 1000000 nodes of 8 have 8000000 ranks or ports"},
      {"\"nodes\": 8,", "", "has no \"nodes\""},
      {"\"name\": \"all\",", "", "has no \"name\""},
      {"\"nodes\": 8,", "\"nodes\": 8, \"nodes\": 9,", "key \"nodes\" appears twice"},
      {"\"gpus_per_node\": 8,", "", "/: needs either \"gpus_per_node\""},
      {"\"A100\"", "\"a1000\"", "/gpu: unknown GPU 'a1000'; the nearest are a100"},
      {"\"nvlink3\"", "\"hdr200\"", "/intra/kind: 'hdr200' is a network port, not a device link"},
      {"\"hdr200\"", "\"hdr2000\"",
       "/nic/kind: unknown technology 'hdr2000'; the nearest are hdr200"},
      {"\"GBps\": 250", "\"GBps\": -1", "/intra/GBps: -1 is not a number from"},
      {"\"GBps\": 250", "\"GBps\": 1, \"GBps_per_gpu\": 1", "give one of them"},
      {"\"switch\"", "\"ring\"", "/intra/form: 'ring' is neither"},
      {"\"rails\": true", "\"rails\": 1", "/rails: 1 is neither true nor false"},
      {"\"rails\": true", "\"rail\": true", "/rail: unknown key; allowed: name, nodes"},
      {"2.5", "0.5", "/switches/1/oversubscription: 0.5 is not a number from 1 to"},
      {"\"nodes_per_group\": 8", "\"nodes_per_group\": 2", "is less than the 4 of the level below"},
      {"\"pcie4x16\"", "\"pcie4x3\"", "/nic/pcie: unknown technology"},
      {"\"latency_ns\": 900", "\"latency_ns\": [", "c.json:4:"},
  });
  for (const Refusal& refusal : kRefusals) {
    std::string text(kEverything);
    const std::size_t at = text.find(refusal.from);
    ASSERT_NE(at, std::string::npos) << refusal.from;
    text.replace(at, std::strlen(refusal.from), refusal.to);
    const auto cluster = parse_cluster(text, "c.json");
    ASSERT_FALSE(cluster) << refusal.to;
    EXPECT_THAT(cluster.error().message, HasSubstr(refusal.says));
    EXPECT_THAT(cluster.error().message, Not(HasSubstr("\n")));
  }
}

TEST(Cluster, NoFileNoCluster) {
  EXPECT_THAT(read_cluster("/nowhere/c.json").error().message, HasSubstr("No such file"));
  EXPECT_FALSE(read_cluster("/"));
  EXPECT_FALSE(parse_cluster("", "empty"));
  EXPECT_FALSE(parse_cluster(std::string(2 << 20, ' '), "long"));
  EXPECT_FALSE(parse_cluster(std::string(100'000, '['), "deep"));
  EXPECT_THAT(parse_cluster("\n\n  x", "c").error().message, HasSubstr("c:3:"));
}

// A piece of the corpus in place of another, bytes changed, cut or doubled.
std::string mutate(std::string text, std::mt19937& random) {
  constexpr std::string_view kBytes = "{}[]\",:0123456789eE.-tfn/\\\n\x01\xff";
  const auto below = [&](std::size_t n) { return random() % std::max<std::size_t>(n, 1); };
  const int changes = 1 + static_cast<int>(below(3));
  for (int i = 0; i < changes; ++i) {
    const std::size_t at = below(text.size()), length = std::min(below(12), text.size() - at);
    switch (below(4)) {
      case 0:
        text.replace(at, std::min<std::size_t>(1, text.size() - at), 1,
                     kBytes[below(kBytes.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      default:
        text.replace(at, length, "999999999999999999999", below(20));
        break;
    }
  }
  return text;
}

TEST(Cluster, MutationsGiveAClusterOrOneLine) {
  constexpr unsigned kSeed = 20261;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937 random(kSeed);
  int read = 0;
  for (int round = 0; round < 1500; ++round)
    for (const std::string_view text : {kMn5, kCpu, kEverything, kTorus}) {
      const std::string mutant = mutate(std::string(text), random);
      const auto cluster = parse_cluster(mutant, "mutant.json");
      if (!cluster) {
        EXPECT_THAT(cluster.error().message, HasSubstr("mutant.json:")) << mutant;
        EXPECT_THAT(cluster.error().message, Not(HasSubstr("\n"))) << mutant;
        EXPECT_LT(cluster.error().message.size(), 600U) << mutant;
        continue;
      }
      ++read;
      EXPECT_GE(cluster->nodes, 1);
      EXPECT_GE(cluster->ranks_per_node, 1);
      EXPECT_LE(std::int64_t{cluster->nodes} * cluster->ranks_per_node, Cluster::kMostRanks);
      EXPECT_NE(cluster->intra.technology, nullptr);
      EXPECT_GT(cluster->intra.GBps, 0);
    }
  EXPECT_GT(read, 100);  // mutations that are all refused test the parser of JSON alone
}

}  // namespace
}  // namespace tutti
