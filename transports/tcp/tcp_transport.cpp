#include "transports/tcp/tcp_transport.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transports/spec_check.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/peer.hpp"
#include "transports/tcp/socket.hpp"
#include "transports/tcp/stream.hpp"

namespace tutti {
namespace {

using namespace tcp;

// Prior costs until calibration: a message between two hosts of one Ethernet, 10 Gbit/s.
constexpr LinkCost kFlaggedCost{.alpha_ns = 15'000, .beta_ns_per_byte = 0.8};
constexpr LinkCost kSlotsCost{.alpha_ns = 17'000, .beta_ns_per_byte = 0.8};

// Strangers may knock: no more than this wait for their hello, none longer.
constexpr std::size_t kMostNewcomers = 256;
constexpr int kMostAccepts = 64;  // in one turn
constexpr std::int64_t kNewcomerNs = 10'000'000'000;
constexpr std::int64_t kConnectNs = 10'000'000'000;  // the kernel would try for two minutes

// The answer to kTcp: where to connect, and what to show each other there.
struct Invitation {
  Endpoint at;
  std::array<std::byte, 4> zero{};
  Token hello, reply;
};
static_assert(std::is_trivially_copyable_v<Invitation> && sizeof(Invitation) == 56);

// What the request handler knows. It dies with the handler, when the channel closes.
struct Door {
  struct Expected {
    Token hello, reply;
  };
  std::mutex mutex;
  Endpoint at;                        // guarded by mutex
  bool open = false;                  // guarded by mutex
  std::map<Rank, Expected> expected;  // guarded by mutex; each good for one connection

  // Service thread.
  [[nodiscard]] Result<HandlerReply> invite(Rank guest) {
    const std::lock_guard lock(mutex);
    if (!open) return make_error(Code::kInvalidUsage, "this rank has closed its connections");
    Invitation invitation{.at = at, .hello = {}, .reply = {}};
    if (::getrandom(invitation.hello.data(), sizeof(Token), 0) != sizeof(Token) ||
        ::getrandom(invitation.reply.data(), sizeof(Token), 0) != sizeof(Token))
      return errno_error("tcp: no random numbers", errno);
    expected[guest] = {invitation.hello, invitation.reply};
    HandlerReply result;
    result.payload.resize(sizeof invitation);
    std::memcpy(result.payload.data(), &invitation, sizeof invitation);
    return result;
  }

  // The token to answer an honest hello with.
  [[nodiscard]] std::optional<Token> admit(const Hello& hello, Rank self) {
    if (hello.magic != kMagic || hello.version != kVersion || hello.to != self || hello.zero != 0)
      return std::nullopt;
    const std::lock_guard lock(mutex);
    const auto found = expected.find(hello.from);
    if (found == expected.end() || !equal(found->second.hello, hello.token)) return std::nullopt;
    const Token reply = found->second.reply;
    expected.erase(found);
    return reply;
  }
};

// Somebody who has connected and not yet said who he is.
struct Newcomer {
  UniqueFd socket;
  std::int64_t since_ns = now_ns();
  Hello hello{};
  std::size_t have_bytes = 0;

  // True: the hello is there. Reads nothing beyond it.
  [[nodiscard]] bool listen(bool& gone) {
    auto* const bytes = reinterpret_cast<std::byte*>(&hello);
    const ssize_t got =
        ::recv(socket.get(), bytes + have_bytes, sizeof hello - have_bytes, MSG_DONTWAIT);
    gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (got > 0) have_bytes += static_cast<std::size_t>(got);
    return have_bytes == sizeof hello;
  }
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(ControlChannel& control, const TcpOptions& options)
      : control_(control), ip_(options.ip), log_(options.log), peers_(control.peers().size()) {
    home_.rank = control.rank();
    home_.layout = {static_cast<std::int32_t>(control.peers().size()), options.arena_bytes};
  }
  ~TcpTransport() override { close(); }

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] Capabilities capabilities() const override {
    return {.pumps = true,
            .flagged = kFlaggedCost,
            .slots = kSlotsCost,
            .arena_bytes = home_.layout.arena_bytes};
  }
  [[nodiscard]] bool reaches(const PeerInfo& /*peer*/) const override { return true; }
  [[nodiscard]] Status listen() override;
  [[nodiscard]] Status connect(Rank rank, Deadline deadline) override;
  [[nodiscard]] Result<Connection> open_send(const ConnectionSpec& spec) override;
  [[nodiscard]] Result<Connection> open_recv(const ConnectionSpec& spec) override;
  void publish_done(std::uint64_t operation) override {
    home_.done = operation;
    pump_all();
  }
  [[nodiscard]] std::uint64_t done_of(Rank rank) const override;
  [[nodiscard]] Status progress() override;
  [[nodiscard]] Rank unflushed() const override {
    const auto found = std::ranges::find_if(active_, [](Peer* peer) { return !peer->flushed(); });
    return found == active_.end() ? kNoRank : (*found)->rank();
  }
  [[nodiscard]] bool acknowledged() const override {
    return std::ranges::all_of(active_, [](Peer* peer) { return peer->acknowledged(); });
  }
  [[nodiscard]] bool connected(Rank rank) const override {
    const Peer* const peer = known(rank);
    return peer != nullptr && peer->connected();
  }
  [[nodiscard]] bool has_left(Rank rank) const override {
    const Peer* const peer = known(rank);
    return peer != nullptr && peer->has_left();
  }
  [[nodiscard]] Status health(Rank rank) const override;
  [[nodiscard]] std::uint64_t mapped_bytes() const override {
    // Relaxed: a figure for people, it orders nothing.
    return mapped_bytes_.load(std::memory_order_relaxed);
  }
  void say_goodbye() override {
    for (Peer* const peer : active_) peer->say_goodbye();
  }
  void close() override;

 private:
  // What an event of epoll is about: the door, a newcomer, or a stream of a peer.
  static constexpr std::uint64_t kDoorEvent = UINT64_MAX;
  static constexpr std::uint64_t kNewcomerEvents = std::uint64_t{1} << 40;
  [[nodiscard]] static std::uint64_t event_of(Rank rank, Peer::Side side) {
    return static_cast<std::uint64_t>(rank) * 2 + side;
  }

  [[nodiscard]] bool in_range(Rank rank) const { return rank >= 0 && rank < home_.layout.ranks; }
  [[nodiscard]] SpecLimits limits() const {
    return {.ranks = home_.layout.ranks, .arena_bytes = home_.layout.arena_bytes};
  }
  [[nodiscard]] Peer& peer_of(Rank rank) {
    auto& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer) peer = std::make_unique<Peer>(rank, home_);
    return *peer;
  }
  [[nodiscard]] const Peer* known(Rank rank) const {
    return in_range(rank) ? peers_[static_cast<std::size_t>(rank)].get() : nullptr;
  }
  [[nodiscard]] Status watch(int fd, std::uint64_t event, int operation = EPOLL_CTL_ADD);
  [[nodiscard]] Result<Invitation> ask_invitation(Rank rank, Deadline deadline);
  [[nodiscard]] Status make_stream(Peer& peer, Rank rank, Deadline deadline);
  void attach(Peer& peer, Peer::Side side, UniqueFd socket, std::size_t opening_bytes,
              std::span<const std::byte> opening);
  void open_door();
  void hear_newcomer(std::uint64_t key);
  void receive_from(Rank rank, Peer::Side side);
  void pump_all() {
    for (Peer* const peer : active_) peer->pump();
  }

  ControlChannel& control_;
  const std::string ip_;
  const Log log_;
  Home home_;
  std::shared_ptr<Door> door_;  // shared with the request handler
  UniqueFd listener_, epoll_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> active_;  // those with a stream
  std::map<std::uint64_t, Newcomer> newcomers_;
  std::uint64_t next_newcomer_ = kNewcomerEvents;
  std::atomic<std::uint64_t> mapped_bytes_{0};
};

Status TcpTransport::listen() {
  if (home_.layout.ranks == 1 || home_.inbox) return {};
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return errno_error("tcp: epoll_create1", errno);
  TUTTI_TRY_ASSIGN(Listening listening, listen_at(ip_));
  listener_ = std::move(listening.socket);
  TUTTI_TRY(watch(listener_.get(), kDoorEvent));
  TUTTI_TRY_ASSIGN(home_.inbox, PrivateInbox::make(home_.layout));
  mapped_bytes_.fetch_add(home_.layout.total_bytes(), std::memory_order_relaxed);
  TUTTI_LOG(log_, LogLevel::kInfo, "tcp: rank {} listens at {}", home_.rank, listening.at.text());
  const bool first = door_ == nullptr;  // not again, after close()
  if (first) door_ = std::make_shared<Door>();
  {
    const std::lock_guard lock(door_->mutex);
    door_->at = listening.at;
    door_->open = true;
  }
  if (first)
    control_.serve(RequestKind::kTcp,
                   [door = door_](const Request& request) { return door->invite(request.from); });
  return {};
}

Status TcpTransport::watch(int fd, std::uint64_t event, int operation) {
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = event}};
  if (::epoll_ctl(epoll_.get(), operation, fd, &wanted) == 0) return {};
  return errno_error("tcp: epoll_ctl", errno);
}

