// SPDX-License-Identifier: Apache-2.0
// Figures of links that no file and no operating system gives: from what hardware is called to a
// row of base/technology.hpp. If the hardware is not known, a usual row takes its place, and the
// figure says so (Origin::kDefault).
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "topology/graph.hpp"

namespace tutti::topology {

struct Figure {
  double bytes_per_ns = 0;  // per direction
  double latency_ns = 0;    // of one crossing
  Origin from = Origin::kDefault;
};

// Payload of a PCIe link: "16 GT/s", "32.0 GT/s PCIe" as sysfs writes it, and its lanes. Nothing
// where there is no such speed or width.
[[nodiscard]] std::optional<double> pcie_bytes_per_ns(std::string_view speed, int width);
// Returns the figure of a PCIe link of this bandwidth; for 0 (not known) it assumes 16 lanes of the
// third generation.
[[nodiscard]] Figure pcie(double bytes_per_ns);

// One NVLink, between two GPUs or (to_switch) from a GPU to an NVSwitch, by the GPU's compute
// capability (70, 80, 90) or, where that is 0, by its model's name.
[[nodiscard]] Figure nvlink(int compute_capability, std::string_view model, bool to_switch);
// From a GPU to its processor over NVLink or C2C.
[[nodiscard]] double processor_link_latency_ns();
// One xGMI link by the GPU's gfx number as RCCL writes it: 906, 908, 910 for gfx90a, 942.
[[nodiscard]] Figure xgmi(int gfx);

// Half of the way between two packages, whose hub is the host: by vendor ("GenuineIntel",
// "AuthenticAMD", "IBM") and the numbers that CPUID gives (-1: not known).
[[nodiscard]] Figure interconnect(std::string_view vendor, int family, int model);

// Inside a processor, one level of the tree core, cache, NUMA node, package. Messages between cores
// cross each level twice, and then take as long as the table says of the distance.
[[nodiscard]] Figure core_to_cache();
[[nodiscard]] Figure cache_to_numa();
[[nodiscard]] Figure numa_to_package();
[[nodiscard]] Figure root_to_numa();

// A NIC's port, latency: half of the way to another port. By the rate where it is known (bytes/ns,
// else 0), by PCI ids, by class (0x0207: InfiniBand).
struct NicIds {
  std::uint32_t vendor = 0;
  std::uint32_t device = 0;
  std::uint32_t pci_class = 0;
};
[[nodiscard]] Figure nic(const NicIds& ids, double bytes_per_ns);

}  // namespace tutti::topology
