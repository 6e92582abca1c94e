// SPDX-License-Identifier: Apache-2.0
#include "base/technology.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace tutti {
namespace {

using enum TechnologyKind;

// Sources that several rows share.
constexpr std::string_view kNvlink =
    "NVIDIA, https://www.nvidia.com/en-us/data-center/nvlink; latency: NCCL 2.30 "
    "src/graph/tuning.cc hwLatencies, NVLINK row of LL (a hop with its flag)";
constexpr std::string_view kNvswitch =
    "bandwidth as the GPU's NVLink; latency: NVLink's and about 100 ns of switch (estimate)";
constexpr std::string_view kXgmi =
    "AMD CDNA 2/3/4 white papers (links x GB/s); latency: estimate, as NVLink";
constexpr std::string_view kPci =
    "PCI-SIG base specifications: rate x width x encoding; latency: Neugebauer et al. 2018, "
    "Understanding PCIe performance (SIGCOMM), about half of a 64 B DMA round trip";
constexpr std::string_view kInfiniband =
    "IBTA roadmap (data rate); latency: NVIDIA ConnectX-6 data sheet, 0.6 us through adapters, "
    "0.13 us a Quantum switch (data sheet); PCIe at both ends an estimate";
constexpr std::string_view kEthernet =
    "IEEE 802.3 line rate; latency: estimate for a kernel-bypassing adapter and one store-and-"
    "forward-free switch; TCP adds tens of microseconds";
constexpr std::string_view kRoce =
    "IEEE 802.3 line rate; latency: as InfiniBand with an Ethernet switch of about 0.5 us more "
    "(estimate)";
constexpr std::string_view kEfa =
    "AWS instance pages (per adapter); latency: AWS HPC blog, about 15 us MPI at v1, falling with "
    "generations; without software's share an estimate";
constexpr std::string_view kSlingshot =
    "HPE Slingshot data sheet; latency: De Sensi et al. 2020, An in-depth analysis of the "
    "Slingshot "
    "interconnect (arXiv 2008.08886)";
constexpr std::string_view kCores =
    "latency: Chips and Cheese 2023, Core to core latency data on large systems, half of a round "
    "trip of a line; bandwidth: Velten et al. 2022, Memory performance of AMD EPYC Rome and Intel "
    "Cascade Lake SP (arXiv 2204.03290), one core's copy, rounded";
constexpr std::string_view kUpi =
    "Intel product briefs (GT/s x 2 B or 20 lanes); latency: as Velten et al. 2022, arXiv "
    "2204.03290, remote less local";
constexpr std::string_view kHbm = "vendor's data sheet (memory bandwidth); latency: estimate";
constexpr std::string_view kDdr =
    "JEDEC rate x 8 B x channels of the usual server; latency: Velten et al. 2022";

#define TUTTI_PCIE(generation, lane)                                   \
  {"pcie" #generation "x1", kPcie, lane, 500, "link", kPci},           \
      {"pcie" #generation "x2", kPcie, lane * 2, 500, "link", kPci},   \
      {"pcie" #generation "x4", kPcie, lane * 4, 500, "link", kPci},   \
      {"pcie" #generation "x8", kPcie, lane * 8, 500, "link", kPci}, { \
    "pcie" #generation "x16", kPcie, lane * 16, 500, "link", kPci      \
  }

constexpr auto kTechnologies = std::to_array<Technology>({
    {"ddr4", kMemory, 205, 90, "package", kDdr},   // 8 x DDR4-3200
    {"ddr5", kMemory, 307, 110, "package", kDdr},  // 8 x DDR5-4800
    {"gddr6", kMemory, 600, 450, "GPU", kHbm},     // A10G; T4 and L4 half of it
    {"hbm2", kMemory, 900, 450, "GPU", kHbm},      // V100
    {"hbm2e", kMemory, 2039, 450, "GPU", kHbm},    // A100 80 GB
    {"hbm3", kMemory, 3350, 500, "GPU", kHbm},     // H100 SXM
    {"hbm3e", kMemory, 8000, 500, "GPU", kHbm},    // B200, MI355X
    {"hbm2-a64fx", kMemory, 1024, 130, "package", "Fujitsu A64FX data sheet; latency: estimate"},

    {"shm-core", kShared, 40, 15, "core", kCores},     // threads of one core, one L2
    {"shm-l3", kShared, 20, 30, "core", kCores},       // one L3
    {"shm-numa", kShared, 12, 60, "core", kCores},     // one NUMA node
    {"shm-package", kShared, 10, 90, "core", kCores},  // one package
    {"shm-machine", kShared, 7, 150, "core", kCores},  // across packages
    {"shm", kShared, 10, 90, "core", kCores},          // distance not known: as one package

    {"nvlink1", kDevice, 80, 600, "GPU", kNvlink},   // P100: 4 links of 20
    {"nvlink2", kDevice, 150, 600, "GPU", kNvlink},  // V100: 6 links of 25
    {"nvlink3", kDevice, 300, 600, "GPU", kNvlink},  // A100: 12 links of 25
    {"nvlink4", kDevice, 450, 600, "GPU", kNvlink},  // H100: 18 links of 25
    {"nvlink5", kDevice, 900, 600, "GPU", kNvlink},  // B200: 18 links of 50
    {"nvswitch1", kDevice, 150, 700, "GPU", kNvswitch},
    {"nvswitch2", kDevice, 300, 700, "GPU", kNvswitch},
    {"nvswitch3", kDevice, 450, 700, "GPU", kNvswitch},
    {"nvswitch4", kDevice, 900, 700, "GPU", kNvswitch},
    {"xgmi2", kDevice, 138, 700, "GPU", kXgmi},    // MI100: 3 links of 46
    {"xgmi3", kDevice, 400, 700, "GPU", kXgmi},    // MI250X: 8 links of 50
    {"xgmi4", kDevice, 448, 700, "GPU", kXgmi},    // MI300X: 7 links of 64
    {"xgmi5", kDevice, 537.6, 700, "GPU", kXgmi},  // MI355X: 7 links of 76.8
    {"xelink", kDevice, 159, 700, "GPU", "Intel Data Center GPU Max: 6 of 26.5; latency: estimate"},

    {"qpi", kSocket, 19.2, 60, "link", kUpi},   // 9.6 GT/s
    {"upi1", kSocket, 20.8, 60, "link", kUpi},  // 10.4 GT/s, Skylake to Cascade Lake
    {"upi2", kSocket, 32, 60, "link", kUpi},    // 16 GT/s, Sapphire Rapids
    {"upi3", kSocket, 48, 60, "link", kUpi},    // 24 GT/s, Granite Rapids
    {"xgmi-cpu2", kSocket, 36, 100, "link",
     "AMD EPYC Rome: x16 at 18 GT/s; latency: arXiv 2204.03290"},
    {"xgmi-cpu3", kSocket, 64, 100, "link", "AMD EPYC Genoa: x16 at 32 GT/s; latency: as Rome"},
    {"xbus", kSocket, 64, 100, "link", "IBM POWER9: 4 B at 16 GT/s; latency: estimate"},

    TUTTI_PCIE(1, 0.25),
    TUTTI_PCIE(2, 0.5),
    TUTTI_PCIE(3, 0.985),
    TUTTI_PCIE(4, 1.969),
    TUTTI_PCIE(5, 3.938),
    TUTTI_PCIE(6, 7.563),

    {"1gbe", kNic, 0.125, 10000, "port", kEthernet},
    {"10gbe", kNic, 1.25, 5000, "port", kEthernet},
    {"25gbe", kNic, 3.125, 3000, "port", kEthernet},
    {"40gbe", kNic, 5, 3000, "port", kEthernet},
    {"50gbe", kNic, 6.25, 3000, "port", kEthernet},
    {"100gbe", kNic, 12.5, 2000, "port", kEthernet},
    {"200gbe", kNic, 25, 2000, "port", kEthernet},
    {"400gbe", kNic, 50, 2000, "port", kEthernet},
    {"800gbe", kNic, 100, 2000, "port", kEthernet},
    {"roce25", kNic, 3.125, 1600, "port", kRoce},
    {"roce100", kNic, 12.5, 1500, "port", kRoce},
    {"roce200", kNic, 25, 1500, "port", kRoce},
    {"roce400", kNic, 50, 1500, "port", kRoce},
    {"qdr", kNic, 4, 1300, "port", kInfiniband},
    {"fdr", kNic, 6.8, 1100, "port", kInfiniband},
    {"edr", kNic, 12.5, 1000, "port", kInfiniband},
    {"hdr100", kNic, 12.5, 1000, "port", kInfiniband},
    {"hdr200", kNic, 25, 1000, "port", kInfiniband},
    {"ndr200", kNic, 25, 1000, "port", kInfiniband},
    {"ndr400", kNic, 50, 1000, "port", kInfiniband},
    {"xdr800", kNic, 100, 1000, "port", kInfiniband},
    {"efa1", kNic, 12.5, 12000, "port", kEfa},  // p4d: 4 x 100 Gb/s
    {"efa2", kNic, 12.5, 8000, "port", kEfa},   // p5: 32 x 100 Gb/s
    {"efa3", kNic, 25, 6000, "port", kEfa},     // p5en: 16 x 200 Gb/s
    {"slingshot10", kNic, 12.5, 1800, "port", kSlingshot},
    {"slingshot11", kNic, 25, 1800, "port", kSlingshot},
    {"omnipath100", kNic, 12.5, 1000, "port",
     "Intel Omni-Path 100 data sheet; latency: Birrittella et al. 2015, Intel Omni-Path "
     "architecture"},
    {"tofud", kNic, 6.8, 490, "port",
     "Ajima et al. 2018, The Tofu interconnect D (CLUSTER): 6.8 GB/s a link, put 0.49 us"},
    {"aries", kNic, 10, 1300, "port", "Alverson et al. 2012, Cray XC series network"},
});
#undef TUTTI_PCIE

// Nodes as NVIDIA's HGX and DGX, AMD's OAM boards and the like have them.
constexpr auto kGpuModels = std::to_array<GpuModel>({
    {"p100", GpuVendor::kNvidia, "hbm2", "nvlink1", "pcie3x16", false},
    {"v100", GpuVendor::kNvidia, "hbm2", "nvlink2", "pcie3x16", false},
    {"t4", GpuVendor::kNvidia, "gddr6", "", "pcie3x16", false},
    {"a100", GpuVendor::kNvidia, "hbm2e", "nvlink3", "pcie4x16", true},
    {"a10g", GpuVendor::kNvidia, "gddr6", "", "pcie4x16", false},
    {"l4", GpuVendor::kNvidia, "gddr6", "", "pcie4x16", false},
    {"l40s", GpuVendor::kNvidia, "gddr6", "", "pcie4x16", false},
    {"h100", GpuVendor::kNvidia, "hbm3", "nvlink4", "pcie5x16", true},
    {"h200", GpuVendor::kNvidia, "hbm3", "nvlink4", "pcie5x16", true},
    {"gh200", GpuVendor::kNvidia, "hbm3", "nvlink4", "pcie5x16", false},
    {"b200", GpuVendor::kNvidia, "hbm3e", "nvlink5", "pcie5x16", true},
    {"gb200", GpuVendor::kNvidia, "hbm3e", "nvlink5", "pcie5x16", true},
    {"b300", GpuVendor::kNvidia, "hbm3e", "nvlink5", "pcie6x16", true},
    {"mi50", GpuVendor::kAmd, "hbm2", "xgmi2", "pcie4x16", false},
    {"mi100", GpuVendor::kAmd, "hbm2", "xgmi2", "pcie4x16", false},
    {"mi250x", GpuVendor::kAmd, "hbm2e", "xgmi3", "pcie4x16", false},
    {"mi300x", GpuVendor::kAmd, "hbm3", "xgmi4", "pcie5x16", false},
    {"mi325x", GpuVendor::kAmd, "hbm3e", "xgmi4", "pcie5x16", false},
    {"mi355x", GpuVendor::kAmd, "hbm3e", "xgmi5", "pcie5x16", false},
    {"max1550", GpuVendor::kIntel, "hbm2e", "xelink", "pcie5x16", false},
});

// Levenshtein's distance: how far a name was mistyped.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// The row of a name, or an error that lists the names nearest to it.
template <typename Row>
Result<const Row*> find(std::span<const Row> rows, std::string_view name, std::string_view what) {
  constexpr std::size_t kShown = 6, kLongest = 64;
  const std::string wanted = lower_case(name.substr(0, kLongest));
  const auto found = std::ranges::find(rows, std::string_view(wanted), &Row::name);
  if (found != rows.end() && name.size() <= kLongest) return &*found;
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const Row& row : rows) near.emplace_back(distance(wanted, row.name), row.name);
  std::ranges::stable_sort(near, {}, &std::pair<std::size_t, std::string_view>::first);
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, near.size()); ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", near[i].second);
  return make_error(Code::kInvalidArgument, fmt::format("unknown {} '{}'; the nearest are {}", what,
                                                        printable(name, kLongest), names));
}

}  // namespace

std::span<const Technology> all_technologies() { return kTechnologies; }
std::span<const GpuModel> all_gpu_models() { return kGpuModels; }

Result<const Technology*> find_technology(std::string_view name) {
  return find(all_technologies(), name, "technology");
}

Result<const GpuModel*> find_gpu_model(std::string_view name) {
  return find(all_gpu_models(), name, "GPU");
}

const Technology* pcie_technology(int generation, int width) {
  const std::string name = fmt::format("pcie{}x{}", generation, width);
  const auto found = std::ranges::find(kTechnologies, std::string_view(name), &Technology::name);
  return found == kTechnologies.end() ? nullptr : &*found;
}

std::string_view name_of(TechnologyKind kind) {
  switch (kind) {
    case kMemory:
      return "memory";
    case kShared:
      return "shared memory";
    case kDevice:
      return "device link";
    case kSocket:
      return "socket link";
    case kPcie:
      return "PCIe";
    case kNic:
      return "network port";
  }
  return "unknown";
}

}  // namespace tutti
