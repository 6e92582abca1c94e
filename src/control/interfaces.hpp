// SPDX-License-Identifier: Apache-2.0
// Which network interface to listen on: TUTTI_IFNAME, in NCCL's syntax.
//
//   eth,ib     the first interface whose name begins with "eth", else with "ib"
//   =eth0,ib0  of exactly that name
//   ^docker    the first that is not loopback and begins with none of these; ^=docker0 the same
//   (nothing)  the first that is not loopback; bridges of containers and virtual machines last
//
// Only interfaces count that are up and have an address; an IPv4 address goes before an IPv6 one.
// Link-local IPv6 addresses are no use to another host. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/tcp_address.hpp"

namespace tutti::control {

struct NetworkInterface {
  std::string name;
  bool up = false;
  bool loopback = false;
  std::vector<TcpAddress> addresses{};  // with port 0, IPv4 first
};

// In the kernel's order. Error: kSystemError, the kernel does not tell; no descriptor may be left.
[[nodiscard]] Result<std::vector<NetworkInterface>> list_interfaces();

// The loopback, as TUTTI_IFNAME names it; nullopt: there is none.
[[nodiscard]] std::optional<std::string> loopback_choice();

// Pure. nullopt: nothing was asked for and there is none. Error: kInvalidArgument, none is as it
// was asked for; names those that are there.
[[nodiscard]] Result<std::optional<TcpAddress>> choose_interface(
    const std::vector<NetworkInterface>& interfaces, std::string_view wanted);
// Chooses among this host's interfaces. If nothing was requested and the kernel does not list its
// interfaces, there is none.
[[nodiscard]] Result<std::optional<TcpAddress>> choose_interface(std::string_view wanted);

}  // namespace tutti::control
