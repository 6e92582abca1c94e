// SPDX-License-Identifier: Apache-2.0
#include "control/lobby.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>

#include "base/clock.hpp"
#include "base/tcp_socket.hpp"

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
  listener_token_ = loop_.add(listener_.fd(), EPOLLIN, [this](std::uint32_t) { accept_some(); });
  if (listener_token_ == 0) return errno_error("cannot watch a listening socket", errno);
  return {};
}

void Lobby::accept_some() {
  for (int accepted = 0; accepted < kMostAccepts; ++accepted) {
    Channel channel = accept_from(listener_);
    const int error_number = channel ? 0 : errno;
    if (channel) {
      starved_since_ns_ = INT64_MAX;
      greet(std::move(channel));
    } else if (error_number == EACCES) {
      count_stranger(LogLevel::kWarn, "it belongs to another user");
    } else if (tcp::is_shortage(error_number) && somebody_waits()) {
      const auto silent = oldest(false);
      if (silent == half_open_.end()) return starve(error_number);
      drop(silent->first, LogLevel::kInfo, "it was silent, and descriptors are short");
    } else if (error_number != EINTR && error_number != ECONNABORTED) {
      return;  // EAGAIN: nobody is waiting
    }
  }
}

// The kernel asks for a descriptor before it looks whether anybody waits.
bool Lobby::somebody_waits() const {
  pollfd listener{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&listener, 1, 0) == 1;
}

void Lobby::starve(int error_number) {
  if (starved_since_ns_ == INT64_MAX) {
    starved_since_ns_ = now_ns();
    TUTTI_LOG(options_.log, LogLevel::kWarn,
              "this process is out of descriptors or memory (errno {}), so connections wait; raise "
              "'ulimit -n'",
              error_number);
  }
  starved_errno_ = error_number;
  resume_ns_ = now_ns() + kOutOfFdsPauseNs;  // the listener would be ready all the time
  loop_.modify(listener_token_, 0);
}

int Lobby::starved(std::int64_t at_ns) const {
  if (starved_since_ns_ == INT64_MAX || at_ns - starved_since_ns_ < kStarvedNs) return 0;
  return starved_errno_;
}

Error starved_error(int error_number) {
  return errno_error(
             "this process has no free descriptor for the connections of other ranks; raise "
             "'ulimit -n'",
             error_number)
      .value();
}

std::map<Lobby::Arrival, Lobby::HalfOpen>::const_iterator Lobby::oldest(bool challenged) const {
  return std::ranges::find_if(
      half_open_, [&](const auto& entry) { return entry.second.challenged == challenged; });
}

void Lobby::greet(Channel channel) {
  const Arrival arrival = next_arrival_++;
  const int fd = channel.fd();
  half_open_.emplace(arrival, HalfOpen{.channel = std::move(channel),
                                       .acceptor = Acceptor(options_.find_key, options_.self,
                                                            options_.ranks, make_nonce()),
                                       .since_ns = now_ns()});
  advance(arrival);  // most have spoken already
  const auto place = half_open_.find(arrival);
  if (place == half_open_.end()) return;
  place->second.token =
      loop_.add(fd, EPOLLIN, [this, arrival](std::uint32_t) { advance(arrival); });
  if (place->second.token == 0) return drop(arrival, LogLevel::kWarn, "epoll cannot watch it");
  if (half_open_.size() - challenged_ > kMaxHalfOpen) shed(oldest(false));
}

void Lobby::shed(std::map<Arrival, HalfOpen>::const_iterator guest) {
  drop(guest->first, LogLevel::kInfo, "there are too many unauthenticated connections");
}

void Lobby::advance(Arrival arrival) {
  HalfOpen& guest = half_open_.at(arrival);
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const Received received = guest.channel.receive(buffer, false);
  if (received.state == IoState::kAgain) return;
  if (received.state == IoState::kClosed) {
    return drop(arrival, LogLevel::kInfo, "it closed before it proved the secret");
  }
  if (received.state == IoState::kViolation) {
    return drop(arrival, LogLevel::kWarn, "it sent an oversized packet");
  }
  const std::span<const std::byte> packet(buffer.data(), received.packet_bytes);
  if (guest.challenged) return take_proof(arrival, packet);
  answer_hello(arrival, packet);
}

