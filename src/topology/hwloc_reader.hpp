// SPDX-License-Identifier: Apache-2.0
// A host through hwloc: this machine, an XML export of another, or a synthetic description.
//
// hwloc gives packages, NUMA nodes with their distances, caches, cores, the PCI tree with the speed
// of its links, GPUs and NICs, and NVLink's bandwidths where it was built with NVML. Chains of PCI
// bridges without a branch become one link, as nvidia-smi counts; all chips of an NVSwitch fabric
// become one device. On this machine the rates of NICs come from sysfs; in exports they are not
// written down, and the table (figures.hpp) answers by the NIC's model.
//
// One thread at a time may read this machine; hwloc itself keeps no state between calls.
#pragma once

#include <functional>
#include <string>

#include "topology/graph.hpp"

namespace tutti::topology {

// kNotSupported where the build has no hwloc, kSystemError where it cannot read this machine.
[[nodiscard]] Result<Graph> read_this_machine();
// An export (lstopo --of xml), version 2. kInvalidArgument, "FILE:LINE:COLUMN: what" where XML is
// broken, "FILE: what" where hwloc refuses it.
[[nodiscard]] Result<Graph> read_hwloc_file(const std::string& path);
[[nodiscard]] Result<Graph> read_hwloc_text(std::string text, const std::string& name);
// "package:2 numa:1 l3:4 core:8 pu:2", as hwloc(7) describes.
[[nodiscard]] Result<Graph> read_synthetic(const std::string& description);

// Follows the environment, as hwloc's own programs do: HWLOC_XMLFILE, else HWLOC_SYNTHETIC, else
// this machine. `get` is getenv or a test's.
[[nodiscard]] Result<Graph> read_host(const std::function<const char*(const char*)>& get);

[[nodiscard]] bool has_hwloc();

}  // namespace tutti::topology
