#include "transports/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace tutti::tcp {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
// A peer's host that is gone says nothing: after so long an idle connection has ended. One with
// bytes under way is left to the kernel: a peer that does not read for long is well.
constexpr int kIdleS = 10, kProbeS = 5, kProbes = 4;
// Who connects and says nothing stays in the kernel for so long before we hear of it at all.
constexpr int kDeferAcceptS = 10;

struct Name {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Name name_of(const Endpoint& endpoint) {
  Name name;
  if (endpoint.v6 != 0) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(name.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    std::memcpy(&v6.sin6_addr, endpoint.ip.data(), sizeof v6.sin6_addr);
    name.bytes = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(name.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.ip.data(), sizeof v4.sin_addr);
    name.bytes = sizeof v4;
  }
  return name;
}

std::uint16_t port_of(int socket) {
  Name name;
  if (::getsockname(socket, name.get(), &name.bytes) != 0) return 0;
  return ntohs(name.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(name.storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(name.storage).sin_port);
}

UniqueFd open_socket(const Endpoint& endpoint) {
  return UniqueFd(::socket(endpoint.v6 != 0 ? AF_INET6 : AF_INET,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(int socket, int level, int option, int value) {
  // A kernel without it is slower, or notices later.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
}

void tune(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// 0, or why not.
int await_connected(int socket, Deadline deadline) {
  pollfd poll{.fd = socket, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&poll, 1, deadline.left_poll_ms());
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return errno;
  if (ready == 0) return ETIMEDOUT;
  int error_number = 0;
  socklen_t bytes = sizeof error_number;
  static_cast<void>(::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &bytes));
  return error_number;
}

}  // namespace

std::string Endpoint::text() const {
  char ip_text[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(v6 != 0 ? AF_INET6 : AF_INET, ip.data(), ip_text, sizeof ip_text);
  return fmt::format(fmt::runtime(v6 != 0 ? "[{}]:{}" : "{}:{}"), ip_text, port);
}

Result<Listening> listen_at(std::string_view ip) {
  const std::string text(ip);
  Endpoint at;
  if (::inet_pton(AF_INET, text.c_str(), at.ip.data()) != 1) {
    if (::inet_pton(AF_INET6, text.c_str(), at.ip.data()) != 1)
      return make_error(Code::kInvalidArgument,
                        fmt::format("tcp: '{}' is no IP address to listen at", text));
    at.v6 = 1;
  }
  UniqueFd socket = open_socket(at);
  if (!socket) return errno_error("tcp: cannot open a socket", errno);
  if (at.v6 != 0) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  set_option(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, kDeferAcceptS);
  Name name = name_of(at);
  if (::bind(socket.get(), name.get(), name.bytes) != 0) {
    if (errno == EADDRNOTAVAIL)
      return make_error(Code::kInvalidArgument,
                        fmt::format("tcp: {} is no address of this host", text));
    return errno_error(fmt::format("tcp: cannot listen at {}", text), errno);
  }
  if (::listen(socket.get(), kBacklog) != 0)
    return errno_error(fmt::format("tcp: cannot listen at {}", text), errno);
  at.port = port_of(socket.get());
  return Listening{std::move(socket), at};
}

Result<UniqueFd> connect_to(const Endpoint& endpoint, Deadline deadline) {
  UniqueFd socket = open_socket(endpoint);
  if (!socket) return errno_error("tcp: cannot open a socket", errno);
  tune(socket.get());
  Name name = name_of(endpoint);
  int error_number = ::connect(socket.get(), name.get(), name.bytes) == 0 ? 0 : errno;
  if (error_number == EINPROGRESS || error_number == EINTR)
    error_number = await_connected(socket.get(), deadline);
  if (error_number == 0) return socket;
  return make_error(error_number == ECONNREFUSED ? Code::kRemoteError : Code::kSystemError,
                    fmt::format("tcp: cannot connect to {}: {}", endpoint.text(),
                                std::generic_category().message(error_number)));
}

UniqueFd accept_from(int listener) {
  UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) tune(socket.get());
  return socket;
}

}  // namespace tutti::tcp
