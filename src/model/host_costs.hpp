// SPDX-License-Identifier: Apache-2.0
// Costs of plans among ranks of one host, by protocol: what a calibration measures.
#pragma once

#include <array>
#include <string_view>

namespace tutti {

struct HostCosts {
  double alpha_ns = 0;          // from commit to the peer's step
  double step_ns = 0;           // a step's own overhead
  double beta_ns_per_byte = 0;  // per operand byte read or written
  // And per byte of an operand that is a message: its lines come from another core's cache.
  double message_ns_per_byte = 0;
  double switch_ns = 0;  // a core given to another rank, where ranks outnumber cores
  // Of small calls among ranks that have cores of their own (plan/choice.cpp): what several slices,
  // or one in peers' memory, take beyond one that repeats; what a rooted call takes there instead;
  // each step beside those of the path; and a message of more than one cell. They are the library's
  // own code, so a calibration leaves them as they are.
  double slices_ns = 0, rooted_ns = 0, other_message_ns = 0, long_message_ns = 0;
  // The additional costs of an operand in a peer's memory.
  double remote_ns = 0;
  double remote_ns_per_byte = 0;
  // And per byte for each further rank that a core is shared with: what a peer wrote has left the
  // cache by the time it is read.
  double remote_crowd_ns_per_byte = 0;
  bool operator==(const HostCosts&) const = default;
};

// Those of the protocols over shared memory.
struct CostSet {
  HostCosts flagged, slotted;
  HostCosts attached;  // direct plans that read by cross-memory attach
  HostCosts mapped;    // direct plans that load from windows and from the own process
  bool operator==(const CostSet&) const = default;
};
// Before anything was measured on a machine.
[[nodiscard]] const CostSet& prior_costs();

// The one list of what they are made of, for files and fits.
struct CostSetMember {
  std::string_view name;
  HostCosts CostSet::*costs;
};
struct HostCostsMember {
  std::string_view name;
  double HostCosts::*value;
};
inline constexpr std::array kCostSetMembers{
    CostSetMember{"flagged", &CostSet::flagged}, CostSetMember{"slots", &CostSet::slotted},
    CostSetMember{"attached", &CostSet::attached}, CostSetMember{"mapped", &CostSet::mapped}};
inline constexpr std::array kHostCostsMembers{
    HostCostsMember{"alpha_ns", &HostCosts::alpha_ns},
    HostCostsMember{"step_ns", &HostCosts::step_ns},
    HostCostsMember{"beta_ns_per_byte", &HostCosts::beta_ns_per_byte},
    HostCostsMember{"message_ns_per_byte", &HostCosts::message_ns_per_byte},
    HostCostsMember{"switch_ns", &HostCosts::switch_ns},
    HostCostsMember{"remote_ns", &HostCosts::remote_ns},
    HostCostsMember{"remote_ns_per_byte", &HostCosts::remote_ns_per_byte},
    HostCostsMember{"remote_crowd_ns_per_byte", &HostCosts::remote_crowd_ns_per_byte}};

}  // namespace tutti
