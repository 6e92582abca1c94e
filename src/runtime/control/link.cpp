#include "runtime/control/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>

namespace tutti::control {
namespace {

// Between two attempts at an acceptor that sheds load.
constexpr std::int64_t kFirstBackoffNs = 1'000'000;
constexpr std::int64_t kLongestBackoffNs = 50'000'000;

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
                    fmt::format("asking rank {}: another call took all the time", peer), peer);
}

Error hung_up() { return {Code::kRemoteError, "the other end hung up", kNoRank}; }

}  // namespace

Result<std::unique_ptr<StopSignal>> StopSignal::create() {
  ControlFd fd = ControlFd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!fd) return errno_error("cannot create an eventfd", errno);
  return std::unique_ptr<StopSignal>(new StopSignal(std::move(fd)));
}

void StopSignal::raise() {
  if (!fd_.of_this_process()) return;
  const std::uint64_t one = 1;  // never read back, so it stays raised
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

Status wait_for(int socket, short events, const Stop& stop, Deadline deadline) {
  std::array<pollfd, 2> watched{{{.fd = socket, .events = events, .revents = 0},
                                 {.fd = stop.fd, .events = POLLIN, .revents = 0}}};
  for (;;) {
    std::int64_t left_ns = std::max<std::int64_t>(deadline.left_ns(), 0);
    if (stop.over != nullptr) left_ns = std::min(left_ns, Stop::kAskNs);
    const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    const int ready = ::ppoll(watched.data(), watched.size(), &left, nullptr);
    if (ready < 0 && errno != EINTR) return errno_error("cannot poll a socket", errno);
    if (ready > 0 && watched[1].revents != 0) {
      return make_error(Code::kInvalidUsage, "the control plane was closed during a call");
    }
    if (ready > 0) return {};
    if (stop.over != nullptr && (*stop.over)()) {
      return make_error(Code::kInvalidUsage, "the communicator ended during a call");
    }
    if (deadline.passed()) return make_error(Code::kTimeout, "no answer in time");
  }
}

Status send_within(int socket, std::span<const std::byte> packet, const Stop& stop,
                   Deadline deadline) {
  for (;;) {
    const IoState state = send_packet(socket, packet);
    if (state == IoState::kDone) return {};
    if (state != IoState::kAgain) return tl::unexpected(hung_up());
    TUTTI_TRY(wait_for(socket, POLLOUT, stop, deadline));
  }
}

Result<Received> receive_within(int socket, std::span<std::byte> buffer, bool want_fd,
                                const Stop& stop, Deadline deadline) {
  for (;;) {
    Received received = receive_packet(socket, buffer, want_fd);
    if (received.state == IoState::kDone) return received;
    if (received.state == IoState::kViolation) {
      return make_error(Code::kRemoteError, "the other end sent an illegal packet");
    }
    if (received.state == IoState::kClosed) return tl::unexpected(hung_up());
    TUTTI_TRY(wait_for(socket, POLLIN, stop, deadline));
  }
}

namespace {

// The pause before another attempt, longer each time. Errors: those of wait_for; kTimeout: no time
// or no attempt is left.
class Backoff {
 public:
  explicit Backoff(int most_attempts = INT_MAX) : attempts_left_(most_attempts) {}
  [[nodiscard]] Status pause(const Stop& stop, Deadline deadline) {
    const Deadline end{std::min(deadline.at_ns, now_ns() + pause_ns_)};
    pause_ns_ = std::min(2 * pause_ns_, kLongestBackoffNs);
    const Status waited = wait_for(-1, 0, stop, end);
    if (!waited && waited.error().code != Code::kTimeout) return waited;
    if (deadline.passed() || --attempts_left_ == 0) {
      return make_error(Code::kTimeout, "the other end keeps hanging up");
    }
    return {};
  }

 private:
  int attempts_left_;
  std::int64_t pause_ns_ = kFirstBackoffNs;
};

// One attempt. kTimeout also where the listener's queue stays full for a while.
Result<ControlFd> shake_hands(const std::string& address, const Initiator& initiator,
                              const Stop& stop, Deadline deadline, bool& hung_up) {
  const Deadline slice{std::min(deadline.at_ns, now_ns() + Stop::kAskNs)};
  TUTTI_TRY_ASSIGN(ControlFd socket, connect_to(address, stop.over == nullptr ? deadline : slice));
  const auto note = [&](const Error& error) {
    hung_up = error.code == Code::kRemoteError;
    return tl::unexpected(error);
  };
  if (const Status sent = send_within(socket.get(), initiator.hello(), stop, deadline); !sent) {
    return note(sent.error());
  }
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  const Result<Received> answer = receive_within(socket.get(), buffer, false, stop, deadline);
  if (!answer) return note(answer.error());
  const std::span<const std::byte> challenge(buffer.data(), answer->packet_bytes);
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> proof, initiator.prove(challenge));
  if (const Status sent = send_within(socket.get(), proof, stop, deadline); !sent) {
    return note(sent.error());
  }
  return socket;
}

}  // namespace

