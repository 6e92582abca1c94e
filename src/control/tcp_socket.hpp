// SPDX-License-Identifier: Apache-2.0
// The TCP half of socket.hpp, and what it asks of the system: names, ways.
// Any thread.
#pragma once

#include <optional>
#include <vector>

#include "control/socket.hpp"

namespace tutti::control {

[[nodiscard]] Result<Channel> connect_tcp(const TcpAddress& to, const Stop& stop,
                                          Deadline deadline);
[[nodiscard]] Channel accept_tcp(int listener);

// The addresses of a host, itself if it is an IP. Waits for the system's resolver, which has limits
// of its own. Error: kRemoteError (the name is not known).
[[nodiscard]] Result<std::vector<TcpAddress>> resolve(const HostPort& place);
// This host's address on the way to `to`, with port 0. Sends nothing. nullopt: there is no way.
[[nodiscard]] std::optional<TcpAddress> source_towards(const TcpAddress& to);

}  // namespace tutti::control
