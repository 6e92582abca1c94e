#include "runtime/control/lobby.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/clock.hpp"

namespace tutti::control {

Lobby::Lobby(EventLoop& loop, Listener listener, Options options, Admit admit)
    : loop_(loop),
      listener_(std::move(listener)),
      options_(std::move(options)),
      admit_(std::move(admit)) {}

Lobby::~Lobby() {
  if (listener_token_ != 0) loop_.remove(listener_token_);
  for (const auto& [arrival, guest] : half_open_) loop_.remove(guest.token);
}

Status Lobby::open() {
  listener_token_ = loop_.add(listener_.fd(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
  if (listener_token_ == 0) return errno_error("cannot watch a listening socket", errno);
  return {};
}

void Lobby::accept_all() {
  for (;;) {
    if (half_open_.size() >= kMaxHalfOpen) {
      const std::int64_t patient_until_ns = half_open_.begin()->second.since_ns + kPatienceNs;
      if (now_ns() < patient_until_ns) return pause(patient_until_ns);
      drop(half_open_.begin()->first, "too many unproved connections");
    }
    ControlFd socket = accept_from(listener_.fd());
    if (socket) {
      greet(std::move(socket));
      continue;
    }
    if (errno == EACCES) {
      count_stranger("of another user");
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      TUTTI_LOG(options_.log, LogLevel::kWarn,
                "out of descriptors or memory (errno {}): raise "
                "'ulimit -n'; connections wait",
                errno);
      return pause(now_ns() + kOutOfFdsPauseNs);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // EAGAIN: nobody is waiting
    }
  }
}

void Lobby::pause(std::int64_t until_ns) {
  resume_ns_ = until_ns;
  loop_.modify(listener_token_, 0);
}

void Lobby::greet(ControlFd socket) {
  const Arrival arrival = next_arrival_++;
  const int fd = socket.get();
  const auto [place, fresh] = half_open_.emplace(
      arrival,
      HalfOpen{.socket = std::move(socket),
               .acceptor = Acceptor(options_.key, options_.self, options_.ranks, make_nonce()),
               .since_ns = now_ns()});
  place->second.token =
      loop_.add(fd, EPOLLIN, [this, arrival](std::uint32_t) { advance(arrival); });
  if (place->second.token == 0) drop(arrival, "cannot be watched");
}

void Lobby::advance(Arrival arrival) {
  HalfOpen& guest = half_open_.at(arrival);
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const Received received = receive_packet(guest.socket.get(), buffer, false);
  if (received.state == IoState::kAgain) return;
  if (received.state == IoState::kClosed) return drop(arrival, "hung up unproved");
  if (received.state == IoState::kViolation) return drop(arrival, "sent an oversized packet");
  const std::span<const std::byte> packet(buffer.data(), received.packet_bytes);
  if (!guest.challenged) {
    const Acceptor::Answer answer = guest.acceptor.challenge(packet);
    const bool sent =
        !answer.packet.empty() && send_packet(guest.socket.get(), answer.packet) == IoState::kDone;
    if (!answer.proceed || !sent) return drop(arrival, "sent no acceptable hello");
    guest.challenged = true;
    return;
  }
  if (!guest.acceptor.accepts(packet)) return drop(arrival, "could not prove the secret");
  loop_.remove(guest.token);
  const Claim claim = guest.acceptor.claim();
  ControlFd socket = std::move(guest.socket);
  half_open_.erase(arrival);
  if (resume_ns_ != INT64_MAX && half_open_.size() < kMaxHalfOpen) resume_ns_ = now_ns();
  admit_(std::move(socket), claim);
}

void Lobby::drop(Arrival arrival, const char* why) {
  const auto found = half_open_.find(arrival);
  loop_.remove(found->second.token);
  half_open_.erase(found);
  count_stranger(why);
}

void Lobby::count_stranger(const char* why) {
  ++strangers_;
  if (!std::has_single_bit(strangers_)) return;
  TUTTI_LOG(options_.log, LogLevel::kWarn, "dropped a stranger's connection ({}); {} so far", why,
            strangers_);
}

void Lobby::tick(std::int64_t at_ns) {
  while (!half_open_.empty() && half_open_.begin()->second.since_ns + kHandshakeNs <= at_ns) {
    drop(half_open_.begin()->first, "did not finish its handshake in time");
  }
  if (resume_ns_ <= at_ns) {
    resume_ns_ = INT64_MAX;
    loop_.modify(listener_token_, EPOLLIN);
  }
}

std::int64_t Lobby::next_tick_ns() const {
  if (half_open_.empty()) return resume_ns_;
  return std::min(resume_ns_, half_open_.begin()->second.since_ns + kHandshakeNs);
}

}  // namespace tutti::control
