// SPDX-License-Identifier: Apache-2.0
// Costs of plans among ranks on devices, of one block, by how messages move.
#pragma once

#include <array>
#include <string_view>

#include "model/host_costs.hpp"

namespace tutti {

struct DeviceCosts {
  HostCosts packets;  // of every format
  HostCosts slots;    // and cells, and the signals of direct plans
  bool operator==(const DeviceCosts&) const = default;
};

// Before anything was measured on a device: one block of an H100 or H200, a message through the
// second-level cache, a step's barriers and fences, and a block's share of the memory's bandwidth
// (4.8 TB/s over 132 blocks).
inline constexpr DeviceCosts kPriorDeviceCosts{
    .packets = {.alpha_ns = 1000, .step_ns = 300, .beta_ns_per_byte = 0.05},
    .slots = {.alpha_ns = 2000, .step_ns = 700, .beta_ns_per_byte = 0.027}};
// Where they come from, for people.
inline constexpr std::string_view kPriorDeviceSource =
    "priors for a block of an H100, not measured";

// The one list of what they are made of, for files.
struct DeviceCostsMember {
  std::string_view name;
  HostCosts DeviceCosts::*costs;
};
inline constexpr std::array kDeviceCostsMembers{DeviceCostsMember{"packets", &DeviceCosts::packets},
                                                DeviceCostsMember{"slots", &DeviceCosts::slots}};

}  // namespace tutti
