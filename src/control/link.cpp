// SPDX-License-Identifier: Apache-2.0
#include "control/link.hpp"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>

namespace tutti::control {
namespace {

constexpr std::int64_t kLongestAwaitNs = 250'000'000;  // thousands of ranks may ask

std::chrono::steady_clock::time_point time_point(Deadline deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns));
}

class TurnHolder {
 public:
  TurnHolder(Turn& turn, Deadline deadline) : turn_(turn), held_(turn.take(deadline)) {}
  TurnHolder(const TurnHolder&) = delete;
  TurnHolder& operator=(const TurnHolder&) = delete;
  ~TurnHolder() {
    if (held_) turn_.give_back();
  }
  [[nodiscard]] explicit operator bool() const { return held_; }

 private:
  Turn& turn_;
  const bool held_;
};

tl::unexpected<Error> no_turn(Rank peer) {
  return make_error(Code::kTimeout,
                    fmt::format("cannot ask rank {}: another call used up the time", peer), peer);
}

// Ranks of this process that have links. Relaxed: it only says how many each may keep open.
std::atomic<std::size_t> ranks_of_process{0};

std::size_t most_open() {
  const std::size_t ranks =
      std::max<std::size_t>(ranks_of_process.load(std::memory_order_relaxed), 1);
  return std::clamp(Links::kMaxOpenOfProcess / ranks, Links::kAlwaysOpen, Links::kMaxOpen);
}

Error hung_up() { return {Code::kRemoteError, "the other end closed the connection", kNoRank}; }

}  // namespace

Status send_within(Channel& channel, std::span<const std::byte> packet, const Stop& stop,
                   Deadline deadline) {
  IoState state = channel.send(packet);
  while (state == IoState::kAgain) {
    TUTTI_TRY(wait_for(channel.fd(), POLLOUT, stop, deadline));
    state = channel.send(packet);
  }
  while (state == IoState::kDone && channel.unsent()) {
    TUTTI_TRY(wait_for(channel.fd(), POLLOUT, stop, deadline));
    state = channel.flush();
  }
  if (state != IoState::kDone) return tl::unexpected(hung_up());
  return {};
}

Result<Received> receive_within(Channel& channel, std::span<std::byte> buffer, bool want_fd,
                                const Stop& stop, Deadline deadline) {
  for (;;) {
    Received received = channel.receive(buffer, want_fd);
    if (received.state == IoState::kDone) return received;
    if (received.state == IoState::kViolation) {
      return make_error(Code::kRemoteError, "the other end sent an illegal packet");
    }
    if (received.state == IoState::kStarved)
      return errno_error(
          "this process has no free descriptor for the one it received; raise 'ulimit -n'", EMFILE);
    if (received.state == IoState::kClosed) return tl::unexpected(hung_up());
    TUTTI_TRY(wait_for(channel.fd(), POLLIN, stop, deadline));
  }
}

namespace {

// Why an attempt may be worth another.
enum class Setback { kNone, kAbsent, kHungUp };

// One attempt. kTimeout also where the listener's queue stays full for a while, or the network has
// no way there now.
Result<Channel> shake_hands(const std::string& address, const Initiator& initiator,
                            const Stop& stop, Deadline deadline, Setback& setback) {
  Result<Channel> channel = connect_to(address, stop, deadline);
  if (!channel) {
    if (channel.error().code == Code::kRemoteError) setback = Setback::kAbsent;
    return channel;
  }
  const auto note = [&](const Error& error) {
    if (error.code == Code::kRemoteError) setback = Setback::kHungUp;
    return tl::unexpected(error);
  };
  if (const Status sent = send_within(*channel, initiator.hello(), stop, deadline); !sent) {
    return note(sent.error());
  }
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const Result<Received> answer = receive_within(*channel, buffer, false, stop, deadline);
  if (channel->violated()) {
    return make_error(
        Code::kRemoteError,
        fmt::format(
            "the program that listens at {} does not speak Tutti's protocol; check the address",
            address));
  }
  if (!answer && answer.error().code == Code::kTimeout) {
    return make_error(Code::kTimeout, fmt::format("{} does not answer a handshake", address));
  }
  if (!answer) return note(answer.error());
  const std::span<const std::byte> challenge(buffer.data(), answer->packet_bytes);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> proof, initiator.prove(challenge));
  if (const Status sent = send_within(*channel, proof, stop, deadline); !sent) {
    return note(sent.error());
  }
  if (channel->needs_keys()) {
    const StreamKeys keys = initiator.stream_keys(challenge);
    channel->protect(keys.from_initiator, keys.from_acceptor);
  }
  return channel;
}

}  // namespace

