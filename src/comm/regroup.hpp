// SPDX-License-Identifier: Apache-2.0
// Split: how the ranks of one communicator agree on new ones made of its members, in one exchange
// among all of them. It ends in the control plane of the new job, for Communicator::create: its
// members know each other from the old one, so no root is started and nobody introduces himself.
// User thread.
#pragma once

#include <cstdint>
#include <memory>

#include "control/control_plane.hpp"

namespace tutti {

inline constexpr std::int32_t kNoColor = -1;

// Collective. Ranks of one color, ordered by (key, rank); null for kNoColor. Errors: of
// ControlPlane::allgather; kSystemError where this rank cannot listen, and then kRemoteError on the
// others of its color.
[[nodiscard]] Result<std::unique_ptr<ControlPlane>> split(ControlPlane& control, std::int32_t color,
                                                          std::int32_t key, Deadline deadline);

}  // namespace tutti