Result<Invitation> TcpTransport::ask_invitation(Rank rank, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const Reply reply, control_.call(rank, RequestKind::kTcp, {}, deadline));
  Invitation invitation;
  if (reply.payload.size() != sizeof invitation)
    return make_error(Code::kRemoteError,
                      fmt::format("rank {} answered {} bytes to a request for its TCP address",
                                  rank, reply.payload.size()),
                      rank);
  std::memcpy(&invitation, reply.payload.data(), sizeof invitation);
  return invitation;
}

Status TcpTransport::connect(Rank rank, Deadline deadline) {
  if (!in_range(rank))
    return make_error(Code::kInvalidArgument,
                      fmt::format("connect to rank {} of {}", rank, home_.layout.ranks));
  if (rank == home_.rank) return {};
  if (!home_.inbox)
    return make_error(Code::kInvalidUsage, "tcp: connect before listen or after close");
  Peer& peer = peer_of(rank);
  if (peer.mirrored()) return {};
  if (peer.way() == nullptr) TUTTI_TRY(make_stream(peer, rank, deadline));
  TUTTI_TRY(peer.make_mirror());
  mapped_bytes_.fetch_add(home_.layout.total_bytes(), std::memory_order_relaxed);
  return {};
}

Status TcpTransport::make_stream(Peer& peer, Rank rank, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const Invitation invitation, ask_invitation(rank, deadline));
  const Deadline attempt{std::min(deadline.at_ns, now_ns() + kConnectNs)};
  Result<UniqueFd> socket = connect_to(invitation.at, attempt);
  if (!socket) {
    Error error = std::move(socket).error();
    error.message += fmt::format(" (rank {} on {})", rank,
                                 control_.peers()[static_cast<std::size_t>(rank)].host);
    error.culprit = rank;
    return tl::unexpected(std::move(error));
  }
  peer.expect_reply(invitation.reply);
  const Hello hello{.from = home_.rank, .to = rank, .token = invitation.hello};
  TUTTI_TRY(watch(socket->get(), event_of(rank, Peer::kMade)));
  attach(peer, Peer::kMade, *std::move(socket), sizeof(HelloReply),
         std::as_bytes(std::span(&hello, 1)));
  return {};
}

