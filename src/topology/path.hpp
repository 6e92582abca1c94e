// SPDX-License-Identifier: Apache-2.0
// Ways through a graph: from one device to another with latency, bandwidth and the links crossed.
//
// A message goes from GPU to GPU over NVLink or xGMI where links join the two (through an NVSwitch
// too); otherwise the way of least latency, the widest of these. Cores, GPUs and NICs pass nothing
// on for others, save a NIC between its host and the network; no way leads through a third host.
//
// Const members: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/graph.hpp"

namespace tutti::topology {

// Nearest first. Names are those of nvidia-smi's and rocm-smi's matrices where they have one.
enum class PathClass : std::uint8_t {
  kSelf,     // X
  kNvlink,   // NV#: # NVLinks
  kXgmi,     // XG#: # xGMI links
  kC2c,      // C2C
  kCache,    // L3: cores of one cache
  kPix,      // PIX: at most one PCIe switch
  kPxb,      // PXB: several PCIe switches, no root
  kPhb,      // PHB: a PCIe root
  kNuma,     // NUMA: cores of one NUMA node
  kNode,     // NODE: PCIe roots of one NUMA node
  kPackage,  // PKG: NUMA nodes of one package
  kSys,      // SYS: between packages, or PCIe between NUMA nodes
  kNet,      // NET: the network
  kNone,     // -: no way
};
inline constexpr int kPathClassCount = 14;

// One crossing of a link.
struct Crossing {
  LinkIndex link = 0;
  bool forward = true;  // from Link::a to Link::b
  friend bool operator==(const Crossing&, const Crossing&) = default;
};

struct Path {
  DeviceId from = kNoDevice;
  DeviceId to = kNoDevice;
  PathClass kind = PathClass::kNone;
  std::uint32_t count = 0;  // of NVLinks or xGMI links, the fewest on the way
  double latency_ns = 0;
  double bytes_per_ns = 0;  // of the narrowest link; 0: no link is crossed
  std::vector<Crossing> crossings;

  [[nodiscard]] bool exists() const { return kind != PathClass::kNone; }
  // "NV6", "PIX", "SYS".
  [[nodiscard]] std::string name() const;
};

// All ways from one device: to[id] for every device of the graph.
[[nodiscard]] std::vector<Path> paths_from(const Graph& graph, DeviceId from);
[[nodiscard]] Path path_between(const Graph& graph, DeviceId from, DeviceId to);

// Links that both ways cross in the same direction: where two messages share bandwidth.
[[nodiscard]] std::vector<LinkIndex> shared_links(const Path& one, const Path& other);

// Explains a class's name in a few words, for legends.
[[nodiscard]] std::string_view name_of(PathClass kind);
[[nodiscard]] std::string_view meaning_of(PathClass kind);

}  // namespace tutti::topology
