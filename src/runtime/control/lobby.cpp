#include "runtime/control/lobby.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

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
  listener_token_ = loop_.add(listener_.fd(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
  if (listener_token_ == 0) return errno_error("cannot watch a listening socket", errno);
  return {};
}

void Lobby::accept_all() {
  for (;;) {
    if (half_open_.size() >= kMaxHalfOpen) {
      const auto silent = oldest_silent();
      if (silent == half_open_.end()) return pause(now_ns() + kPatienceNs);
      const std::int64_t patient_until_ns = silent->second.since_ns + kPatienceNs;
      if (now_ns() < patient_until_ns) return pause(patient_until_ns);
      drop(silent->first, LogLevel::kInfo, "too many unproved connections");
    }
    Channel channel = accept_from(listener_);
    if (channel) {
      starved_since_ns_ = INT64_MAX;
      greet(std::move(channel));
      continue;
    }
    if (errno == EACCES) {
      count_stranger(LogLevel::kWarn, "of another user");
    } else if (tcp::is_shortage(errno)) {
      return starve(errno);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // EAGAIN: nobody is waiting
    }
  }
}

void Lobby::starve(int error_number) {
  if (starved_since_ns_ == INT64_MAX) {
    starved_since_ns_ = now_ns();
    TUTTI_LOG(options_.log, LogLevel::kWarn,
              "out of descriptors or memory (errno {}): raise 'ulimit -n'; connections wait",
              error_number);
  }
  starved_errno_ = error_number;
  pause(now_ns() + kOutOfFdsPauseNs);
}

std::optional<Error> Lobby::starved(std::int64_t at_ns) const {
  if (starved_since_ns_ == INT64_MAX || at_ns - starved_since_ns_ < kStarvedNs) return std::nullopt;
  return errno_error("no descriptor is left for the connections of other ranks; raise 'ulimit -n'",
                     starved_errno_)
      .value();
}

std::map<Lobby::Arrival, Lobby::HalfOpen>::const_iterator Lobby::oldest_silent() const {
  return std::ranges::find_if(half_open_,
                              [](const auto& entry) { return !entry.second.challenged; });
}

void Lobby::pause(std::int64_t until_ns) {
  resume_ns_ = until_ns;
  loop_.modify(listener_token_, 0);
}

void Lobby::greet(Channel channel) {
  const Arrival arrival = next_arrival_++;
  const int fd = channel.fd();
  const auto [place, fresh] = half_open_.emplace(
      arrival,
      HalfOpen{.channel = std::move(channel),
               .acceptor = Acceptor(options_.key, options_.self, options_.ranks, make_nonce()),
               .since_ns = now_ns()});
  place->second.token =
      loop_.add(fd, EPOLLIN, [this, arrival](std::uint32_t) { advance(arrival); });
  if (place->second.token == 0) drop(arrival, LogLevel::kWarn, "cannot be watched");
}

void Lobby::advance(Arrival arrival) {
  HalfOpen& guest = half_open_.at(arrival);
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const Received received = guest.channel.receive(buffer, false);
  if (received.state == IoState::kAgain) return;
  if (received.state == IoState::kClosed) {
    return drop(arrival, LogLevel::kInfo, "hung up unproved");
  }
  if (received.state == IoState::kViolation) {
    return drop(arrival, LogLevel::kWarn, "sent an oversized packet");
  }
  const std::span<const std::byte> packet(buffer.data(), received.packet_bytes);
  if (!guest.challenged) {
    const Acceptor::Answer answer = guest.acceptor.challenge(packet);
    const bool sent = !answer.packet.empty() && guest.channel.send(answer.packet) == IoState::kDone;
    if (!answer.proceed) return drop_unwelcome(arrival);
    // The answer is shorter than any socket's buffer.
    if (!sent || guest.channel.unsent()) return drop(arrival, LogLevel::kInfo, "hung up unproved");
    guest.challenged = true;
    return;
  }
  if (!guest.acceptor.accepts(packet)) {
    return drop(arrival, LogLevel::kWarn, "could not prove the secret");
  }
  loop_.remove(guest.token);
  const Claim claim = guest.acceptor.claim();
  Channel channel = std::move(guest.channel);
  const StreamKeys keys = guest.acceptor.stream_keys();
  channel.protect(keys.from_acceptor, keys.from_initiator);
  half_open_.erase(arrival);
  if (resume_ns_ != INT64_MAX && half_open_.size() < kMaxHalfOpen) resume_ns_ = now_ns();
  admit_(std::move(channel), claim);
}

void Lobby::drop_unwelcome(Arrival arrival) {
  const std::uint16_t version = half_open_.at(arrival).acceptor.other_version();
  if (version == 0) return drop(arrival, LogLevel::kWarn, "sent no acceptable hello");
  other_version_ = version;
  drop(arrival, LogLevel::kWarn,
       fmt::format("speaks protocol version {}, this library {}", version, kProtocolVersion));
}

void Lobby::drop(Arrival arrival, LogLevel level, std::string_view why) {
  const auto found = half_open_.find(arrival);
  loop_.remove(found->second.token);
  half_open_.erase(found);
  count_stranger(level, why);
}

void Lobby::count_stranger(LogLevel level, std::string_view why) {
  ++strangers_;
  if (level == LogLevel::kWarn && !std::has_single_bit(++warnings_)) return;
  TUTTI_LOG(options_.log, level, "dropped an unproved connection ({}); {} so far", why, strangers_);
}

void Lobby::tick(std::int64_t at_ns) {
  while (!half_open_.empty() && half_open_.begin()->second.since_ns + kHandshakeNs <= at_ns) {
    drop(half_open_.begin()->first, LogLevel::kInfo, "did not finish its handshake in time");
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
