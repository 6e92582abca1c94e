// SPDX-License-Identifier: Apache-2.0
// Seats: what users write, what the kernel says, and which device that is; sources of a host's
// graph.
#include "topology/seat.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "fixtures.hpp"
#include "tests/folder.hpp"
#include "topology/host_source.hpp"
#include "topology/hwloc_reader.hpp"

namespace tutti::topology {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint32_t> cpus_of(const Seat& seat) {
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < Seat::kMostCpus; ++cpu)
    if ((seat.cpus[cpu / 64] >> (cpu % 64) & 1) != 0) cpus.push_back(cpu);
  return cpus;
}

TEST(Seat, ListsOfProcessorsAndNamesOfDevices) {
  using ::testing::ElementsAre;
  EXPECT_THAT(cpus_of(parse_seats("0-2,64", 0)), ElementsAre(0, 1, 2, 64));
  EXPECT_EQ(parse_seats("0-2", 0).device_name(), "");
  EXPECT_EQ(parse_seats("GPU1", 0).device_name(), "GPU1");
  EXPECT_EQ(parse_seats("0000:43:00.0", 0).device_name(), "0000:43:00.0");
  for (const std::string wrong : {"", "3-1", "1,", "1-", "-", "2048", "0x3", ",", "1 2"}) {
    EXPECT_TRUE(cpus_of(parse_seats(wrong, 0)).empty()) << wrong;
    EXPECT_EQ(parse_seats(wrong, 0).device_name(), wrong);
  }
  EXPECT_EQ(parse_seats(std::string(500, 'x'), 0).device_name(), std::string(63, 'x'));
}

TEST(Seat, RanksOfAHostTakeThemInTurn) {
  const std::string text = "0/4-5/GPU0";
  EXPECT_EQ(parse_seats(text, 1), parse_seats("4-5", 0));
  EXPECT_EQ(parse_seats(text, 2), parse_seats("GPU0", 0));
  EXPECT_EQ(parse_seats(text, 3), parse_seats("0", 0));
  EXPECT_EQ(parse_seats("7", 99), parse_seats("7", 0));
}

TEST(Seat, OfThisThreadIsItsAffinity) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<std::uint32_t> expected;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) expected.push_back(cpu);
  EXPECT_EQ(cpus_of(seat_of_this_thread()), expected);
  EXPECT_EQ(parse_seats("auto", 3), seat_of_this_thread());
}