Result<Channel> open_connection(const Way& way, const SessionKey& key, const Claim& claim,
                                const Stop& stop, Deadline deadline) {
  Backoff backoff(INT_MAX, way.awaited ? kLongestAwaitNs : Backoff::kLongestNs);
  for (std::size_t attempt = 0;; ++attempt) {
    Setback setback = Setback::kNone;
    Result<Channel> channel =
        shake_hands(way.addresses[attempt % way.addresses.size()],
                    Initiator(key, claim, make_nonce()), stop, deadline, setback);
    if (channel) return channel;
    const bool another = attempt + 1 < way.addresses.size();
    const bool absent = setback == Setback::kAbsent && (way.awaited || another);
    const bool no_answer = channel.error().code == Code::kTimeout && !deadline.passed();
    if (!absent && setback != Setback::kHungUp && !no_answer) return channel;
    if (const Status again = backoff.pause(stop, deadline); !again) {
      // Why nobody was there says more than that the time is over.
      const bool late = again.error().code == Code::kTimeout && setback != Setback::kHungUp;
      return late ? make_error(Code::kTimeout, channel.error().message)
                  : tl::unexpected(again.error());
    }
  }
}

Links::Links(const SessionKey& key, Rank self, std::int32_t ranks, int stop_fd)
    : key_(key),
      self_(self),
      ranks_(ranks),
      stop_fd_(stop_fd),
      addresses_(static_cast<std::size_t>(ranks)) {
  ranks_of_process.fetch_add(1, std::memory_order_relaxed);
}

Links::~Links() { ranks_of_process.fetch_sub(1, std::memory_order_relaxed); }

bool Turn::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!free_.wait_until(lock, time_point(deadline), [&] { return !taken_; })) return false;
  taken_ = true;
  return true;
}

void Turn::give_back() {
  const std::lock_guard lock(mutex_);
  taken_ = false;
  free_.notify_one();
}

void Links::set_address(Rank peer, std::string address) {
  const TurnHolder turn(turn_, Deadline{INT64_MAX});
  addresses_.at(static_cast<std::size_t>(peer)) = std::move(address);
}

bool Links::has_address(Rank peer) {
  const TurnHolder turn(turn_, Deadline{INT64_MAX});
  return !addresses_.at(static_cast<std::size_t>(peer)).empty();
}

void Links::end_when(std::function<bool()> over) {
  const TurnHolder turn(turn_, Deadline{INT64_MAX});
  over_ = std::move(over);
}

Error Links::blame(Rank peer, Error error) const {
  error.message = fmt::format("rank {} could not ask rank {}: {}", self_, peer, error.message);
  error.culprit = error.code == Code::kTimeout || error.code == Code::kRemoteError ? peer : kNoRank;
  return error;
}

void Links::drop(Rank peer, bool orderly) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  if (orderly) found->second.channel.send_last(bye_);
  links_.erase(found);
}

Result<Channel*> Links::open(Rank peer, Deadline deadline) {
  const auto found = links_.find(peer);
  if (found != links_.end()) {
    found->second.used = ++use_count_;
    return &found->second.channel;
  }
  while (links_.size() >= most_open()) {
    const auto oldest =
        std::ranges::min_element(links_, {}, [](const auto& entry) { return entry.second.used; });
    drop(oldest->first, true);
  }
  const std::string& address = addresses_.at(static_cast<std::size_t>(peer));
  if (address.empty()) {
    return make_error(Code::kRemoteError,
                      "it is on another host and listens on no network interface: set TUTTI_IFNAME "
                      "there");
  }
  TUTTI_TRY_ASSIGN(Channel channel,
                   open_connection(address, key_, {.rank = self_, .peer = peer, .ranks = ranks_},
                                   stop(), deadline));
  const auto [place, fresh] =
      links_.emplace(peer, Link{.channel = std::move(channel), .used = ++use_count_});
  return &place->second.channel;
}

