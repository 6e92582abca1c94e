// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp_transport.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/process_fd.hpp"
#include "base/tcp_socket.hpp"
#include "transports/pumped.hpp"
#include "transports/tcp/door.hpp"
#include "transports/tcp/frame.hpp"
#include "transports/tcp/invitations.hpp"
#include "transports/tcp/peer.hpp"
#include "transports/tcp/stream.hpp"

namespace tutti {
namespace {

using namespace tcp;

// Prior costs until calibration: a message between two hosts of one Ethernet of 25 Gbit/s; how long
// it keeps a core busy was measured between network namespaces (docs/performance.md).
constexpr LinkCost kFlaggedCost{.alpha_ns = 15'000,
                                .beta_ns_per_byte = 0.32,
                                .overhead_ns = 4'000,
                                .overhead_ns_per_byte = 0.16};
constexpr LinkCost kSlotsCost{.alpha_ns = 17'000,
                              .beta_ns_per_byte = 0.32,
                              .overhead_ns = 4'000,
                              .overhead_ns_per_byte = 0.16};

// So few peers are asked one by one: what has come is read by one system call, not two. Whoever is
// at the door, and a stream that no peer has yet, has a turn once in so many rounds.
constexpr std::size_t kMostAsked = 2;
constexpr std::uint32_t kRoundsPerLook = 16;

constexpr std::int64_t kMostAwaitNs = 900'000'000;
constexpr std::int64_t kConnectNs = 10'000'000'000;  // the kernel would try for two minutes

class TcpTransport final : public PumpedTransport<Peer, Home> {
 public:
  TcpTransport(ControlChannel& control, const TcpOptions& options)
      : PumpedTransport(control, options.arena_bytes, options.log), ip_(options.ip) {}
  ~TcpTransport() override { close(); }

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] Capabilities capabilities() const override {
    return {.pumps = true,
            .flagged = kFlaggedCost,
            .slots = kSlotsCost,
            .arena_bytes = home_.layout.arena_bytes};
  }
  [[nodiscard]] Status listen() override;
  // The kernel copies from wherever it lies.
  [[nodiscard]] bool may_lend(std::span<const std::byte> /*memory*/) const override { return true; }
  [[nodiscard]] Status progress() override;
  [[nodiscard]] Status flush() override {
    if (home_.inbox) pump_all();
    return {};
  }
  void hasten() override {
    for (Peer* const peer : active_) peer->hasten();
  }
  void tell_done() override {
    home_.done_due = home_.done;  // peers that come later, too
    for (Peer* const peer : active_) peer->tell_all();
  }
  [[nodiscard]] bool await(Rank peer, std::int64_t ns) override;
  [[nodiscard]] Owed owed() const override {
    for (Peer* const peer : active_)
      if (const std::uint64_t bytes = peer->unacknowledged_bytes()) return {peer->rank(), bytes};
    return {};
  }
  [[nodiscard]] Status health(Rank rank) const override;
  void give_up_if_silent(Rank rank) override {
    if (Peer* const peer = known(rank)) peer->give_up_if_silent();
  }
  void close() override;

 private:
  // What an event of epoll is about: the door's, or a stream of a peer.
  [[nodiscard]] static std::uint64_t event_of(Rank rank, Peer::Side side) {
    return static_cast<std::uint64_t>(rank) * 2 + side;
  }

  [[nodiscard]] Status make_link(Peer& peer, Rank rank, Deadline deadline) override;
  [[nodiscard]] Result<Invitation> ask_invitation(Rank rank, Deadline deadline);
  [[nodiscard]] Result<ProcessFd> connect_to(const TcpAddress& at, Deadline deadline);
  [[nodiscard]] Status make_stream(Peer& peer, Rank rank, Deadline deadline);
  // A stream that begins with `opening`, and with `opening_bytes` from the other end.
  [[nodiscard]] Status attach(Peer& peer, Peer::Side side, ProcessFd socket,
                              std::size_t opening_bytes, std::span<const std::byte> opening);
  void admit(Rank from, ProcessFd socket, const Token& reply);
  void receive_from(Rank rank, Peer::Side side);
  void take_events();
  void ask_for_room(Peer& peer, bool wanted);
  void pump_all() {
    for (Peer* const peer : active_) peer->pump();
  }

