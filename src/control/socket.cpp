// SPDX-License-Identifier: Apache-2.0
#include "control/socket.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "control/tcp_socket.hpp"

namespace tutti::control {
namespace {

constexpr std::string_view kScheme = "unix:";
constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn

struct UnixAddress {
  sockaddr_un name{};
  socklen_t name_bytes = 0;
};

// `text` without its scheme: "@name" or "/path". nullopt: not an address of ours.
std::optional<UnixAddress> parse_unix(std::string_view text) {
  UnixAddress result;
  result.name.sun_family = AF_UNIX;
  if (text.size() < 2 || text.size() >= sizeof(result.name.sun_path)) return std::nullopt;
  if (text.front() != '@' && text.front() != '/') return std::nullopt;
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  std::copy(text.begin(), text.end(), result.name.sun_path);
  const bool abstract = text.front() == '@';
  if (abstract) result.name.sun_path[0] = '\0';
  result.name_bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (abstract ? 0 : 1));
  return result;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) != 0) return false;
  return peer.uid == ::geteuid();
}

ProcessFd open_socket(int flags) {
  return ProcessFd::from(
      [&] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0); });
}

// Binds `text` and listens. errno tells why not.
ProcessFd bind_and_listen(const std::string& text) {
  ProcessFd fd = open_socket(SOCK_NONBLOCK);
  if (!fd) return fd;
  const std::optional<UnixAddress> address = parse_unix(text);
  if (!address) {
    errno = ENAMETOOLONG;
    return {};
  }
  const auto* name = reinterpret_cast<const sockaddr*>(&address->name);
  if (::bind(fd.get(), name, address->name_bytes) != 0) return {};
  if (text.front() == '/' && ::chmod(text.c_str(), 0600) != 0) return {};
  if (::listen(fd.get(), kBacklog) != 0) return {};
  return fd;
}

Result<Listener> listen_abstract() {
  std::array<unsigned char, 16> random{};
  ::randombytes_buf(random.data(), random.size());
  constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
  std::array<char, sodium_base64_ENCODED_LEN(random.size(), kVariant)> text{};
  ::sodium_bin2base64(text.data(), text.size(), random.data(), random.size(), kVariant);
  const std::string name = std::string("@tutti-") + text.data();
  ProcessFd fd = bind_and_listen(name);
  if (!fd) return errno_error("cannot listen on an abstract Unix socket", errno);
  return Listener(std::move(fd), Medium::kUnix, std::string(kScheme) + name);
}

Result<Listener> listen_path() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // The name must still fit into a unique id.
  const std::size_t most = kMaxLocalNameBytes - std::strlen("/tutti-XXXXXX/s");
  std::array<std::string, 2> parents = {runtime != nullptr ? runtime : "", "/tmp"};
  int error_number = ENOENT;
  for (const std::string& parent : parents) {
    if (parent.empty() || parent.front() != '/' || parent.size() > most) continue;
    std::string directory = parent + "/tutti-XXXXXX";
    if (::mkdtemp(directory.data()) == nullptr) {  // 0700
      error_number = errno;
      continue;
    }
    const std::string path = directory + "/s";
    ProcessFd fd = bind_and_listen(path);
    if (fd) return Listener(std::move(fd), Medium::kUnix, std::string(kScheme) + path, directory);
    error_number = errno;
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
  }
  return errno_error("cannot listen on a Unix socket under XDG_RUNTIME_DIR or /tmp", error_number);
}

// Connects within `deadline`: the kernel itself bounds the wait for a place in a full queue.
int connect_within(int socket, const UnixAddress& address, Deadline deadline) {
  const auto* name = reinterpret_cast<const sockaddr*>(&address.name);
  for (;;) {
    const std::int64_t left_us = std::max<std::int64_t>(deadline.left_ns() / 1000, 1);
    const timeval timeout{.tv_sec = left_us / 1'000'000,
                          .tv_usec = static_cast<suseconds_t>(left_us % 1'000'000)};
    static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)));
    if (::connect(socket, name, address.name_bytes) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace

Listener::Listener(ProcessFd fd, Medium medium, std::string address, std::string directory)
    : fd_(std::move(fd)),
      medium_(medium),
      address_(std::move(address)),
      directory_(std::move(directory)) {}

Listener::~Listener() {
  if (!fd_ || directory_.empty() || !fd_.of_this_process()) return;
  ::unlink((directory_ + "/s").c_str());
  ::rmdir(directory_.c_str());
}

Result<Listener> listen_local(ListenKind kind) {
  if (kind == ListenKind::kPath) return listen_path();
  Result<Listener> abstract = listen_abstract();
  if (abstract || kind == ListenKind::kAbstract) return abstract;
  return listen_path();
}

namespace {

Result<Channel> connect_unix(std::string_view address, Deadline deadline) {
  const std::optional<UnixAddress> parsed = parse_unix(address.substr(kScheme.size()));
  if (!parsed) {
    return make_error(Code::kInvalidArgument, fmt::format("malformed address '{}'", address));
  }
  ProcessFd fd = open_socket(0);
  if (!fd) return errno_error("cannot open a Unix socket", errno);
  const int error_number = connect_within(fd.get(), *parsed, deadline);
  if (error_number == ECONNREFUSED || error_number == ENOENT) {
    return make_error(Code::kRemoteError,
                      fmt::format("no process listens at {} any more", address));
  }
  if (error_number == EAGAIN) {
    return make_error(Code::kTimeout, fmt::format("{} does not accept connections", address));
  }
  if (error_number != 0)
    return errno_error(fmt::format("cannot connect to {}", address), error_number);
  if (!same_user(fd.get())) {
    return make_error(Code::kRemoteError, fmt::format("{} belongs to another user", address));
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error("cannot make a Unix socket non-blocking", errno);
  }
  return Channel(std::move(fd), Medium::kUnix);
}

}  // namespace

Result<Channel> connect_to(std::string_view address, const Stop& stop, Deadline deadline) {
  if (address.starts_with(kScheme)) {
    // The wait for a place in a full queue is the kernel's and does not hear `stop`.
    const Deadline slice{std::min(deadline.at_ns, now_ns() + Stop::kAskNs)};
    return connect_unix(address, stop.over == nullptr ? deadline : slice);
  }
  if (!address.starts_with(kTcpScheme)) {
    return make_error(
        Code::kNotSupported,
        fmt::format("the address '{}' has an unknown scheme; known: unix, tcp", address));
  }
  const std::optional<TcpAddress> parsed = parse_tcp(address);
  if (!parsed) {
    return make_error(Code::kInvalidArgument, fmt::format("malformed address '{}'", address));
  }
  return connect_tcp(*parsed, stop, deadline);
}

Channel accept_from(const Listener& listener) {
  if (listener.medium() == Medium::kTcp) return accept_tcp(listener.fd());
  ProcessFd fd = ProcessFd::from(
      [&] { return ::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (fd && !same_user(fd.get())) {
    fd.reset();
    errno = EACCES;
  }
  return fd ? Channel(std::move(fd), Medium::kUnix) : Channel();
}

}  // namespace tutti::control
