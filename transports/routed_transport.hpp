// SPDX-License-Identifier: Apache-2.0
// Two ways in one: shared memory to the ranks of this host, the wire to those of others.
//
// Its answers about itself hold for both; a plan's connections may use either transport.
#pragma once

#include <memory>

#include "transports/transport.hpp"

namespace tutti {

// `near` where it reaches, else `far`. Both speak for the rank of `control`, which must outlive
// them.
[[nodiscard]] std::unique_ptr<Transport> make_routed_transport(ControlChannel& control,
                                                               std::unique_ptr<Transport> near,
                                                               std::unique_ptr<Transport> far);

}  // namespace tutti
