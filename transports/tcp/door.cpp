// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/door.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <bit>
#include <cerrno>

#include "base/tcp_socket.hpp"

namespace tutti::tcp {

Result<TcpAddress> Door::open(const TcpAddress& at) {
  listener_ = listen_at(at);
  if (!listener_ && errno == EADDRNOTAVAIL)
    return make_error(Code::kInvalidArgument,
                      fmt::format("tcp: {} is not an address of this host", at.ip_text()));
  if (!listener_) return errno_error(fmt::format("tcp: cannot listen at {}", at.ip_text()), errno);
  TUTTI_TRY(watch(listener_.get(), kFirstEvent));
  const std::optional<TcpAddress> own = own_address(listener_.get());
  if (!own) return errno_error("tcp: cannot ask a socket for its address", errno);
  return *own;
}

Status Door::watch(int fd, std::uint64_t event) const {
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = event}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted) == 0) return {};
  return errno_error("tcp: epoll_ctl", errno);
}

void Door::unwatch(int fd) const {
  epoll_event none{};
  static_cast<void>(::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, &none));
}

void Door::hear(std::uint64_t event) {
  if (event == kFirstEvent) return accept_some();
  const auto found = newcomers_.find(event);
  if (found != newcomers_.end()) listen_to(found);
}

void Door::accept_some() {
  for (int accepted = 0; accepted < kMostAccepts; ++accepted) {
    ProcessFd socket = accept_from(listener_.get());
    const int error_number = socket ? 0 : errno;
    // The kernel asks for a descriptor before it looks whether anybody waits.
    if (is_shortage(error_number) && somebody_waits()) return run_short(error_number);
    short_since_ns_ = 0;
    if (!socket) return;
    if (newcomers_.size() >= kMostNewcomers)
      drop(newcomers_.begin(), LogLevel::kInfo, "there are too many silent connections");
    const std::uint64_t event = next_event_++;
    const auto [place, fresh] = newcomers_.emplace(
        event, Newcomer{.socket = std::move(socket), .since_ns = now_ns(), .hello = {}});
    if (const Status watched = watch(place->second.socket.get(), event); !watched)
      drop(place, LogLevel::kWarn, watched.error().message);
    else
      listen_to(place);  // most have spoken already
  }
}

bool Door::somebody_waits() const {
  pollfd listener{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&listener, 1, 0) == 1;
}

// The listener would be ready all the time.
void Door::run_short(int error_number) {
  const std::int64_t now = now_ns();
  if (short_since_ns_ == 0) {
    short_since_ns_ = now;
    TUTTI_LOG(log_, LogLevel::kWarn,
              "tcp: this process is out of descriptors or memory (errno {}), so connections wait; "
              "raise 'ulimit -n'",
              error_number);
  }
  short_errno_ = error_number;
  resume_ns_ = now + kShortagePauseNs;
  unwatch(listener_.get());
}

Status Door::tick() {
  if (resume_ns_ == 0 && newcomers_.empty()) return {};
  const std::int64_t now = now_ns();
  while (!newcomers_.empty() && now - newcomers_.begin()->second.since_ns > kSilenceNs)
    drop(newcomers_.begin(), LogLevel::kInfo, "it sent no handshake in time");
  if (resume_ns_ == 0 || now < resume_ns_) return {};
  resume_ns_ = 0;
  TUTTI_TRY(watch(listener_.get(), kFirstEvent));
  accept_some();
  if (resume_ns_ == 0 || now - short_since_ns_ < kShortageNs || !invitations_.outstanding())
    return {};
  return errno_error(
      "tcp: this process has no free descriptor for the connections of other ranks; raise 'ulimit "
      "-n'",
      short_errno_);
}

void Door::listen_to(Newcomers::iterator newcomer) {
  auto& [socket, since_ns, hello, have_bytes] = newcomer->second;
  auto* const bytes = reinterpret_cast<std::byte*>(&hello);
  const ssize_t got =
      ::recv(socket.get(), bytes + have_bytes, sizeof hello - have_bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(newcomer, LogLevel::kInfo, "it closed without a handshake");
  have_bytes += static_cast<std::size_t>(got);
  switch (judge(hello, have_bytes, self_)) {
    case Greeting::kUnfinished:
      return;
    case Greeting::kForeign:
      return drop(newcomer, LogLevel::kWarn, "it does not speak this protocol");
    case Greeting::kOtherVersion: {
      const HelloReply refusal;  // best effort: the socket's buffer is empty
      static_cast<void>(
          ::send(socket.get(), &refusal, sizeof refusal, MSG_NOSIGNAL | MSG_DONTWAIT));
      return drop(newcomer, LogLevel::kWarn, describe_version(hello.version));
    }
    case Greeting::kMisdirected:
      return drop(newcomer, LogLevel::kWarn, "it asked for another rank");
    case Greeting::kWhole:
      return welcome(newcomer);
  }
}

void Door::welcome(Newcomers::iterator newcomer) {
  const Hello& hello = newcomer->second.hello;
  const std::optional<Token> reply = invitations_.admit(hello);
  if (!reply) return drop(newcomer, LogLevel::kWarn, "it had no token of this rank");
  const Rank from = hello.from;
  ProcessFd socket = std::move(newcomer->second.socket);
  newcomers_.erase(newcomer);
  unwatch(socket.get());
  admit_(from, std::move(socket), *reply);
}

void Door::drop(Newcomers::iterator newcomer, LogLevel level, std::string_view why) {
  newcomers_.erase(newcomer);
  ++strangers_;
  if (level == LogLevel::kWarn && !std::has_single_bit(++warnings_)) return;
  TUTTI_LOG(
      log_, level,
      "tcp: rank {} dropped a connection that is not from a rank of the job: {}; {} dropped so far",
      self_, why, strangers_);
}

}  // namespace tutti::tcp
