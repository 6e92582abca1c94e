// SPDX-License-Identifier: Apache-2.0
// The RDMA ports that tests may use, as the environment admits them.
#pragma once

#include <vector>

#include "transports/verbs/verbs_transport.hpp"

namespace tutti::test {

inline std::vector<VerbsPort> usable_ports() {
  auto ports = verbs_ports({});
  if (!ports) return {};
  std::erase_if(*ports, [](const VerbsPort& port) { return !port.usable(); });
  return *ports;
}

}  // namespace tutti::test
