// SPDX-License-Identifier: Apache-2.0
// The control plane of a job of one rank: it needs no socket, no thread and no root.
#pragma once

#include <memory>

#include "control/control_plane.hpp"

namespace tutti::control {

// `self` becomes rank 0.
[[nodiscard]] std::unique_ptr<ControlPlane> make_solo_plane(const SessionId& session,
                                                            PeerInfo self);

}  // namespace tutti::control