  const std::string ip_;
  std::shared_ptr<Invitations> invitations_;  // shared with the request handler
  ProcessFd epoll_;
  std::uint32_t rounds_ = 0;
  std::optional<Door> door_;  // there while the inbox is
};

Status TcpTransport::listen() {
  if (home_.layout.ranks == 1 || home_.inbox) return {};
  const std::optional<TcpAddress> at = parse_ip(ip_, 0);
  if (!at)
    return make_error(Code::kInvalidArgument,
                      fmt::format("tcp: '{}' is not an IP address to listen at", ip_));
  epoll_ = ProcessFd::from([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!epoll_) return errno_error("tcp: epoll_create1", errno);
  const bool first = invitations_ == nullptr;  // not again, after close()
  if (first) invitations_ = std::make_shared<Invitations>();
  door_.emplace(epoll_.get(), home_.rank, *invitations_, log_,
                [this](Rank from, ProcessFd socket, const Token& reply) {
                  admit(from, std::move(socket), reply);
                });
  TUTTI_TRY_ASSIGN(const TcpAddress own, door_->open(*at));
  TUTTI_TRY_ASSIGN(home_.inbox, PrivateInbox::make(home_.layout));
  mapped_bytes_.fetch_add(home_.layout.total_bytes(), std::memory_order_relaxed);
  TUTTI_LOG(log_, LogLevel::kInfo, "rank {} listens at {}", home_.rank, own.text());
  invitations_->open(own);
  if (first)
    control_.serve(RequestKind::kTcp, [invitations = invitations_](const Request& request) {
      return invitations->invite(request.from);
    });
  return {};
}

Result<Invitation> TcpTransport::ask_invitation(Rank rank, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const Reply reply, control_.call(rank, RequestKind::kTcp, {}, deadline));
  return decode_invitation(reply.payload).map_error([&](const Error& error) {
    return Error{error.code, fmt::format("rank {}: {}", rank, error.message), rank};
  });
}

// Silence and an unreachable host are the network's: kSystemError, whose cause this rank tells.
Result<ProcessFd> TcpTransport::connect_to(const TcpAddress& at, Deadline deadline) {
  ProcessFd socket = start_connect(at);
  int error_number = socket ? 0 : errno;
  if (socket) {
    const Deadline attempt{std::min(deadline.at_ns, now_ns() + kConnectNs)};
    const Status ready = control_.await_writable(socket.get(), attempt);
    if (!ready && ready.error().code != Code::kTimeout) return tl::unexpected(ready.error());
    error_number = ready ? outcome_of_connect(socket.get(), at) : ETIMEDOUT;
  }
  if (error_number == 0) return socket;
  return make_error(error_number == ECONNREFUSED ? Code::kRemoteError : Code::kSystemError,
                    fmt::format("cannot connect to {}: {}", at.text(),
                                std::generic_category().message(error_number)));
}

Status TcpTransport::make_link(Peer& peer, Rank rank, Deadline deadline) {
  if (!peer.stream(Peer::kMade)) TUTTI_TRY(make_stream(peer, rank, deadline));
  return peer.make_mirror();
}

Status TcpTransport::make_stream(Peer& peer, Rank rank, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const Invitation invitation, ask_invitation(rank, deadline));
  Result<ProcessFd> socket = connect_to(invitation.at, deadline);
  if (!socket) return tl::unexpected(of_peer(std::move(socket).error(), rank));
  peer.expect_reply(invitation.reply);
  const Hello hello{.from = home_.rank, .to = rank, .token = invitation.hello};
  return attach(peer, Peer::kMade, *std::move(socket), sizeof(HelloReply),
                std::as_bytes(std::span(&hello, 1)));
}

Status TcpTransport::attach(Peer& peer, Peer::Side side, ProcessFd socket,
                            std::size_t opening_bytes, std::span<const std::byte> opening) {
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = event_of(peer.rank(), side)}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &wanted) != 0)
    return errno_error("tcp: epoll_ctl", errno);
  Stream& stream = peer.stream(side).emplace(std::move(socket), opening_bytes);
  stream.open_with(opening);
  stream.flush();
  if (std::ranges::find(active_, &peer) == active_.end()) active_.push_back(&peer);
  return {};
}

