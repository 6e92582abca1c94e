// Two ways in one: shared memory to the ranks of this host, the wire to those of others.
//
// What it tells of itself is true on both; a plan's connections may take either way.
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
