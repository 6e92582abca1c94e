// SPDX-License-Identifier: Apache-2.0
// Topology files in NCCL's form: real machines, and files that are wrong.
#include "topology/nccl_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "fixtures.hpp"

namespace tutti::topology {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

std::string refusal(const std::string& text) {
  const auto graph = read_nccl_text(text, "t.xml");
  return graph ? std::string("taken") : graph.error().message;
}

std::string in_cpu(const std::string& text) {
  return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + text + "\n</cpu></system>";
}

TEST(NcclReader, CountsWhatTheFilesHold) {
  struct Facts {
    std::size_t numas, gpus, nics, fabric_links;
  };
  const std::map<std::string, Facts> expected{
      {"ncv4-topo.xml", {4, 4, 1, 0}},           {"ndv2-topo.xml", {2, 8, 1, 0}},
      {"p4d-24xl-topo.xml", {2, 8, 4, 0}},       {"rccl_topo_8p_rome.xml", {2, 8, 1, 8}},
      {"rccl_topo_8p_90a_1.xml", {3, 8, 1, 12}}, {"rccl_topo_4p3l_n2.xml", {4, 8, 1, 12}},
      {"rccl_topo_3p_pcie_1.xml", {2, 3, 1, 0}}, {"rccl_topo_8p_rome_n2_2.xml", {4, 8, 2, 8}},
      {"dgx1v-own.xml", {2, 8, 4, 16}},          {"two-gh200-own.xml", {2, 2, 2, 1}},
  };
  for (const auto& [name, facts] : expected) {
    const Graph graph = nccl(name);
    EXPECT_EQ(graph.count(DeviceKind::kNuma), facts.numas) << name;
    EXPECT_EQ(graph.count(DeviceKind::kGpu), facts.gpus) << name;
    EXPECT_EQ(graph.count(DeviceKind::kNic), facts.nics) << name;
    const auto fabric = std::ranges::count_if(graph.links(), [](const Link& link) {
      return link.kind == LinkKind::kNvlink || link.kind == LinkKind::kXgmi;
    });
    EXPECT_EQ(static_cast<std::size_t>(fabric), facts.fabric_links) << name;
  }
}

TEST(NcclReader, Dgx1MatrixIsNvidiaSmis) {
  const Graph graph = nccl("dgx1v-own.xml");
  EXPECT_EQ(way(graph, "GPU0", "GPU3"), "NV2");
  EXPECT_EQ(way(graph, "GPU0", "GPU1"), "NV1");
  EXPECT_EQ(way(graph, "GPU0", "GPU5"), "SYS");
  EXPECT_EQ(way(graph, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(way(graph, "GPU0", "mlx5_1"), "PHB");
  EXPECT_EQ(way(graph, "GPU0", "mlx5_2"), "SYS");
  EXPECT_DOUBLE_EQ(path_between(graph, find(graph, "GPU0"), find(graph, "GPU3")).bytes_per_ns, 50);
  EXPECT_EQ(graph.device(graph.container(find(graph, "GPU0"), DeviceKind::kNuma)).cpus,
            "0-19,40-59");
}

TEST(NcclReader, RcclMeshHasXgmi) {
  const Graph graph = nccl("rccl_topo_8p_rome.xml");
  EXPECT_EQ(way(graph, "GPU0", "GPU1"), "XG1");
  // Two rings of four: through others there is a way, but GPUs pass nothing on.
  EXPECT_EQ(way(graph, "GPU0", "GPU5"), "SYS");
  EXPECT_EQ(way(graph, "GPU1", "GPU5"), "XG1");
}

TEST(NcclReader, FusedFilesMakeSeveralHosts) {
  const Graph graph = nccl("two-gh200-own.xml");
  EXPECT_EQ(graph.hosts(), 2);
  EXPECT_EQ(graph.count(DeviceKind::kNvSwitch), 1);
  const DeviceId gpu = graph.of_kind(DeviceKind::kGpu)[0];
  const Path path = path_between(graph, gpu, graph.container(gpu, DeviceKind::kNuma));
  EXPECT_EQ(path.name(), "C2C");
  EXPECT_NEAR(path.bytes_per_ns, 447.12, 1e-9);
}

TEST(NcclReader, WhatContradictsItselfIsNoted) {
  EXPECT_THAT(nccl("p4d-24xl-topo.xml").notes(),
              Contains(HasSubstr("no NVLink or xGMI between its 8 GPUs")));
  EXPECT_THAT(nccl("ncv4-topo.xml").notes(), SizeIs(4));  // GPUs with links to themselves
  const auto graph =
      read_nccl_text(in_cpu("<pci busid=\"1\" class=\"0x030200\"><gpu dev=\"0\" sm=\"70\">"
                            "<nvlink target=\"2\" count=\"3\"/></gpu></pci>"
                            "<pci busid=\"2\" class=\"0x030200\"><gpu dev=\"1\" sm=\"70\">"
                            "<nvlink target=\"1\" count=\"2\"/><nvlink target=\"7\"/></gpu></pci>"),
                     "t.xml");
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(way(*graph, "GPU0", "GPU1"), "NV2");
  ASSERT_THAT(graph->notes(), SizeIs(2));
  EXPECT_THAT(graph->notes()[0], MatchesRegex("t.xml:3:[0-9]+: the link from GPU1 to 7 .*"));
  EXPECT_THAT(graph->notes()[1], HasSubstr("3 links"));
}

TEST(NcclReader, WrongFilesAreRefusedWithPlaceAndReason) {
  EXPECT_THAT(refusal("<system version=\"1\">\n<cpu>"),
              MatchesRegex("t.xml:2:[0-9]+: is not well-formed.*"));
  EXPECT_THAT(refusal("<graphs version=\"1\"/>"),
              HasSubstr("t.xml:1:2: the first element is <graphs>"));
  EXPECT_THAT(refusal("<system version=\"9\"><cpu/></system>"), HasSubstr("version 9"));
  EXPECT_THAT(refusal("<system version=\"x\"/>"), HasSubstr("must be a whole number"));
  EXPECT_THAT(refusal("<system version=\"1\"/>"), HasSubstr("contains no <cpu>"));
  const std::map<std::string, std::string> wrong{
      {"<pci class=\"0x030200\"/>", "<pci> needs a busid"},
      {"<pci busid=\"1\" class=\"gpu\"/>", "class=\"gpu\""},
      {"<pci busid=\"1\" class=\"0x030200\" link_speed=\"fast\" link_width=\"16\"/>",
       "link_speed=\"fast\""},
      {"<pci busid=\"1\" class=\"0x030200\" link_speed=\"8 GT/s\" link_width=\"-4\"/>",
       "link_width=\"-4\""},
      {"<pci busid=\"1\" class=\"0x060400\"/>\n<pci busid=\"1\" class=\"0x030200\"/><pci "
       "busid=\"1\" class=\"0x030200\"/>",
       "belongs to two GPUs"},
      {"<nic><net name=\"a\" speed=\"ten\"/></nic>", "speed=\"ten\""},
      {"<nic><net name=\"a\" speed=\"-10\"/></nic>", "from 0 to"},
      {"<pci busid=\"1\"><gpu dev=\"0\"><nvlink count=\"2\"/></gpu></pci>", "needs a target"},
      {"<pci busid=\"1\"><gpu dev=\"0\"><nvlink target=\"2\" count=\"0\"/></gpu></pci>",
       "from 1 to"},
      {"<pci busid=\"1\"><gpu dev=\"0\"><c2c count=\"2\"/></gpu></pci>", "bw=\"0\""},
  };
  for (const auto& [text, reason] : wrong) {
    EXPECT_THAT(refusal(in_cpu(text)), HasSubstr(reason)) << text;
    EXPECT_THAT(refusal(in_cpu(text)), MatchesRegex("t.xml:[34]:[0-9]+: .*")) << text;
  }
  EXPECT_THAT(refusal("<system version=\"1\"><cpu affinity=\"xyz\"/></system>"),
              HasSubstr("affinity"));
  EXPECT_THAT(read_nccl_file("/nonexistent.xml").error().message, HasSubstr("cannot be opened"));
  EXPECT_THAT(read_nccl_file("/proc").error().message, HasSubstr("is not a file"));
}

TEST(NcclReader, DepthHasABound) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "<pci busid=\"" + std::to_string(i) + "\">";
  for (int i = 0; i < 5000; ++i) text += "</pci>";
  EXPECT_THAT(refusal(in_cpu(text)), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace tutti::topology