// A packet that could not be sent did not arrive, so it may be sent again.
Status Links::send(Rank peer, std::span<const std::byte> packet, Deadline deadline) {
  for (Backoff backoff(kMostAttempts);;) {
    const Result<Channel*> channel = open(peer, deadline);
    if (!channel) return tl::unexpected(blame(peer, channel.error()));
    const Status sent = send_within(**channel, packet, stop(), deadline);
    if (sent) return {};
    drop(peer, false);
    if (sent.error().code != Code::kRemoteError) return tl::unexpected(blame(peer, sent.error()));
    if (const Status again = backoff.pause(stop(), deadline); !again) {
      return tl::unexpected(blame(peer, again.error()));
    }
  }
}

Result<Reply> Links::call(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                          Deadline deadline) {
  if (payload.size() > kMaxPayloadBytes) {
    return make_error(Code::kInvalidArgument,
                      fmt::format("the request has {} bytes, but the limit is {}", payload.size(),
                                  kMaxPayloadBytes));
  }
  const TurnHolder turn(turn_, deadline);
  if (!turn) return no_turn(peer);
  return call_in_turn(peer, kind, payload, deadline);
}

// Requests change nothing at the peer, so one may be asked again where its connection ended: the
// peer's service sheds connections whose proof is late. If the peer has ended, no process listens
// there.
Result<Reply> Links::call_in_turn(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                  Deadline deadline) {
  for (Backoff backoff(kMostAttempts);;) {
    const std::uint64_t number = ++call_count_;
    Writer request = start_frame(
        {.type = FrameType::kRequest, .kind = static_cast<std::uint16_t>(kind), .number = number});
    request.raw(payload);
    TUTTI_TRY(send(peer, request.bytes(), deadline));
    Result<Reply> reply = receive_reply(peer, number, deadline);
    const bool dropped = !reply && !links_.contains(peer);
    if (!dropped || reply.error().code != Code::kRemoteError) return reply;
    if (const Status again = backoff.pause(stop(), deadline); !again) {
      return tl::unexpected(blame(peer, again.error()));
    }
  }
}

Result<Reply> Links::receive_reply(Rank peer, std::uint64_t number, Deadline deadline) {
  Result<Received> received =
      receive_within(links_.at(peer).channel, buffer_.all(), true, stop(), deadline);
  if (!received) {
    // A late reply must not answer the next call.
    drop(peer, true);
    return tl::unexpected(blame(peer, received.error()));
  }
  Reader reader{buffer_.first(received->packet_bytes)};
  const FrameHeader header = read_header(reader);
  // A Bye is no reply either: the next attempt finds that the peer's service has ended.
  if (!reader.ok() || header.type != FrameType::kReply || header.number != number) {
    drop(peer, false);
    return tl::unexpected(blame(
        peer,
        {Code::kRemoteError, "it sent a reply to a request that this rank did not make", peer}));
  }
  if (header.kind != 0) {
    const Error error = decode_error(reader, ranks_);
    return make_error(Code::kRemoteError,
                      fmt::format("rank {} refused a request: {}", peer, error.message), peer);
  }
  const std::span<const std::byte> payload = reader.rest();
  return Reply{.payload = {payload.begin(), payload.end()}, .fd = std::move(received->fd)};
}

Status Links::post(Rank peer, std::uint64_t exchange, std::uint32_t round,
                   std::span<const std::byte> message, Deadline deadline) {
  const TurnHolder turn(turn_, deadline);
  if (!turn) return no_turn(peer);
  return post_in_turn(peer, {.type = FrameType::kPost, .round = round, .number = exchange}, message,
                      deadline);
}

Status Links::post_in_turn(Rank peer, const FrameHeader& header, std::span<const std::byte> message,
                           Deadline deadline) {
  std::size_t offset = 0;
  do {
    const std::size_t piece_bytes = std::min(message.size() - offset, kMaxPieceBytes);
    const Piece piece{.offset = offset,
                      .total_bytes = message.size(),
                      .bytes = message.subspan(offset, piece_bytes)};
    TUTTI_TRY(send(peer, encode_piece(header, piece), deadline));
    offset += piece_bytes;
  } while (offset < message.size());
  return {};
}

Status Links::post_failure(Rank peer, std::uint64_t exchange, std::uint32_t round,
                           const Error& error, Deadline deadline) {
  const TurnHolder turn(turn_, deadline);
  if (!turn) return no_turn(peer);
  const FrameHeader header{.type = FrameType::kPostFailure, .round = round, .number = exchange};
  return send(peer, encode_error(header, error), deadline);
}

void Links::close() {
  const TurnHolder turn(turn_, Deadline{INT64_MAX});
  while (!links_.empty()) drop(links_.begin()->first, true);
}

}  // namespace tutti::control
