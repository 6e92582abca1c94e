// SPDX-License-Identifier: Apache-2.0
#include "topology/figures.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/technology.hpp"

namespace tutti::topology {
namespace {

// A row that this file names, hence is there; tests walk all of them.
const Technology& row(std::string_view name) {
  const Result<const Technology*> found = find_technology(name);
  if (!found) std::abort();
  return **found;
}

struct NvlinkGeneration {
  int from, to;            // compute capabilities
  std::string_view model;  // a part of the GPU's name
  std::string_view link, over_switch;
  int links;  // of a GPU, whose sum the table has
};
// The PCIe cards of 8.6 and 8.9 have slower links or none: not in here.
constexpr std::array<NvlinkGeneration, 7> kNvlinks{
    {{60, 69, "P100", "nvlink1", "nvlink1", 4},
     {70, 79, "V100", "nvlink2", "nvswitch1", 6},
     {80, 80, "A100", "nvlink3", "nvswitch2", 12},
     {90, 99, "H100", "nvlink4", "nvswitch3", 18},
     {90, 99, "H200", "nvlink4", "nvswitch3", 18},
     {100, 119, "B200", "nvlink5", "nvswitch4", 18},
     {100, 119, "B300", "nvlink5", "nvswitch4", 18}}};

struct XgmiGeneration {
  int from_gfx;
  std::string_view name;
  int links;
};
constexpr std::array<XgmiGeneration, 4> kXgmis{
    {{900, "xgmi2", 3}, {910, "xgmi3", 8}, {940, "xgmi4", 7}, {950, "xgmi5", 7}}};

struct Processor {
  std::string_view vendor;
  int from_family, from_model;
  std::string_view name;
};
// The last row that is not above a processor. RCCL writes AMD's families as the base with the
// extension before it: 0x8f (143) for 23, 0xaf (175) for 25.
constexpr std::array<Processor, 9> kProcessors{{{"GenuineIntel", 6, 0, "qpi"},
                                                {"GenuineIntel", 6, 85, "upi1"},
                                                {"GenuineIntel", 6, 143, "upi2"},
                                                {"GenuineIntel", 6, 173, "upi3"},
                                                {"AuthenticAMD", 23, 0, "xgmi-cpu2"},
                                                {"AuthenticAMD", 25, 0, "xgmi-cpu3"},
                                                {"AuthenticAMD", 143, 0, "xgmi-cpu2"},
                                                {"AuthenticAMD", 175, 0, "xgmi-cpu3"},
                                                {"IBM", -1, -1, "xbus"}}};

struct NicModel {
  std::uint32_t vendor, device;
  std::string_view name;
};
// By PCI ids (pci.ids). Most models exist with several rates; the usual one is here, and what the
// machine or the file says of the rate goes before.
constexpr std::array<NicModel, 18> kNics{{{0x15b3, 0x673c, "qdr"},     // ConnectX-2
                                          {0x15b3, 0x6746, "qdr"},     // ConnectX-2
                                          {0x15b3, 0x1003, "fdr"},     // ConnectX-3
                                          {0x15b3, 0x1013, "edr"},     // ConnectX-4
                                          {0x15b3, 0x1015, "25gbe"},   // ConnectX-4 Lx
                                          {0x15b3, 0x1017, "edr"},     // ConnectX-5
                                          {0x15b3, 0x1019, "edr"},     // ConnectX-5 Ex
                                          {0x15b3, 0x101b, "hdr200"},  // ConnectX-6
                                          {0x15b3, 0x101d, "100gbe"},  // ConnectX-6 Dx
                                          {0x15b3, 0x1021, "ndr400"},  // ConnectX-7
                                          {0x15b3, 0x1023, "xdr800"},  // ConnectX-8
                                          {0x1d0f, 0xefa0, "efa1"},    // p4d
                                          {0x1d0f, 0xefa1, "efa2"},    // p5
                                          {0x1d0f, 0xefa2, "efa3"},    // p5en
                                          {0x1d0f, 0xec20, "25gbe"},   // ENA
                                          {0x17db, 0x0501, "slingshot11"},
                                          {0x8086, 0x24f0, "omnipath100"},
                                          {0x14e4, 0x16d7, "25gbe"}}};
constexpr std::uint32_t kClassInfiniband = 0x0207;
constexpr std::uint32_t kClassInfinibandBus = 0x0c06;  // what older adapters say

// Returns the usual port of a rate, or the nearest in proportion.
const Technology& port_of_rate(double bytes_per_ns, bool infiniband) {
  constexpr std::array<std::string_view, 6> kInfiniband{"qdr",    "fdr",    "edr",
                                                        "hdr200", "ndr400", "xdr800"};
  constexpr std::array<std::string_view, 7> kEthernet{"1gbe",   "10gbe",  "25gbe", "40gbe",
                                                      "100gbe", "200gbe", "400gbe"};
  const Technology* best = nullptr;
  const auto consider = [&](std::string_view name) {
    const Technology& each = row(name);
    const auto off = [&](const Technology& one) {
      return std::abs(std::log(one.GBps / bytes_per_ns));
    };
    if (best == nullptr || off(each) < off(*best)) best = &each;
  };
  if (infiniband)
    std::ranges::for_each(kInfiniband, consider);
  else
    std::ranges::for_each(kEthernet, consider);
  return *best;
}

}  // namespace

std::optional<double> pcie_bytes_per_ns(std::string_view speed, int width) {
  constexpr std::array<double, 6> kGigatransfers{2.5, 5, 8, 16, 32, 64};
  double gigatransfers = 0;
  const char* const end = speed.data() + speed.size();
  const auto [stop, error] = std::from_chars(speed.data(), end, gigatransfers);
  if (error != std::errc() || width <= 0 || width > 32) return std::nullopt;
  if (!std::string_view(stop, static_cast<std::size_t>(end - stop)).starts_with(" GT/s"))
    return std::nullopt;
  const auto* const found = std::ranges::find(kGigatransfers, gigatransfers);
  if (found == kGigatransfers.end()) return std::nullopt;
  const int generation = static_cast<int>(found - kGigatransfers.begin()) + 1;
  return pcie_technology(generation, 1)->GBps * width;
}

// The table's latency is of the way from a device to its host: half the link's, half the root's.
Figure pcie(double bytes_per_ns) {
  const Technology& usual = row("pcie3x16");
  if (bytes_per_ns > 0) return {bytes_per_ns, usual.latency_ns / 2, Origin::kFile};
  return {usual.GBps, usual.latency_ns / 2, Origin::kDefault};
}

Figure root_to_numa() {
  const Technology& widest = row("pcie6x16");  // roots of several links are not what narrows
  return {widest.GBps, widest.latency_ns / 2, Origin::kDefault};
}

Figure nvlink(int compute_capability, std::string_view model, bool to_switch) {
  const auto* const found = std::ranges::find_if(kNvlinks, [&](const NvlinkGeneration& each) {
    return compute_capability > 0 ? compute_capability >= each.from && compute_capability <= each.to
                                  : model.find(each.model) != std::string_view::npos;
  });
  const NvlinkGeneration& generation = found == kNvlinks.end() ? kNvlinks[1] : *found;
  const Technology& link = row(to_switch ? generation.over_switch : generation.link);
  return {link.GBps / generation.links, to_switch ? link.latency_ns / 2 : link.latency_ns,
          found == kNvlinks.end() ? Origin::kDefault : Origin::kTable};
}

// No root lies between.
double processor_link_latency_ns() { return row("pcie5x16").latency_ns / 2; }

Figure xgmi(int gfx) {
  const XgmiGeneration* found = nullptr;
  for (const XgmiGeneration& each : kXgmis)
    if (gfx >= each.from_gfx) found = &each;
  const XgmiGeneration& generation = found == nullptr ? kXgmis[0] : *found;
  const Technology& link = row(generation.name);
  return {link.GBps / generation.links, link.latency_ns,
          found == nullptr ? Origin::kDefault : Origin::kTable};
}

Figure interconnect(std::string_view vendor, int family, int model) {
  const Processor* found = nullptr;
  for (const Processor& each : kProcessors)
    if (each.vendor == vendor && family >= each.from_family &&
        (family > each.from_family || model >= each.from_model))
      found = &each;
  const Technology& link = row(found == nullptr ? "upi1" : found->name);
  return {link.GBps, link.latency_ns / 2, found == nullptr ? Origin::kDefault : Origin::kTable};
}

Figure core_to_cache() {
  const Technology& near = row("shm-l3");
  return {near.GBps, near.latency_ns / 2, Origin::kTable};
}
// From here up links are shared by many cores, and the memory behind them is what narrows.
Figure cache_to_numa() {
  return {row("ddr4").GBps, (row("shm-numa").latency_ns - row("shm-l3").latency_ns) / 2,
          Origin::kTable};
}
Figure numa_to_package() {
  return {row("ddr4").GBps, (row("shm-package").latency_ns - row("shm-numa").latency_ns) / 2,
          Origin::kTable};
}

Figure nic(const NicIds& ids, double bytes_per_ns) {
  const auto* const found = std::ranges::find_if(kNics, [&](const NicModel& each) {
    return each.vendor == ids.vendor && each.device == ids.device;
  });
  const bool infiniband = ids.pci_class == kClassInfiniband || ids.pci_class == kClassInfinibandBus;
  if (found != kNics.end()) {
    const Technology& port = row(found->name);
    return {bytes_per_ns > 0 ? bytes_per_ns : port.GBps, port.latency_ns / 2, Origin::kTable};
  }
  // Nothing known: what new machines of either kind had when the last of them were built.
  const double rate = bytes_per_ns > 0 ? bytes_per_ns : row(infiniband ? "edr" : "10gbe").GBps;
  return {rate, port_of_rate(rate, infiniband).latency_ns / 2, Origin::kDefault};
}

}  // namespace tutti::topology