void TcpTransport::attach(Peer& peer, Peer::Side side, UniqueFd socket, std::size_t opening_bytes,
                          std::span<const std::byte> opening) {
  Stream& stream = peer.stream(side).emplace(std::move(socket), opening_bytes);
  stream.open_with(opening);
  stream.flush();
  if (std::ranges::find(active_, &peer) == active_.end()) active_.push_back(&peer);
}

Result<Connection> TcpTransport::open_send(const ConnectionSpec& spec) {
  TUTTI_TRY(check_spec(spec, limits()));
  if (spec.source != home_.rank)
    return make_error(Code::kInvalidArgument,
                      fmt::format("rank {} cannot send as rank {}", home_.rank, spec.source));
  Peer& peer = peer_of(spec.destination);
  if (!peer.mirrored())
    return make_error(Code::kInvalidUsage, fmt::format("rank {} sends to rank {} without connect",
                                                       home_.rank, spec.destination));
  return peer.open_send(spec);
}

Result<Connection> TcpTransport::open_recv(const ConnectionSpec& spec) {
  TUTTI_TRY(check_spec(spec, limits()));
  if (spec.destination != home_.rank)
    return make_error(Code::kInvalidArgument, fmt::format("rank {} cannot receive as rank {}",
                                                          home_.rank, spec.destination));
  if (!home_.inbox)
    return make_error(Code::kInvalidUsage, "tcp: open_recv before listen or after close");
  return peer_of(spec.source).open_recv(spec);
}