TEST(Seat, IsTheSmallestDeviceThatHasAllItsProcessors) {
  if (!has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const Graph graph = *read_synthetic("package:2 numa:1 l3:2 core:2 pu:2");
  const auto found = [&](std::string_view text) {
    return graph.device(*find_seat(graph, 0, parse_seats(text, 0)));
  };
  EXPECT_EQ(found("3").kind, DeviceKind::kCore);
  EXPECT_EQ(found("2-3").kind, DeviceKind::kCore);
  EXPECT_EQ(found("0,2").kind, DeviceKind::kCache);
  EXPECT_EQ(found("8-11").cpus, "8-11");
  EXPECT_EQ(found("0,7").kind, DeviceKind::kNuma);
  EXPECT_EQ(found("0,8").kind, DeviceKind::kHost);
  EXPECT_EQ(found("0,99").kind, DeviceKind::kHost);
  EXPECT_EQ(graph.device(*find_seat(graph, 0, {})).kind, DeviceKind::kHost);
  const Result<DeviceId> none = find_seat(graph, 0, parse_seats("GPU7", 0));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no device 'GPU7'"));
  EXPECT_FALSE(find_seat(graph, 1, {}));
}

TEST(Seat, GpusByNameAndByBus) {
  const Graph graph = nccl("dgx1v-own.xml");
  const DeviceId gpu = graph.of_kind(DeviceKind::kGpu)[3];
  EXPECT_EQ(*find_seat(graph, 0, parse_seats(graph.device(gpu).name, 0)), gpu);
  EXPECT_EQ(*find_seat(graph, 0, parse_seats(graph.device(gpu).bus_id, 0)), gpu);
  const DeviceId nic = graph.of_kind(DeviceKind::kNic).front();
  EXPECT_FALSE(find_seat(graph, 0, parse_seats(graph.device(nic).name, 0))) << "a NIC";
}

TEST(HostSource, IsOfInterestWhereItCanMatter) {
  const tutti::testing::Folder folder;
  const std::filesystem::path& sys = folder.path();
  std::filesystem::create_directories(sys / "devices/system/node");
  const auto interest = [&](const std::string& nodes, const std::string& setting,
                            const std::map<std::string, std::string>& variables) {
    std::ofstream(sys / "devices/system/node/online") << nodes << "\n";
    const auto get = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    return interest_in_topology(setting, get, sys.string());
  };
  EXPECT_EQ(interest("0", "auto", {}), Interest::kNone);
  EXPECT_EQ(interest("0-1", "auto", {}), Interest::kIfSeated);
  EXPECT_EQ(interest("0,8", "auto", {}), Interest::kIfSeated);
  EXPECT_EQ(interest("0", "auto", {{"HWLOC_SYNTHETIC", "numa:2 pu:1"}}), Interest::kIfSeated);
  EXPECT_EQ(interest("0", "auto", {{"HWLOC_XMLFILE", "x.xml"}}), Interest::kIfSeated);
  EXPECT_EQ(interest("0", "auto", {{"HWLOC_XMLFILE", ""}}), Interest::kNone);
  EXPECT_EQ(interest("0", "x.xml", {}), Interest::kAlways);
  EXPECT_EQ(interest("0-1", "off", {{"HWLOC_XMLFILE", "x.xml"}}), Interest::kOff);
  const std::filesystem::path cpus = sys / "devices/system/cpu";
  std::filesystem::create_directories(cpus / "cpu0/cache/index3");
  std::ofstream(cpus / "online") << "0-15\n";
  std::ofstream(cpus / "cpu0/cache/index3/shared_cpu_list") << "0-15\n";
  EXPECT_EQ(interest("0", "auto", {}), Interest::kNone);
  std::ofstream(cpus / "cpu0/cache/index3/shared_cpu_list") << "0-3,8-11\n";
  EXPECT_EQ(interest("0", "auto", {}), Interest::kIfSeated);
  EXPECT_EQ(interest_in_topology(
                "auto", [](const char*) { return nullptr; }, "/nowhere"),
            Interest::kNone);
}

TEST(HostSource, AFileIsOfNcclOrOfHwloc) {
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  const std::string nccl_file = fixture("nccl/dgx1v-own.xml");
  const Result<HostSource> of_nccl = read_host_source(nccl_file, nothing);
  ASSERT_TRUE(of_nccl) << of_nccl.error().message;
  EXPECT_EQ(of_nccl->graph.count(DeviceKind::kGpu), 8u);
  EXPECT_EQ(of_nccl->name, nccl_file);
  EXPECT_EQ(read_host_source(nccl_file, nothing)->graph.devices().size(),
            of_nccl->graph.devices().size());
  const Result<HostSource> none = read_host_source("/nowhere.xml", nothing);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("/nowhere.xml"));
  if (!has_hwloc()) GTEST_SKIP() << "no hwloc in this build";
  const Result<Graph> of_hwloc = read_topology_file(fixture("hwloc/24em64t-2n6c2t-pci.xml"));
  ASSERT_TRUE(of_hwloc) << of_hwloc.error().message;
  EXPECT_EQ(of_hwloc->count(DeviceKind::kNuma), 2u);
  const auto synthetic = [](const char* name) {
    return std::string_view(name) == "HWLOC_SYNTHETIC" ? "numa:2 core:4 pu:1" : nullptr;
  };
  const Result<HostSource> described = read_host_source("auto", synthetic);
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_EQ(described->graph.count(DeviceKind::kCore), 8u);
  EXPECT_EQ(described->name, "HWLOC_SYNTHETIC \"numa:2 core:4 pu:1\"");
}

}  // namespace
}  // namespace tutti::topology
