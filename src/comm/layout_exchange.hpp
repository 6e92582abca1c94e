// SPDX-License-Identifier: Apache-2.0
// The start's exchange about topology: hosts' graphs come together on rank 0, which merges them and
// decides in which order ranks stand in rings and trees; its decision goes to all.
//
// It takes place only where places differ (layout_matters); a job on a host whose places are all
// alike pays nothing. One rank a host, the lowest, discovers. An error in a description costs a
// warning, and ranks keep the order of their numbers; it never ends the job.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "control/control_plane.hpp"
#include "plan/rank_orders.hpp"
#include "plan/settings.hpp"
#include "topology/seat.hpp"

namespace tutti {

// Holds what a rank knows of itself before the settings are exchanged.
struct OwnPlace {
  topology::Seat seat;
  topology::Interest interest = topology::Interest::kNone;
};
[[nodiscard]] OwnPlace look_at_own_place(const Config& config, Rank rank,
                                         const std::vector<PeerInfo>& peers);
[[nodiscard]] std::uint64_t seat_hash(const topology::Seat& seat);

// Is there anything to lay out? All ranks find the same.
[[nodiscard]] bool layout_matters(std::span<const RankFacts> all,
                                  const std::vector<PeerInfo>& peers);

struct AgreedLayout {
  RankOrders orders;
  std::string groups;  // RankLayout::groups, at most what Settings holds
  std::string source;
};
// Collective, where layout_matters() on all ranks. Rank 0 has the layout afterwards, the others
// have an empty one. Errors: those of the exchange.
[[nodiscard]] Result<AgreedLayout> gather_layout(ControlPlane& control, const Config& config,
                                                 const Log& log, const topology::Seat& seat,
                                                 Deadline deadline);

}  // namespace tutti
