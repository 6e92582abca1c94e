// SPDX-License-Identifier: Apache-2.0
// Machines through hwloc: what the exports say, compared with what stands in them.
#include "topology/hwloc_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "fixtures.hpp"

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

// Every test skips where the build has no hwloc.
class Hwloc : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_hwloc()) GTEST_SKIP() << "built without hwloc";
  }
};

TEST_F(Hwloc, CountsWhatTheExportsHold) {
  const std::map<std::string, std::vector<std::size_t>> expected{
      // packages, NUMA nodes, shared caches, cores, GPUs, NICs
      {"nvidiaDGX2.xml", {2, 2, 2, 4, 16, 0}},
      {"power8gpudistances.xml", {2, 2, 0, 8, 4, 0}},
      {"8intel64-4n2t-memattrs.xml", {0, 4, 0, 8, 0, 0}},
      {"24em64t-2n6c2t-pci.xml", {2, 2, 2, 12, 3, 3}},
      {"epyc-corona.xml", {2, 8, 16, 48, 4, 3}},
      {"28intel64-2p2g7c-CoD.xml", {2, 4, 0, 28, 0, 2}},
  };
  for (const auto& [name, numbers] : expected) EXPECT_EQ(counts(hwloc(name)), numbers) << name;
}

TEST_F(Hwloc, Dgx2HasSixNvlinksFromEveryGpuToOneSwitch) {
  const Graph graph = hwloc("nvidiaDGX2.xml");
  ASSERT_EQ(graph.count(DeviceKind::kNvSwitch), 1);
  EXPECT_EQ(graph.device(graph.of_kind(DeviceKind::kNvSwitch)[0]).parts, 12);
  EXPECT_EQ(graph.device(find(graph, "GPU0")).model, "Tesla V100-SXM3-32GB-H");
  const Path path = path_between(graph, find(graph, "GPU0"), find(graph, "GPU15"));
  EXPECT_EQ(path.name(), "NV6");
  EXPECT_DOUBLE_EQ(path.bytes_per_ns, 150);
  EXPECT_EQ(path.crossings.size(), 2);
}

TEST_F(Hwloc, Dgx2SwitchesArePairsBehindPairs) {
  // Without NVLink the GPUs' ways are PCIe's; a NIC or a core would take them.
  const Graph graph = hwloc("nvidiaDGX2.xml");
  const auto switches_above = [&](DeviceId id) {
    int count = 0;
    while (graph.device(id).kind != DeviceKind::kPciRoot) {
      id = graph.device(id).parent;
      count += graph.device(id).kind == DeviceKind::kPciSwitch;
    }
    return count;
  };
  for (const DeviceId gpu : graph.of_kind(DeviceKind::kGpu)) EXPECT_EQ(switches_above(gpu), 2);
  const auto parent = [&](const char* name) { return graph.device(find(graph, name)).parent; };
  EXPECT_EQ(parent("GPU0"), parent("GPU1"));
  EXPECT_NE(parent("GPU1"), parent("GPU2"));
  EXPECT_EQ(graph.device(parent("GPU1")).parent, graph.device(parent("GPU2")).parent);
}

TEST_F(Hwloc, Power8HasTwoNvlinksToGpuAndProcessor) {
  const Graph graph = hwloc("power8gpudistances.xml");
  EXPECT_EQ(way(graph, "GPU0", "GPU1"), "NV2");
  EXPECT_EQ(way(graph, "GPU2", "GPU3"), "NV2");
  EXPECT_EQ(way(graph, "GPU0", "GPU2"), "SYS");
  EXPECT_DOUBLE_EQ(path_between(graph, find(graph, "GPU0"), find(graph, "GPU1")).bytes_per_ns, 40);
  EXPECT_EQ(way(graph, "GPU0", "NUMA 0"), "NV2");
}

TEST_F(Hwloc, NicsHaveNamesRatesAndNeighbours) {
  const Graph graph = hwloc("24em64t-2n6c2t-pci.xml");
  EXPECT_DOUBLE_EQ(graph.device(find(graph, "mlx4_0")).rate_bytes_per_ns, 4);
  EXPECT_EQ(way(graph, "eth0", "eth1"), "PIX");
  EXPECT_EQ(way(graph, "mlx4_0", "GPU0"), "PHB");
  // 2 GB/s stand at the NIC, 4 at the port above the GPU.
  EXPECT_DOUBLE_EQ(path_between(graph, find(graph, "mlx4_0"), find(graph, "GPU0")).bytes_per_ns, 2);
}

TEST_F(Hwloc, ConsolesGraphicsIsNoGpu) {
  const Graph graph = hwloc("epyc-corona.xml");  // four Vega 20 and an ASPEED
  for (const DeviceId gpu : graph.of_kind(DeviceKind::kGpu))
    EXPECT_EQ(graph.device(gpu).model, "Vega 20");
}

