// SPDX-License-Identifier: Apache-2.0
#include "control/tcp_socket.hpp"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/tcp_socket.hpp"

namespace tutti::control {
namespace {

// A host that is not up yet drops the first packet, and the kernel repeats it ever more rarely.
constexpr std::int64_t kConnectAttemptNs = 5'000'000'000;
// Data that a peer's host has not acknowledged for this long is lost.
constexpr int kUnackedMs = 30'000;

// Not for data: a peer that does not read for long is well.
void limit_unacked(int socket) {
  static_cast<void>(
      ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnackedMs, sizeof(kUnackedMs)));
}

tl::unexpected<Error> connect_error(const TcpAddress& to, int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
      return make_error(Code::kRemoteError, fmt::format("no process listens at {}", to.text()));
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      // A link that has just come up answers so until the neighbours know it, and one that is down
      // until it is up again: it says no more of the peer than silence does.
      return make_error(Code::kTimeout, fmt::format("{} cannot be reached from this host: {}",
                                                    to.text(), std::strerror(error_number)));
    case EAFNOSUPPORT:
      return make_error(Code::kRemoteError, fmt::format("{} cannot be reached from this host: {}",
                                                        to.text(), std::strerror(error_number)));
    case ETIMEDOUT:
      return make_error(Code::kTimeout, fmt::format("{} does not answer", to.text()));
    default:
      return errno_error(fmt::format("cannot connect to {}", to.text()), error_number);
  }
}

tl::unexpected<Error> not_of_this_host(const TcpAddress& at) {
  return make_error(
      Code::kInvalidArgument,
      fmt::format("{} is not an address of this host; TUTTI_ROOT must name the host of rank 0",
                  at.ip_text()));
}

}  // namespace

Result<Listener> listen_tcp(const TcpAddress& at) {
  ProcessFd fd = tcp::listen_at(at);
  if (!fd && errno == EADDRINUSE)
    return make_error(Code::kSystemError,
                      fmt::format("port {} of {} is in use: choose another port, and check that "
                                  "only one process has rank 0",
                                  at.port, at.ip_text()));
  if (!fd && (errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT)) return not_of_this_host(at);
  if (!fd) return errno_error(fmt::format("cannot listen at {}", at.text()), errno);
  const std::optional<TcpAddress> address = tcp::own_address(fd.get());
  if (!address) return errno_error("cannot ask a TCP socket for its address", errno);
  return Listener(std::move(fd), Medium::kTcp, address->text());
}

Result<Channel> connect_tcp(const TcpAddress& to, const Stop& stop, Deadline deadline) {
  ProcessFd fd = tcp::start_connect(to);
  if (!fd) return connect_error(to, errno);
  limit_unacked(fd.get());
  const Deadline attempt{std::min(deadline.at_ns, now_ns() + kConnectAttemptNs)};
  if (const Status ready = wait_for(fd.get(), POLLOUT, stop, attempt); !ready) {
    if (ready.error().code == Code::kTimeout) return connect_error(to, ETIMEDOUT);
    return tl::unexpected(ready.error());
  }
  const int error_number = tcp::outcome_of_connect(fd.get(), to);
  if (error_number != 0) return connect_error(to, error_number);
  return Channel(std::move(fd), Medium::kTcp);
}

Channel accept_tcp(int listener) {
  ProcessFd fd = tcp::accept_from(listener);
  if (!fd) return {};
  limit_unacked(fd.get());
  return Channel(std::move(fd), Medium::kTcp);
}

Result<std::vector<TcpAddress>> resolve(const HostPort& place) {
  if (const std::optional<TcpAddress> ip = parse_ip(place.host, place.port)) {
    return std::vector{*ip};
  }
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(place.host.c_str(), nullptr, &wanted, &list);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(failed == 0 ? list : nullptr,
                                                                   &::freeaddrinfo);
  std::vector<TcpAddress> addresses;
  for (const addrinfo* entry = owner.get(); entry != nullptr; entry = entry->ai_next) {
    std::optional<TcpAddress> address = tcp::address_of(entry->ai_addr);
    if (!address) continue;
    address->port = place.port;
    if (std::ranges::find(addresses, *address) == addresses.end()) addresses.push_back(*address);
  }
  if (addresses.empty()) {
    return make_error(Code::kRemoteError,
                      fmt::format("the name '{}' cannot be resolved here: {}", place.host,
                                  failed == 0 ? "it has no IP address" : ::gai_strerror(failed)));
  }
  return addresses;
}

std::optional<TcpAddress> source_towards(const TcpAddress& to) {
  const ProcessFd fd = tcp::open_socket(to, SOCK_DGRAM);  // a connect of UDP looks up the way only
  const tcp::SocketName name = tcp::name_of(to);
  if (!fd || ::connect(fd.get(), name.get(), name.bytes) != 0) return std::nullopt;
  std::optional<TcpAddress> address = tcp::own_address(fd.get());
  if (address) address->port = 0;
  return address;
}

}  // namespace tutti::control
