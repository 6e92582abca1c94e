// SPDX-License-Identifier: Apache-2.0
// The unique id without a key-value store: every rank makes the same one from the root's address
// and the job's secret, and rank 0 listens there.
#pragma once

#include <cstdint>
#include <string>

#include "launch/launch.hpp"

namespace tutti::launch {

struct HostPort {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
// "host:port", "10.0.0.1:7000" or "[fd00::1]:7000". Error: kInvalidArgument. Pure.
[[nodiscard]] Result<HostPort> parse_root(const std::string& root);

// Waits for no rank. Errors: kInvalidArgument (nobody said where; address; secret file; neither a
// secret nor TUTTI_INSECURE, or both), kSystemError (the port is taken, the address is not of this
// host). Without a secret rank 0 warns, whatever the log's level.
[[nodiscard]] Result<UniqueId> meet_at_address(const Place& place, const Config& config,
                                               const Log& log);

}  // namespace tutti::launch
