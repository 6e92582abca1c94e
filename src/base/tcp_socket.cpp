// SPDX-License-Identifier: Apache-2.0
#include "base/tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>

namespace tutti::tcp {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// A peer's host that is gone says nothing: after so long an idle connection has ended.
constexpr int kIdleS = 10, kProbeS = 5, kProbes = 4;
// The kernel keeps a connection that sends nothing for this long before it shows it to us.
constexpr int kDeferAcceptS = 10;

void set_option(int socket, int level, int option, int value) {
  // A kernel without it is slower, or notices later.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
}

int option_of(int socket, int option) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return ::getsockopt(socket, IPPROTO_TCP, option, &value, &bytes) == 0 ? value : INT_MAX / 1000;
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

}  // namespace

bool is_unanswered(int socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  const std::int64_t given_s =
      option_of(socket, TCP_KEEPIDLE) +
      std::int64_t{option_of(socket, TCP_KEEPINTVL)} * option_of(socket, TCP_KEEPCNT);
  // A single one is often only on its way.
  return info.tcpi_retransmits + info.tcpi_probes > 1 &&
         std::int64_t{info.tcpi_last_ack_recv} >= 1000 * given_s;
}

SocketName name_of(const TcpAddress& address) {
  SocketName name;
  if (address.v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.ip.data(), sizeof v6.sin6_addr);
    std::memcpy(&name.storage, &v6, sizeof v6);
    name.bytes = sizeof v6;
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.ip.data(), sizeof v4.sin_addr);
    std::memcpy(&name.storage, &v4, sizeof v4);
    name.bytes = sizeof v4;
  }
  return name;
}

std::optional<TcpAddress> address_of(const sockaddr* name) {
  TcpAddress address;
  if (name->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, name, sizeof v4);
    address.port = ntohs(v4.sin_port);
    std::memcpy(address.ip.data(), &v4.sin_addr, sizeof v4.sin_addr);
    return address;
  }
  if (name->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, name, sizeof v6);
  address.v6 = true;
  address.port = ntohs(v6.sin6_port);
  std::memcpy(address.ip.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  return address;
}

std::optional<TcpAddress> own_address(int socket) {
  SocketName name;
  name.bytes = sizeof name.storage;
  auto* const to = reinterpret_cast<sockaddr*>(&name.storage);
  if (::getsockname(socket, to, &name.bytes) != 0) return std::nullopt;
  return address_of(name.get());
}

ProcessFd open_socket(const TcpAddress& of, int type) {
  return ProcessFd::from(
      [&] { return ::socket(of.v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

ProcessFd listen_at(const TcpAddress& at) {
  ProcessFd socket = open_socket(at, SOCK_STREAM);
  if (!socket) return socket;
  if (at.v6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // An agreed port may have connections of an earlier run that are about to end.
  if (at.port != 0) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, kDeferAcceptS);
  const SocketName name = name_of(at);
  if (::bind(socket.get(), name.get(), name.bytes) != 0) return {};
  if (::listen(socket.get(), kBacklog) != 0) return {};
  return socket;
}

ProcessFd start_connect(const TcpAddress& to) {
  ProcessFd socket = open_socket(to, SOCK_STREAM);
  if (!socket) return socket;
  tune(socket.get());
  const SocketName name = name_of(to);
  if (::connect(socket.get(), name.get(), name.bytes) == 0) return socket;
  if (errno != EINPROGRESS && errno != EINTR) return {};
  return socket;
}

int outcome_of_connect(int socket, const TcpAddress& to) {
  int error_number = 0;
  socklen_t bytes = sizeof error_number;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) return errno;
  // A process that connects repeatedly to a free port of its own host may be given that very port
  // as its own, and is then connected to itself.
  if (error_number == 0 && own_address(socket) == to) return ECONNREFUSED;
  return error_number;
}

ProcessFd accept_from(int listener) {
  ProcessFd socket = ProcessFd::from(
      [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (socket) tune(socket.get());
  return socket;
}

bool is_shortage(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS ||
         error_number == ENOMEM;
}

}  // namespace tutti::tcp
