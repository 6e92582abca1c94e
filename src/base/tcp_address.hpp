// SPDX-License-Identifier: Apache-2.0
// Addresses of the scheme "tcp:", as text and as numbers. Pure; any thread.
//
// "tcp:10.0.0.1:4000" and "tcp:[fd00::1]:4000" name a socket. "tcp:node7:4000" names a host that
// the resolver has to be asked for; it stands in unique ids only, never in what a peer sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

inline constexpr std::string_view kTcpScheme = "tcp:";

struct TcpAddress {
  bool v6 = false;
  std::array<std::byte, 16> ip{};  // network order; IPv4: the first four
  std::uint16_t port = 0;
  [[nodiscard]] bool loopback() const;
  [[nodiscard]] std::string ip_text() const;
  [[nodiscard]] std::string text() const;  // with the scheme
  bool operator==(const TcpAddress&) const = default;
};

struct HostPort {
  std::string host;  // a name, or an IP address without brackets
  std::uint16_t port = 0;
  [[nodiscard]] std::string text() const;  // with the scheme
};

// nullopt: not of the scheme, or malformed.
[[nodiscard]] std::optional<HostPort> split_tcp(std::string_view text);
// nullopt: the host is a name.
[[nodiscard]] std::optional<TcpAddress> parse_ip(std::string_view host, std::uint16_t port);
// A socket's address, no name. nullopt: anything else.
[[nodiscard]] std::optional<TcpAddress> parse_tcp(std::string_view text);

}  // namespace tutti
