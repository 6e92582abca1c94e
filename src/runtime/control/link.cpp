#include "runtime/control/link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
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

Status wait_for(int socket, short events, int stop_fd, Deadline deadline) {
  std::array<pollfd, 2> watched{{{.fd = socket, .events = events, .revents = 0},
                                 {.fd = stop_fd, .events = POLLIN, .revents = 0}}};
  for (;;) {
    const std::int64_t left_ns = std::max<std::int64_t>(deadline.left_ns(), 0);
    const timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
    const int ready = ::ppoll(watched.data(), watched.size(), &left, nullptr);
    if (ready < 0 && errno != EINTR) return errno_error("cannot poll a socket", errno);
    if (ready > 0 && watched[1].revents != 0) {
      return make_error(Code::kInvalidUsage, "the control plane was closed during a call");
    }
    if (ready > 0) return {};
    if (deadline.passed()) return make_error(Code::kTimeout, "no answer in time");
  }
}

Status send_within(int socket, std::span<const std::byte> packet, int stop_fd, Deadline deadline) {
  for (;;) {
    const IoState state = send_packet(socket, packet);
    if (state == IoState::kDone) return {};
    if (state != IoState::kAgain) return tl::unexpected(hung_up());
    TUTTI_TRY(wait_for(socket, POLLOUT, stop_fd, deadline));
  }
}

Result<Received> receive_within(int socket, std::span<std::byte> buffer, bool want_fd, int stop_fd,
                                Deadline deadline) {
  for (;;) {
    Received received = receive_packet(socket, buffer, want_fd);
    if (received.state == IoState::kDone) return received;
    if (received.state == IoState::kViolation) {
      return make_error(Code::kRemoteError, "the other end sent an illegal packet");
    }
    if (received.state == IoState::kClosed) return tl::unexpected(hung_up());
    TUTTI_TRY(wait_for(socket, POLLIN, stop_fd, deadline));
  }
}

Result<ControlFd> open_connection(const std::string& address, const SessionKey& key,
                                  const Claim& claim, int stop_fd, Deadline deadline) {
  std::array<std::byte, kMaxHandshakeBytes> buffer;
  for (std::int64_t backoff_ns = kFirstBackoffNs;;) {
    TUTTI_TRY_ASSIGN(ControlFd socket, connect_to(address, deadline));
    const Initiator initiator(key, claim, make_nonce());
    Status sent = send_within(socket.get(), initiator.hello(), stop_fd, deadline);
    Result<Received> answer = make_error(Code::kRemoteError, "");
    if (sent) answer = receive_within(socket.get(), buffer, false, stop_fd, deadline);
    if (answer) {
      const std::span<const std::byte> packet(buffer.data(), answer->packet_bytes);
      TUTTI_TRY_ASSIGN(const std::vector<std::byte> proof, initiator.prove(packet));
      TUTTI_TRY(send_within(socket.get(), proof, stop_fd, deadline));
      return socket;
    }
    const Error& error = sent ? answer.error() : sent.error();
    if (error.code != Code::kRemoteError) return tl::unexpected(error);
    // It hung up: busy. Wait a little, but not beyond the deadline or a stop.
    const Deadline pause{std::min(deadline.at_ns, now_ns() + backoff_ns)};
    const Status waited = wait_for(-1, 0, stop_fd, pause);
    if (!waited && waited.error().code != Code::kTimeout) return tl::unexpected(waited.error());
    if (deadline.passed()) {
      return make_error(Code::kTimeout, fmt::format("{} keeps hanging up", address));
    }
    backoff_ns = std::min(2 * backoff_ns, kLongestBackoffNs);
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
                                   stop_fd_, deadline));
  const int fd = socket.get();
  links_.emplace(peer, Link{.socket = std::move(socket), .used = ++use_count_});
  return fd;
}

Status Links::send(Rank peer, std::span<const std::byte> packet, Deadline deadline) {
  const Result<int> socket = open(peer, deadline);
  if (!socket) return tl::unexpected(blame(peer, socket.error()));
  const Status sent = send_within(*socket, packet, stop_fd_, deadline);
  if (sent) return {};
  drop(peer, false);
  return tl::unexpected(blame(peer, sent.error()));
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

Result<Reply> Links::call_in_turn(Rank peer, RequestKind kind, std::span<const std::byte> payload,
                                  Deadline deadline) {
  const std::uint64_t number = ++call_count_;
  Writer request = start_frame(
      {.type = FrameType::kRequest, .kind = static_cast<std::uint16_t>(kind), .number = number});
  request.raw(payload);
  TUTTI_TRY(send(peer, request.bytes(), deadline));
  return receive_reply(peer, number, deadline);
}

Result<Reply> Links::receive_reply(Rank peer, std::uint64_t number, Deadline deadline) {
  if (buffer_.empty()) buffer_.resize(kMaxPacketBytes);
  Result<Received> received =
      receive_within(links_.at(peer).socket.get(), buffer_, true, stop_fd_, deadline);
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
