// SPDX-License-Identifier: Apache-2.0
// TCP between the ranks of a job, on one host or several, over IPv4 or IPv6.
//
// Connections are pumped: the sender writes into a mirror of the peer's inbox, progress() carries
// what was committed, and the receiver's progress() lands it in the inbox itself, at the same
// place. Two ranks share one TCP connection, made by who sends first; where both began at once,
// each sends on its own. Nothing runs but in progress(), connect() and the service thread's
// answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct TcpOptions {
  std::string ip = "127.0.0.1";  // of this rank's interface, IPv4 or IPv6; its peers connect there
  std::uint64_t arena_bytes = std::uint64_t{2} << 20;  // of every rank; rounded up to pages
  Log log{};                                           // strangers at the door, as warnings
};

// A transport for the rank that `control` speaks for; `control` must outlive it. Nothing is opened
// before listen(), nothing at all with a single rank. Errors: kInvalidArgument for an arena beyond
// kMaxArenaBytes.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tcp_transport(ControlChannel& control,
                                                                    const TcpOptions& options);

}  // namespace tutti
