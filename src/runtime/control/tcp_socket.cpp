#include "runtime/control/tcp_socket.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tutti::control {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// A host that is not up yet drops the first packet, and the kernel repeats it ever more rarely.
constexpr std::int64_t kConnectAttemptNs = 5'000'000'000;
// A peer's host that is gone says nothing: after so long an idle connection has ended.
constexpr int kIdleS = 10;
constexpr int kProbeS = 5;
constexpr int kProbes = 4;
constexpr int kUnackedMs = 30'000;
// Who connects and says nothing stays in the kernel for so long before we hear of it at all.
constexpr int kDeferAcceptS = 10;

struct SocketName {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketName name_of(const TcpAddress& address) {
  SocketName name;
  if (address.v6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    std::memcpy(&v6.sin6_addr, address.ip.data(), 16);
    std::memcpy(&name.storage, &v6, sizeof(v6));
    name.bytes = sizeof(v6);
  } else {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.ip.data(), 4);
    std::memcpy(&name.storage, &v4, sizeof(v4));
    name.bytes = sizeof(v4);
  }
  return name;
}

std::optional<TcpAddress> address_of(const sockaddr* name) {
  TcpAddress address;
  if (name->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, name, sizeof(v4));
    address.port = ntohs(v4.sin_port);
    std::memcpy(address.ip.data(), &v4.sin_addr, 4);
    return address;
  }
  if (name->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6{};
  std::memcpy(&v6, name, sizeof(v6));
  address.v6 = true;
  address.port = ntohs(v6.sin6_port);
  std::memcpy(address.ip.data(), &v6.sin6_addr, 16);
  return address;
}

std::optional<TcpAddress> own_name(int socket) {
  SocketName name;
  name.bytes = sizeof(name.storage);
  if (::getsockname(socket, name.get(), &name.bytes) != 0) return std::nullopt;
  return address_of(name.get());
}

ControlFd open_socket(bool v6, int type) {
  return ControlFd::from(
      [&] { return ::socket(v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

void set_option(int socket, int level, int option, int value) {
  // A kernel without it only makes us notice later.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof(value)));
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnackedMs);
}

tl::unexpected<Error> connect_error(const TcpAddress& to, int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
      return make_error(Code::kRemoteError, fmt::format("nobody listens at {}", to.text()));
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
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
      fmt::format("{} is no address of this host: a root listens where rank 0 runs", at.ip_text()));
}

}  // namespace

Result<Listener> listen_tcp(const TcpAddress& at) {
  ControlFd fd = open_socket(at.v6, SOCK_STREAM);
  if (!fd && errno == EAFNOSUPPORT) return not_of_this_host(at);
  if (!fd) return errno_error("cannot open a TCP socket", errno);
  if (at.v6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // An agreed port may have connections of an earlier run that are about to end.
  if (at.port != 0) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, kDeferAcceptS);
  const SocketName name = name_of(at);
  const bool bound = ::bind(fd.get(), name.get(), name.bytes) == 0;
  if (!bound || ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return make_error(
          Code::kSystemError,
          fmt::format("port {} of {} is taken by another socket: choose another port, "
                      "or is rank 0 there twice?",
                      at.port, at.ip_text()));
    }
    if (errno == EADDRNOTAVAIL) return not_of_this_host(at);
    return errno_error(fmt::format("cannot listen at {}", at.text()), errno);
  }
  const std::optional<TcpAddress> address = own_name(fd.get());
  if (!address) return errno_error("cannot ask a TCP socket for its address", errno);
  return Listener(std::move(fd), Medium::kTcp, address->text());
}

Result<Channel> connect_tcp(const TcpAddress& to, const Stop& stop, Deadline deadline) {
  ControlFd fd = open_socket(to.v6, SOCK_STREAM);
  if (!fd && errno == EAFNOSUPPORT) return connect_error(to, errno);
  if (!fd) return errno_error("cannot open a TCP socket", errno);
  tune(fd.get());
  const SocketName name = name_of(to);
  if (::connect(fd.get(), name.get(), name.bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return connect_error(to, errno);
    const Deadline attempt{std::min(deadline.at_ns, now_ns() + kConnectAttemptNs)};
    if (const Status ready = wait_for(fd.get(), POLLOUT, stop, attempt); !ready) {
      if (ready.error().code == Code::kTimeout) return connect_error(to, ETIMEDOUT);
      return tl::unexpected(ready.error());
    }
    int error_number = 0;
    socklen_t bytes = sizeof(error_number);
    static_cast<void>(::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &bytes));
    if (error_number != 0) return connect_error(to, error_number);
  }
  // Who asks a free port of its own host again and again may be given that very port to ask from,
  // and is then connected to itself.
  if (own_name(fd.get()) == to) return connect_error(to, ECONNREFUSED);
  return Channel(std::move(fd), Medium::kTcp);
}

Channel accept_tcp(int listener) {
  ControlFd fd = ControlFd::from(
      [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (!fd) return {};
  tune(fd.get());
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
    std::optional<TcpAddress> address = address_of(entry->ai_addr);
    if (!address) continue;
    address->port = place.port;
    if (std::ranges::find(addresses, *address) == addresses.end()) addresses.push_back(*address);
  }
  if (addresses.empty()) {
    return make_error(Code::kRemoteError,
                      fmt::format("the name '{}' is not known here: {}", place.host,
                                  failed == 0 ? "it has no IP address" : ::gai_strerror(failed)));
  }
  return addresses;
}

std::optional<TcpAddress> source_towards(const TcpAddress& to) {
  const ControlFd fd = open_socket(to.v6, SOCK_DGRAM);  // a connect of UDP only looks up the way
  const SocketName name = name_of(to);
  if (!fd || ::connect(fd.get(), name.get(), name.bytes) != 0) return std::nullopt;
  std::optional<TcpAddress> address = own_name(fd.get());
  if (address) address->port = 0;
  return address;
}

}  // namespace tutti::control