TEST_F(Hwloc, SyntheticMachinesHaveTheirLevels) {
  const auto graph = read_synthetic("package:2 numa:2 l3:2 core:4 pu:2");
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_THAT(counts(*graph), ElementsAre(2, 4, 8, 32, 0, 0));
  EXPECT_EQ(way(*graph, "core 0", "core 3"), "L3");
  EXPECT_EQ(way(*graph, "core 0", "core 4"), "NUMA");
  EXPECT_EQ(way(*graph, "core 0", "core 8"), "PKG");
  EXPECT_EQ(way(*graph, "core 0", "core 16"), "SYS");
  EXPECT_EQ(graph->device(find(*graph, "core 1")).cpus, "2-3");
  EXPECT_EQ(graph->device(find(*graph, "core 1")).parts, 2);
}

TEST_F(Hwloc, SyntheticNonsenseIsOneLine) {
  for (const char* text : {"", "nonsense", "package:0", "core:2 package:2", "package:-1"}) {
    const auto graph = read_synthetic(text);
    ASSERT_FALSE(graph) << text;
    EXPECT_EQ(graph.error().code, Code::kInvalidArgument);
    EXPECT_THAT(graph.error().message, HasSubstr("package:2"));
  }
}

// hwloc would take hours for the first.
TEST_F(Hwloc, SyntheticGiantsAreRefused) {
  for (const char* text :
       {"pu:100000", "package:100 core:41 pu:1", "core:1e9", "pu:99999999999", "99999", "99999999",
        "package:2 4099", "100 100", "l3:2 4099(size=1)", "pu:0x100000", "4()4 4096",
        "pu:-18446744073709451617", "package:2048 [numa][numa][numa] core:1"}) {
    const auto graph = read_synthetic(text);
    ASSERT_FALSE(graph) << text;
    EXPECT_EQ(graph.error().code, Code::kInvalidArgument);
    EXPECT_THAT(graph.error().message, HasSubstr("more than 4096 processors"));
  }
  EXPECT_TRUE(read_synthetic("2 4 2"));
  EXPECT_TRUE(read_synthetic("package:2 l3:2 l2:2 group0:1 16"));
  EXPECT_TRUE(read_synthetic("package:2 [numa(memory=1GB)] core:4(indexes=0:1) pu:2"));
}

TEST_F(Hwloc, ThisMachineHasCores) {
  const auto graph = read_this_machine();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_GE(graph->count(DeviceKind::kCore), 1);
  EXPECT_GE(graph->count(DeviceKind::kNuma), 1);
  for (DeviceId id = 1; id < graph->devices().size(); ++id)
    EXPECT_TRUE(path_between(*graph, 0, id).exists()) << graph->device(id).name;
}

TEST_F(Hwloc, EnvironmentChooses) {
  std::map<std::string, std::string> environment;
  const auto get = [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  environment["HWLOC_SYNTHETIC"] = "package:3 core:2 pu:1";
  EXPECT_EQ(read_host(get)->count(DeviceKind::kPackage), 3);
  environment["HWLOC_XMLFILE"] = fixture("hwloc/nvidiaDGX2.xml");
  EXPECT_EQ(read_host(get)->count(DeviceKind::kGpu), 16);
  environment["HWLOC_XMLFILE"] = "/nonexistent/machine.xml";
  EXPECT_THAT(read_host(get).error().message,
              HasSubstr("/nonexistent/machine.xml: cannot be opened"));
}

TEST_F(Hwloc, BrokenFilesAreNamedWithTheirPlace) {
  const auto refusal = [](std::string text) {
    const auto graph = read_hwloc_text(std::move(text), "m.xml");
    return graph ? std::string("taken") : graph.error().message;
  };
  EXPECT_THAT(refusal("<topology version=\"2.0\">\n  <object"),
              MatchesRegex("m.xml:2:[0-9]+: is not well-formed XML.*"));
  EXPECT_THAT(refusal("<system version=\"1\"/>"),
              MatchesRegex("m.xml:1:2: the first element is <system>.*"));
  EXPECT_THAT(refusal("<topology version=\"3.0\"/>"),
              HasSubstr("m.xml:1:2: the file has version \"3.0\""));
  EXPECT_THAT(refusal("<topology version=\"2.0\"/>"), HasSubstr("contains no <object>"));
  EXPECT_THAT(refusal(""), HasSubstr("m.xml:1:1: is not well-formed"));
}

// hwloc has two parsers, by how it was installed. Each must read what was checked: its own one
// crashed where it left out what follows an attribute of unknown letters.
TEST_F(Hwloc, FilesAreReadAlikeByEachParser) {
  const std::string text = text_of(fixture("hwloc/nvidiaDGX2.xml"));
  const auto with = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::string changed = text;
    changed.replace(at, from.size(), to);
    const auto graph = read_hwloc_text(std::move(changed), "m.xml");
    return graph ? std::string("taken") : graph.error().message;
  };
  EXPECT_EQ(with("encoding=\"UTF-8\"", "encoding=\"XTF-8\""), "taken");
  EXPECT_EQ(with(" complete_nodeset=", "\n  complete_nodeset = "), "taken");
  EXPECT_THAT(with(" complete_nodeset=", " compLete_nodeset="),
              HasSubstr("the attribute \"compLete_nodeset\" is not known"));
  EXPECT_THAT(with(" complete_nodeset=", " nodeset=\"0x1\" complete_nodeset="),
              HasSubstr("nodeset is there twice"));
}

}  // namespace
}  // namespace tutti::topology
