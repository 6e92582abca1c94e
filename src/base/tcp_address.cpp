// SPDX-License-Identifier: Apache-2.0
#include "base/tcp_address.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace tutti {
namespace {

bool names_a_host(std::string_view text) {
  const auto legal = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, legal);
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace

bool TcpAddress::loopback() const {
  if (!v6) return ip[0] == std::byte{127};
  std::array<std::byte, 16> one{};
  one.back() = std::byte{1};
  return ip == one;
}

std::string TcpAddress::ip_text() const {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  ::inet_ntop(v6 ? AF_INET6 : AF_INET, ip.data(), buffer.data(), buffer.size());
  return buffer.data();
}

std::string TcpAddress::text() const { return HostPort{ip_text(), port}.text(); }

std::string HostPort::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}", kTcpScheme, v6 ? "[" : "", host, v6 ? "]" : "", port);
}

std::optional<HostPort> split_tcp(std::string_view text) {
  if (!text.starts_with(kTcpScheme)) return std::nullopt;
  text.remove_prefix(kTcpScheme.size());
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<std::uint16_t> port = parse_port(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (!port) return std::nullopt;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    const std::optional<TcpAddress> ip = parse_ip(host, *port);
    if (!ip || !ip->v6) return std::nullopt;
  } else if (!names_a_host(host)) {
    return std::nullopt;
  }
  return HostPort{.host = std::string(host), .port = *port};
}

std::optional<TcpAddress> parse_ip(std::string_view host, std::uint16_t port) {
  TcpAddress address{.port = port};
  const std::string text(host);  // inet_pton wants its end marked
  if (::inet_pton(AF_INET, text.c_str(), address.ip.data()) == 1) return address;
  address.v6 = true;
  if (::inet_pton(AF_INET6, text.c_str(), address.ip.data()) == 1) return address;
  return std::nullopt;
}

std::optional<TcpAddress> parse_tcp(std::string_view text) {
  const std::optional<HostPort> parts = split_tcp(text);
  return parts ? parse_ip(parts->host, parts->port) : std::nullopt;
}

}  // namespace tutti
