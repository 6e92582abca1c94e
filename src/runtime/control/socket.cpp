#include "runtime/control/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
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

ControlFd open_socket(int flags) {
  return ControlFd::from(
      [&] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0); });
}

// Binds `text` and listens. errno tells why not.
ControlFd bind_and_listen(const std::string& text) {
  ControlFd fd = open_socket(SOCK_NONBLOCK);
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
  std::string name = "@tutti-";
  for (const unsigned char byte : random) name += fmt::format("{:02x}", byte);
  ControlFd fd = bind_and_listen(name);
  if (!fd) return errno_error("cannot listen on an abstract Unix socket", errno);
  return Listener(std::move(fd), std::string(kScheme) + name, "");
}

Result<Listener> listen_path() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // The name must still fit into a unique id.
  const std::size_t most = kMaxIdAddressBytes - kScheme.size() - std::strlen("/tutti-XXXXXX/s");
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
    ControlFd fd = bind_and_listen(path);
    if (fd) return Listener(std::move(fd), std::string(kScheme) + path, directory);
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

// Takes the descriptors out of `message`: keeps one if wanted, closes the others.
bool take_fds(msghdr& message, bool want_fd, UniqueFd& kept) {
  bool legal = (message.msg_flags & MSG_CTRUNC) == 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      UniqueFd owner(fd);
      if (!want_fd || kept) {
        legal = false;
      } else {
        kept = std::move(owner);
      }
    }
  }
  return legal;
}

}  // namespace

Listener::Listener(ControlFd fd, std::string address, std::string directory)
    : fd_(std::move(fd)), address_(std::move(address)), directory_(std::move(directory)) {}

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

Result<ControlFd> connect_to(std::string_view address, Deadline deadline) {
  if (!address.starts_with(kScheme)) {
    return make_error(Code::kNotSupported,
                      fmt::format("address scheme of '{}' is not built in; known: unix", address));
  }
  const std::optional<UnixAddress> parsed = parse_unix(address.substr(kScheme.size()));
  if (!parsed) {
    return make_error(Code::kInvalidArgument, fmt::format("malformed address '{}'", address));
  }
  ControlFd fd = open_socket(0);
  if (!fd) return errno_error("cannot open a Unix socket", errno);
  const int error_number = connect_within(fd.get(), *parsed, deadline);
  if (error_number == ECONNREFUSED || error_number == ENOENT) {
    return make_error(Code::kRemoteError, fmt::format("nobody listens at {} any more", address));
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
  return fd;
}

ControlFd accept_from(int listener) {
  ControlFd fd = ControlFd::from(
      [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (fd && !same_user(fd.get())) {
    fd.reset();
    errno = EACCES;
  }
  return fd;
}

Received receive_packet(int socket, std::span<std::byte> buffer, bool want_fd) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
  // A socket that was closed with unread bytes reports ECONNRESET once, before what is queued.
  for (int resets = 0; resets < 2;) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = want_fd ? control.data() : nullptr;
    message.msg_controllen = want_fd ? control.size() : 0;
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ECONNRESET) {
      ++resets;
      continue;
    }
    Received result;
    if (got < 0) {
      result.state = errno == EAGAIN ? IoState::kAgain : IoState::kClosed;
      return result;
    }
    const bool legal = take_fds(message, want_fd, result.fd);
    result.packet_bytes = static_cast<std::size_t>(got);
    result.state = got == 0                                         ? IoState::kClosed
                   : !legal || (message.msg_flags & MSG_TRUNC) != 0 ? IoState::kViolation
                                                                    : IoState::kDone;
    return result;
  }
  Received closed;
  closed.state = IoState::kClosed;
  return closed;
}

IoState send_packet(int socket, std::span<const std::byte> packet, int lent_fd) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (lent_fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &lent_fd, sizeof(int));
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return IoState::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) return IoState::kAgain;
    return IoState::kClosed;
  }
}

}  // namespace tutti::control