std::uint64_t TcpTransport::done_of(Rank rank) const {
  if (rank == home_.rank) return home_.done;
  const Peer* const peer = known(rank);
  return peer == nullptr ? 0 : peer->done();
}

Status TcpTransport::health(Rank rank) const {
  const Peer* const peer = known(rank);
  const Stream* const way = peer == nullptr ? nullptr : peer->broken();
  if (way == nullptr) return {};
  return make_error(
      Code::kRemoteError,
      fmt::format("the TCP connection to rank {} on {} is gone: {}", rank,
                  control_.peers()[static_cast<std::size_t>(rank)].host, way->cause()),
      rank);
}

void TcpTransport::open_door() {
  for (int accepted = 0; accepted < kMostAccepts; ++accepted) {
    UniqueFd socket = accept_from(listener_.get());
    if (!socket) break;
    const std::uint64_t key = next_newcomer_++;
    if (!watch(socket.get(), key)) continue;
    newcomers_.emplace(key, Newcomer{.socket = std::move(socket)});
    hear_newcomer(key);  // most have spoken already
  }
  // The oldest first; what they have said by now is heard.
  const std::int64_t now = now_ns();
  while (!newcomers_.empty() && (newcomers_.size() > kMostNewcomers ||
                                 now - newcomers_.begin()->second.since_ns > kNewcomerNs)) {
    const std::uint64_t key = newcomers_.begin()->first;
    hear_newcomer(key);
    newcomers_.erase(key);
  }
}

void TcpTransport::hear_newcomer(std::uint64_t key) {
  const auto found = newcomers_.find(key);
  if (found == newcomers_.end()) return;
  bool gone = false;
  const bool spoke = found->second.listen(gone);
  if (!spoke && !gone) return;
  Newcomer newcomer = std::move(found->second);
  newcomers_.erase(found);
  if (!spoke) return;
  const Rank from = newcomer.hello.from;
  const auto reply = in_range(from) ? door_->admit(newcomer.hello, home_.rank) : std::nullopt;
  if (!reply) {
    TUTTI_LOG(log_, LogLevel::kWarn,
              "tcp: somebody who is no rank of this job connected to rank {}; sent away",
              home_.rank);
    return;
  }
  const HelloReply answer{*reply};
  if (watch(newcomer.socket.get(), event_of(from, Peer::kAccepted), EPOLL_CTL_MOD))
    attach(peer_of(from), Peer::kAccepted, std::move(newcomer.socket), 0,
           std::as_bytes(std::span(&answer, 1)));
}

void TcpTransport::receive_from(Rank rank, Peer::Side side) {
  if (!in_range(rank)) return;
  Peer& peer = peer_of(rank);
  if (auto& stream = peer.stream(side); stream && !stream->down()) stream->receive(peer);
}

Status TcpTransport::progress() {
  if (!home_.inbox) return {};
  std::array<epoll_event, 64> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t event = events[static_cast<std::size_t>(i)].data.u64;
    if (event == kDoorEvent)
      open_door();
    else if (event >= kNewcomerEvents)
      hear_newcomer(event);
    else
      receive_from(static_cast<Rank>(event / 2), static_cast<Peer::Side>(event % 2));
  }
  pump_all();
  return {};
}

void TcpTransport::close() {
  if (door_) {
    const std::lock_guard lock(door_->mutex);
    door_->open = false;
    door_->expected.clear();
  }
  active_.clear();
  newcomers_.clear();
  for (auto& peer : peers_) peer.reset();
  home_.inbox.reset();
  listener_.reset();
  epoll_.reset();
  mapped_bytes_.store(0, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(ControlChannel& control,
                                                      const TcpOptions& options) {
  TcpOptions rounded = options;
  TUTTI_TRY_ASSIGN(rounded.arena_bytes, round_arena(options.arena_bytes));
  return std::make_unique<TcpTransport>(control, rounded);
}

}  // namespace tutti
