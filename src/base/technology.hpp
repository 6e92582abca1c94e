// SPDX-License-Identifier: Apache-2.0
// What links and memories are made of: one table of constants per technology, each with its source.
//
// A bandwidth is of one direction, of the unit that `per` names, before protocols take their share;
// a latency is of the way alone (wires, switches on a card, adapters), without software. Both are
// where a model starts; calibration and fits (src/model) replace them.
//
//   TUTTI_TRY_ASSIGN(const Technology* nic, find_technology("ndr200"));   // 25 GB/s, 1000 ns
//
// Pure data; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"

namespace tutti {

enum class TechnologyKind : std::uint8_t {
  kMemory,  // HBM, DDR: what a memory gives all who read and write it
  kShared,  // between cores of one host, by distance
  kDevice,  // between accelerators of one node
  kSocket,  // between packages of one host
  kPcie,    // between a host and a device
  kNic,     // a network port
};

struct Technology {
  std::string_view name;  // lower case, as in files and on command lines
  TechnologyKind kind = TechnologyKind::kNic;
  double GBps = 0;  // 1e9 bytes/s, of one direction
  double latency_ns = 0;
  std::string_view per;     // "GPU", "link", "port", "core", "package"
  std::string_view source;  // URL or document; "estimate" where a number is none's measurement
};

// In the order of kinds.
[[nodiscard]] std::span<const Technology> all_technologies();

// Upper and lower case are one. kInvalidArgument names those that look alike.
[[nodiscard]] Result<const Technology*> find_technology(std::string_view name);

// PCIe of a generation 1..6 and a width 1, 2, 4, 8 or 16; null otherwise.
[[nodiscard]] const Technology* pcie_technology(int generation, int width);

[[nodiscard]] std::string_view name_of(TechnologyKind kind);

enum class GpuVendor : std::uint8_t { kNvidia, kAmd, kIntel };

struct GpuModel {
  std::string_view name;
  GpuVendor vendor = GpuVendor::kNvidia;
  std::string_view memory;  // technologies by name
  std::string_view intra;   // empty: PCIe alone
  std::string_view pcie;
  bool switched = false;  // in the usual node of 8: through switches, or each wired to each
};

[[nodiscard]] std::span<const GpuModel> all_gpu_models();
// As find_technology().
[[nodiscard]] Result<const GpuModel*> find_gpu_model(std::string_view name);

}  // namespace tutti