Result<ControlFd> open_connection(const std::string& address, const SessionKey& key,
                                  const Claim& claim, const Stop& stop, Deadline deadline) {
  for (Backoff backoff;;) {
    bool hung_up = false;
    Result<ControlFd> socket =
        shake_hands(address, Initiator(key, claim, make_nonce()), stop, deadline, hung_up);
    if (socket) return socket;
    const bool queue_full = socket.error().code == Code::kTimeout && !deadline.passed();
    if (!hung_up && !queue_full) return socket;
    TUTTI_TRY(backoff.pause(stop, deadline));
  }
}

Links::Links(const SessionKey& key, Rank self, std::int32_t ranks, int stop_fd)
    : key_(key),
      self_(self),
      ranks_(ranks),
      stop_fd_(stop_fd),
      addresses_(static_cast<std::size_t>(ranks)) {}

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

void Links::end_when(std::function<bool()> over) {
  const TurnHolder turn(turn_, Deadline{INT64_MAX});
  over_ = std::move(over);
}

Error Links::blame(Rank peer, Error error) const {
  error.message = fmt::format("rank {} asking rank {}: {}", self_, peer, error.message);
  error.culprit = error.code == Code::kTimeout || error.code == Code::kRemoteError ? peer : kNoRank;
  return error;
}

void Links::drop(Rank peer, bool orderly) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  if (orderly) {
    static_cast<void>(
        send_packet(found->second.socket.get(), start_frame({.type = FrameType::kBye}).bytes()));
  }
  links_.erase(found);
}

Result<int> Links::open(Rank peer, Deadline deadline) {
  const auto found = links_.find(peer);
  if (found != links_.end()) {
    found->second.used = ++use_count_;
    return found->second.socket.get();
  }
  if (links_.size() >= kMaxOpen) {
    const auto oldest =
        std::ranges::min_element(links_, {}, [](const auto& entry) { return entry.second.used; });
    drop(oldest->first, true);
  }
  const std::string& address = addresses_.at(static_cast<std::size_t>(peer));
  TUTTI_TRY_ASSIGN(ControlFd socket,
                   open_connection(address, key_, {.rank = self_, .peer = peer, .ranks = ranks_},
                                   stop(), deadline));
  const int fd = socket.get();
  links_.emplace(peer, Link{.socket = std::move(socket), .used = ++use_count_});
  return fd;
}

// A packet that could not be sent did not arrive, so it may be sent again.
Status Links::send(Rank peer, std::span<const std::byte> packet, Deadline deadline) {
  for (Backoff backoff(kMostAttempts);;) {
    const Result<int> socket = open(peer, deadline);
    if (!socket) return tl::unexpected(blame(peer, socket.error()));
    const Status sent = send_within(*socket, packet, stop(), deadline);
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
    return make_error(Code::kInvalidArgument, fmt::format("a request of {} bytes: the limit is {}",
                                                          payload.size(), kMaxPayloadBytes));
  }
  const TurnHolder turn(turn_, deadline);
  if (!turn) return no_turn(peer);
  return call_in_turn(peer, kind, payload, deadline);
}

// Requests change nothing at the peer, so one may be asked again where its connection ended: the
// peer's service sheds connections whose proof is late. Where the peer has ended nobody listens.
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
  if (buffer_.empty()) buffer_.resize(kMaxPacketBytes);
  Result<Received> received =
      receive_within(links_.at(peer).socket.get(), buffer_, true, stop(), deadline);
  if (!received) {
    // A late reply must not answer the next call.
    drop(peer, true);
    return tl::unexpected(blame(peer, received.error()));
  }
  Reader reader{std::span(buffer_).first(received->packet_bytes)};
  const FrameHeader header = read_header(reader);
  if (!reader.ok() || header.type != FrameType::kReply || header.number != number) {
    drop(peer, false);
    return tl::unexpected(blame(peer, {Code::kRemoteError, "a reply to nothing we asked", peer}));
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