// A connection that cannot be watched is dropped: the peer finds it closed. So is a second one,
// which no honest rank makes: the messages of the first are under way.
void TcpTransport::admit(Rank from, ProcessFd socket, const Token& reply) {
  if (const auto& first = peer_of(from).stream(Peer::kAccepted); first && !first->down()) {
    TUTTI_LOG(log_, LogLevel::kWarn, "tcp: rank {} connected twice; its first connection is kept",
              from);
    return;
  }
  const HelloReply answer{.token = reply};
  const Status attached = attach(peer_of(from), Peer::kAccepted, std::move(socket), 0,
                                 std::as_bytes(std::span(&answer, 1)));
  if (!attached)
    TUTTI_LOG(log_, LogLevel::kWarn, "tcp: dropped the connection from rank {}: {}", from,
              attached.error().message);
}

Status TcpTransport::health(Rank rank) const {
  const Peer* const peer = known(rank);
  const Stream* const way = peer == nullptr ? nullptr : peer->broken();
  if (way == nullptr) return {};
  return make_error(way->silenced() ? Code::kTimeout : Code::kRemoteError,
                    fmt::format("the TCP connection to rank {} on {} is lost: {}", rank,
                                host_of(rank), way->cause()),
                    rank);
}

// A stream whose next frame waits has had its turn.
void TcpTransport::receive_from(Rank rank, Peer::Side side) {
  if (!in_range(rank)) return;
  Peer& peer = peer_of(rank);
  if (auto& stream = peer.stream(side); stream && !stream->down() && !stream->waits())
    stream->receive(peer);
}

Status TcpTransport::progress() {
  if (!home_.inbox) return {};
  // The kernel does not tell of frames that have waited: they have been read.
  for (Peer* const peer : active_) peer->receive_waiting();
  pump_all();
  if (active_.empty() || active_.size() > kMostAsked || ++rounds_ % kRoundsPerLook == 0)
    take_events();
  else
    for (Peer* const peer : active_) peer->receive();
  return door_->tick();
}

void TcpTransport::take_events() {
  std::array<epoll_event, 64> events;
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const std::uint64_t event = events[static_cast<std::size_t>(i)].data.u64;
    if (event >= Door::kFirstEvent)
      door_->hear(event);
    else
      receive_from(static_cast<Rank>(event / 2), static_cast<Peer::Side>(event % 2));
  }
}

// Room for what waits to be sent wakes, too; only a sleeper asks for that, since there nearly
// always is some.
bool TcpTransport::await(Rank rank, std::int64_t ns) {
  if (!home_.inbox || rank == home_.rank) return false;
  if (std::ranges::any_of(active_, [](Peer* peer) { return peer->waits(); })) return true;
  // What others may wait for goes before this rank sleeps. Nothing is received here: of what has
  // been the executor would hear after the sleep.
  for (Peer* const peer : active_) peer->hasten_all();
  pump_all();
  std::array<epoll_event, 1> event;
  const timespec most{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min(ns, kMostAwaitNs))};
  for (Peer* const peer : active_) ask_for_room(*peer, true);
  const int woken = ::epoll_pwait2(epoll_.get(), event.data(), 1, &most, nullptr);
  for (Peer* const peer : active_) ask_for_room(*peer, false);
  return woken >= 0 || errno == EINTR;  // kernels before 5.11 have no such call
}

void TcpTransport::ask_for_room(Peer& peer, bool wanted) {
  for (const Peer::Side side : {Peer::kMade, Peer::kAccepted}) {
    auto& stream = peer.stream(side);
    if (!stream || stream->down() || !stream->pending()) continue;
    epoll_event event{.events = EPOLLIN | (wanted ? EPOLLOUT : 0u),
                      .data = {.u64 = event_of(peer.rank(), side)}};
    // Without it the sleep ends at its time.
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, stream->fd(), &event));
  }
}

void TcpTransport::close() {
  if (invitations_) invitations_->close();
  active_.clear();
  door_.reset();
  for (auto& peer : peers_) peer.reset();
  home_.inbox.reset();
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