void Lobby::answer_hello(Arrival arrival, std::span<const std::byte> hello) {
  HalfOpen& guest = half_open_.at(arrival);
  const Acceptor::Answer answer = guest.acceptor.challenge(hello);
  if (answer.proceed && is_repeated(arrival)) {
    return drop(arrival, LogLevel::kWarn, "it repeated the handshake of another connection");
  }
  const bool sent = !answer.packet.empty() && guest.channel.send(answer.packet) == IoState::kDone;
  if (!answer.proceed) return drop_unwelcome(arrival);
  // The answer is shorter than any socket's buffer.
  if (!sent || guest.channel.unsent())
    return drop(arrival, LogLevel::kInfo, "it closed before it proved the secret");
  guest.challenged = true;
  if (++challenged_ > kMaxChallenged) shed(oldest(true));
}

bool Lobby::is_repeated(Arrival arrival) const {
  const Nonce& nonce = half_open_.at(arrival).acceptor.initiator_nonce();
  return std::ranges::any_of(half_open_, [&](const auto& entry) {
    return entry.second.challenged && entry.second.acceptor.initiator_nonce() == nonce;
  });
}

void Lobby::take_proof(Arrival arrival, std::span<const std::byte> proof) {
  HalfOpen& guest = half_open_.at(arrival);
  if (!guest.acceptor.accepts(proof)) {
    return drop(arrival, LogLevel::kWarn, "it could not prove the secret");
  }
  loop_.remove(guest.token);
  const SessionId session = guest.acceptor.session();
  const Claim claim = guest.acceptor.claim();
  Channel channel = std::move(guest.channel);
  if (channel.needs_keys()) {
    const StreamKeys keys = guest.acceptor.stream_keys();
    channel.protect(keys.from_acceptor, keys.from_initiator);
  }
  forget(half_open_.find(arrival));
  admit_(std::move(channel), session, claim);
}

void Lobby::send_last(std::span<const std::byte> packet) noexcept try {
  for (auto& [arrival, guest] : half_open_) {
    if (!guest.challenged) continue;  // it waits for the challenge, and finds that none comes
    const StreamKeys keys = guest.acceptor.stream_keys();
    guest.channel.protect(keys.from_acceptor, keys.from_initiator);
    guest.channel.send_last(packet);
  }
} catch (const std::bad_alloc&) {
  // They find their connections closed.
}

void Lobby::drop_unwelcome(Arrival arrival) {
  const std::uint16_t version = half_open_.at(arrival).acceptor.other_version();
  if (version == 0) return drop(arrival, LogLevel::kWarn, "it sent no valid handshake");
  other_version_ = version;
  drop(arrival, LogLevel::kWarn,
       fmt::format("it speaks protocol version {}, this library {}", version, kProtocolVersion));
}

void Lobby::drop(Arrival arrival, LogLevel level, std::string_view why) {
  const auto found = half_open_.find(arrival);
  loop_.remove(found->second.token);
  forget(found);
  count_stranger(level, why);
}

void Lobby::forget(std::map<Arrival, HalfOpen>::const_iterator guest) {
  if (guest->second.challenged) --challenged_;
  half_open_.erase(guest);
}

void Lobby::count_stranger(LogLevel level, std::string_view why) {
  ++strangers_;
  if (level == LogLevel::kWarn && !std::has_single_bit(++warnings_)) return;
  TUTTI_LOG(options_.log, level, "dropped an unauthenticated connection: {}; {} dropped so far",
            why, strangers_);
}

void Lobby::tick(std::int64_t at_ns) {
  while (!half_open_.empty() && half_open_.begin()->second.since_ns + kHandshakeNs <= at_ns) {
    drop(half_open_.begin()->first, LogLevel::kInfo, "it did not finish its handshake in time");
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
