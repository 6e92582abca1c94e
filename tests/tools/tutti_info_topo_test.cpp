// SPDX-License-Identifier: Apache-2.0
// `tutti-info topo` as a user runs it: matrix, JSON, picture, and files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>
#include <string>

#include "tests/folder.hpp"
#include "tests/tools/command.hpp"
#include "topology/hwloc_reader.hpp"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome topo(const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + " " + TUTTI_INFO + " topo " + arguments;
  Outcome outcome;
  outcome.output = testing::run_command(command, outcome.status);
  return outcome;
}

std::string fixture(const std::string& name) { return std::string(TUTTI_FIXTURES) + name; }

TEST(TuttiInfoTopo, MatrixIsThatOfTheMachine) {
  const Outcome outcome = topo("--nccl " + fixture("nccl/dgx1v-own.xml"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("GPU0    X     NV1   NV1   NV2   NV2   SYS   SYS   SYS   PIX     PHB     "
                        "SYS     SYS     0-19,40-59    0     sm_70\n"));
  EXPECT_THAT(outcome.output, HasSubstr("NV#   # NVLinks"));
  EXPECT_THAT(outcome.output, HasSubstr("ring: slowest hop 50 GB/s"));
}

TEST(TuttiInfoTopo, JsonHasDevicesLinksWaysAndOrders) {
  const Outcome outcome = topo("--json --nccl " + fixture("nccl/dgx1v-own.xml"));
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const auto json = nlohmann::json::parse(outcome.output);
  std::set<std::int64_t> gpus;
  for (const auto& device : json["devices"])
    if (device["kind"] == "GPU") gpus.insert(device["id"].get<std::int64_t>());
  EXPECT_EQ(gpus.size(), 8);
  EXPECT_EQ(json["ways"].size(), 12 * 11);
  // The ring goes once through every GPU.
  ASSERT_EQ(json["orders"][0]["name"], "ring");
  std::set<std::int64_t> seen;
  const auto& hops = json["orders"][0]["hops"];
  for (std::size_t k = 0; k < hops.size(); ++k) {
    seen.insert(hops[k][0].get<std::int64_t>());
    EXPECT_EQ(hops[k][1], hops[(k + 1) % hops.size()][0]);
  }
  EXPECT_EQ(seen, gpus);
}

TEST(TuttiInfoTopo, PictureIsXmlWithEveryDevice) {
  const testing::Folder folder;
  const std::string file = folder.file("machine.svg");
  const Outcome outcome = topo("--nccl " + fixture("nccl/dgx1v-own.xml") + " --svg " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  pugi::xml_document picture;
  ASSERT_TRUE(picture.load_file(file.c_str()));
  std::set<std::string> texts;
  for (const auto& found : picture.select_nodes("//text")) texts.insert(found.node().text().get());
  for (const char* name : {"GPU0", "GPU7", "mlx5_3", "NUMA 1", "PCI switch 0000:87:00.0"})
    EXPECT_TRUE(texts.contains(name)) << name;
  EXPECT_EQ(picture.select_nodes("//g[@class='ring']/path[@marker-end]").size(), 8);
  EXPECT_EQ(picture.select_nodes("//path[@class='fabric']").size(), 16);
  const Outcome lost =
      topo("--nccl " + fixture("nccl/dgx1v-own.xml") + " --svg /nonexistent/a.svg");
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.output, HasSubstr("/nonexistent/a.svg cannot be written"));
}

TEST(TuttiInfoTopo, HostsJoinByAClusterFile) {
  const testing::Folder folder;
  const std::string file = folder.file("cluster.json");
  std::ofstream(file) << R"({"name": "two", "nodes": 2, "gpus_per_node": 8, "gpu": "v100",
      "nics_per_node": 4, "nic": {"kind": "edr"}, "rails": true})";
  const std::string host = " --nccl " + fixture("nccl/dgx1v-own.xml");
  const Outcome outcome = topo(host + host + " --cluster " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("ring by mlx5_3: slowest hop 12.5 GB/s"));
  EXPECT_THAT(outcome.output, HasSubstr("1:GPU7"));
  const Outcome wrong = topo(host + host + host + " --cluster " + file);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("described with 2 nodes, but the job has 3 hosts"));
  const Outcome alone = topo(host + " --cluster " + file);
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(
      alone.output,
      HasSubstr("--cluster describes the network between hosts, but only one host is given"));
}

TEST(TuttiInfoTopo, SaysSomethingOnAnyMachine) {
  if (!topology::has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const Outcome here = topo("", "env -u HWLOC_XMLFILE -u HWLOC_SYNTHETIC");
  EXPECT_EQ(here.status, 0) << here.output;
  EXPECT_THAT(here.output, HasSubstr("CPU affinity"));
  const Outcome other = topo("", "HWLOC_SYNTHETIC='package:2 numa:1 l3:1 core:2 pu:1'");
  EXPECT_THAT(other.output, HasSubstr("core 0  X       L3      SYS     SYS"));
  const Outcome large = topo("--synthetic 'package:4 numa:4 l3:4 core:8 pu:2'");
  EXPECT_EQ(large.status, 0);
  EXPECT_THAT(large.output, HasSubstr("NUMA 15"));
}

TEST(TuttiInfoTopo, WrongFilesAreOneLineWithTheirPlace) {
  const testing::Folder folder;
  const std::string file = folder.file("cut.xml");
  std::ofstream(file) << "<system version=\"1\">\n<cpu numaid=\"0\">\n";
  for (const char* flag : {"--nccl ", "--hwloc "}) {
    const Outcome outcome = topo(flag + file);
    EXPECT_EQ(outcome.status, 1);
    if (!topology::has_hwloc() && flag == std::string("--hwloc ")) {
      EXPECT_THAT(outcome.output, HasSubstr("this build has no hwloc"));
      continue;
    }
    EXPECT_THAT(outcome.output, MatchesRegex("tutti-info: [^\n]*cut.xml:[0-9]+:[0-9]+: [^\n]*\n"));
  }
  EXPECT_THAT(topo("--nccl /nonexistent").output, HasSubstr("/nonexistent: cannot be opened"));
  const Outcome usage = topo("--hwlock x");
  EXPECT_EQ(usage.status, 2);
  EXPECT_THAT(usage.output, MatchesRegex("tutti-info: [^\n]*see tutti-info --help.\n"));
  if (!topology::has_hwloc()) return;
  EXPECT_THAT(topo("--synthetic nonsense").output, HasSubstr("is not a machine description"));
  EXPECT_THAT(topo("--hwloc /nonexistent").output, HasSubstr("/nonexistent: cannot be opened"));
  EXPECT_THAT(topo("", "HWLOC_XMLFILE=/nonexistent").output,
              HasSubstr("HWLOC_XMLFILE: /nonexistent: cannot be opened"));
}

}  // namespace
}  // namespace tutti
