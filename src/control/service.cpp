// SPDX-License-Identifier: Apache-2.0
#include "control/service.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "control/thread.hpp"

namespace tutti::control {

namespace {

// Has the network ended this TCP connection? A reset that follows the peer's own close is EPIPE,
// and then, as without any error, the peer's kernel has closed it: its process has ended.
bool ended_by_network(int socket) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return true;
  return error != 0 && error != EPIPE;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const Options& options) {
  std::unique_ptr<Service> service(new Service(options));
  TUTTI_TRY(service->open());
  TUTTI_TRY_ASSIGN(std::thread thread,
                   spawn_thread("tutti-service", [self = service.get()] { self->run(); }));
  service->thread_ = std::make_unique<std::thread>(std::move(thread));
  return service;
}

Status Service::open() {
  TUTTI_TRY_ASSIGN(loop_, EventLoop::create());
  TUTTI_TRY_ASSIGN(Listener local, listen_local(options_.listen_kind));
  address_ = local.address();
  listeners_.push_back(std::move(local));
  if (options_.tcp_at) {
    Result<Listener> tcp = listen_tcp(*options_.tcp_at);
    if (tcp) {
      tcp_address_ = tcp->address();
      listeners_.push_back(*std::move(tcp));
    } else {  // a job of one host needs none; in another the root will name this rank
      TUTTI_LOG(options_.log, LogLevel::kWarn, "ranks of other hosts cannot connect: {}",
                tcp.error().message);
    }
  }
  peer_watch_ = std::make_unique<PeerWatch>(*loop_, options_.watch_mode);
  serve(RequestKind::kExchangeState, [this](const Request&) {
    const ExchangeState state = mailbox_.state();
    Writer writer;
    writer.number(state.exchange).number(state.waits_for);
    return std::optional<Result<HandlerReply>>(HandlerReply{.payload = writer.take()});
  });
  return {};
}

void Service::let_in(const Identity& identity) {
  loop_->post([this, identity] {
    identity_ = identity;
    open_lobbies();
  });
}

void Service::open_lobbies() {
  for (Listener& listener : listeners_)
    if (const Status opened = open_lobby(std::move(listener)); !opened)
      mailbox_.fail(opened.error());
  listeners_.clear();
}

Status Service::open_lobby(Listener listener) {
  lobbies_.push_back(
      std::make_unique<Lobby>(*loop_, std::move(listener),
                              Lobby::Options{.find_key = Acceptor::only(identity_.key),
                                             .self = identity_.self,
                                             .ranks = identity_.ranks,
                                             .log = options_.log},
                              [this](Channel channel, const SessionId&, const Claim& claim) {
                                admit(std::move(channel), claim);
                              }));
  return lobbies_.back()->open();
}

// A rank that sends us something would wait for ever.
void Service::note_starved(std::int64_t at_ns) {
  int error_number = 0;
  for (const auto& lobby : lobbies_)
    if (error_number == 0) error_number = lobby->starved(at_ns);
  if (error_number == starved_errno_.exchange(error_number, std::memory_order_relaxed)) return;
  if (error_number == 0) return;
  Error error = starved_error(error_number);
  error.message = fmt::format("rank {}: {}", identity_.self, error.message);
  error.culprit = identity_.self;
  mailbox_.fail(std::move(error));
}

Status Service::health() const {
  const int error_number = starved_errno_.load(std::memory_order_relaxed);
  if (error_number == 0) return {};
  return tl::unexpected(starved_error(error_number));
}

// Where memory is short, what was at hand is lost, and who waits for it finds out by its deadline;
// an exception that left the thread would end the user's program.
void Service::run() {
  while (running_) {
    try {
      turn();
    } catch (const std::bad_alloc&) {
      constexpr std::chrono::milliseconds kMemoryPause{1};
      std::this_thread::sleep_for(kMemoryPause);
    }
  }
}

void Service::turn() {
  std::int64_t next_ns = std::min(peer_watch_->next_tick_ns(), next_look_ns_);
  for (const auto& lobby : lobbies_) next_ns = std::min(next_ns, lobby->next_tick_ns());
  loop_->run_once(next_ns);
  const std::int64_t at_ns = now_ns();
  for (const auto& lobby : lobbies_) lobby->tick(at_ns);
  note_starved(at_ns);
  peer_watch_->tick(at_ns);
  settle_deaths();
  look(at_ns);
}

void Service::look(std::int64_t at_ns) {
  if (at_ns < next_look_ns_) return;
  const std::lock_guard lock(look_mutex_);
  next_look_ns_ = look_ ? look_() : INT64_MAX;
}

void Service::look_when(std::function<std::int64_t()> look) {
  const std::lock_guard lock(look_mutex_);
  look_ = std::move(look);
}

void Service::look_soon() {
  loop_->post([this] { next_look_ns_ = 0; });
}

// A rank that died just after an exchange has sent its messages. They are taken in before its death
// is reported, so that only exchanges fail which cannot complete.
void Service::settle_deaths() {
  while (!dead_.empty()) {
    for (int turn = 0; turn < kMaxSettleTurns && loop_->run_once(0) > 0; ++turn) {
    }
    for (const Rank rank : std::exchange(dead_, {})) {
      if (rank == identity_.self || !reported_dead_.insert(rank).second) continue;
      bool died = false;
      {
        const std::lock_guard lock(watch_mutex_);
        died = watching_ && on_death_(rank);
      }
      if (!died) continue;
      spread(NewsKind::kDied, rank);
      watch_others();
    }
  }
}

void Service::stop() {
  if (!thread_) return;
  if (generation_ != fork_generation()) {
    static_cast<void>(thread_.release());  // the parent's thread: neither joined nor destroyed
    return;
  }
  loop_->post([this] { running_ = false; });
  thread_->join();
  thread_.reset();
  // A rank that ends before it has met the others hangs up without a word.
  if (meeting_.load(std::memory_order_relaxed) == Meeting::kMet) leave_roots(done_);
  while (!roots_.empty()) leave_root(roots_.begin()->first);
  // The Watch of a peer, or its proof, may be on its way: any connection may be watched soon.
  for (auto& [key, connection] : connections_) say_bye(connection);
  for (const auto& lobby : lobbies_) lobby->send_last(bye_);
  for (const auto& [key, connection] : connections_) loop_->remove(connection.token);
  connections_.clear();
  peer_watch_->stop();
  lobbies_.clear();
}

void Service::serve(RequestKind kind, ControlPlane::WaitingHandler handler) {
  {
    const std::lock_guard lock(handlers_mutex_);
    handlers_[kind] = std::make_shared<const ControlPlane::WaitingHandler>(std::move(handler));
  }
  loop_->post([this, kind] { retry_parked(kind); });
}

void Service::admit(Channel channel, const Claim& claim) {
  const auto of_peer = [&](const auto& entry) {
    return entry.second.peer == claim.rank && !entry.second.watched;
  };
  if (std::ranges::count_if(connections_, of_peer) >=
      static_cast<std::ptrdiff_t>(kMaxConnectionsPerPeer)) {
    hang_up(std::ranges::find_if(connections_, of_peer)->first);
  }
  if (keep(std::move(channel), claim.rank, false) != 0) mailbox_.source_came(claim.rank);
}

// 0: the kernel refuses to watch it.
Service::ConnectionKey Service::keep(Channel channel, Rank peer, bool watched) {
  const ConnectionKey key = next_key_++;
  Connection connection{.channel = std::move(channel), .peer = peer, .watched = watched};
  connection.token = loop_->add(connection.channel.fd(), EPOLLIN,
                                [this, key](std::uint32_t events) { on_event(key, events); });
  if (connection.token == 0) return 0;
  connections_.emplace(key, std::move(connection));
  return key;
}

void Service::add_watch(Rank peer, Channel channel) {
  auto owner = std::make_shared<Channel>(std::move(channel));  // std::function copies
  loop_->post([this, peer, owner] { static_cast<void>(keep(std::move(*owner), peer, true)); });
}

void Service::on_event(ConnectionKey key, std::uint32_t events) {
  Connection& connection = connections_.at(key);
  if (connection.takes_nothing) return hear_out(key);  // memory was short before it was heard out
  if (connection.watched && (events & EPOLLERR) != 0 && !connection.channel.carries_descriptors() &&
      ended_by_network(connection.channel.fd())) {
    connection.said_bye = true;  // that says nothing of the peer
    return hang_up(key);
  }
  if ((events & EPOLLOUT) != 0 && !flush(connection)) return hear_out(key);
  constexpr int kPacketsPerTurn = 16;  // then others have their turn
  for (int i = 0; i < kPacketsPerTurn && receive(key); ++i) {
  }
}

bool Service::receive(ConnectionKey key) {
  Connection& connection = connections_.at(key);
  const Received received = connection.channel.receive(buffer_.all(), false);
  if (received.state == IoState::kAgain) return false;
  Outcome outcome = Outcome::kIllegal;
  if (received.state == IoState::kDone) {
    outcome = dispatch(key, buffer_.first(received.packet_bytes));
    if (outcome == Outcome::kServed) return true;
  }
  if (outcome == Outcome::kReplyLost) {
    TUTTI_LOG(options_.log, LogLevel::kInfo, "rank {} did not wait for its reply", connection.peer);
    hear_out(key);
    return false;
  }
  if (received.state != IoState::kClosed) {
    TUTTI_LOG(options_.log, LogLevel::kWarn,
              "rank {} sent an illegal packet; this rank closes the connection", connection.peer);
  }
  hang_up(key);
  return false;
}

Service::Outcome Service::dispatch(ConnectionKey key, std::span<const std::byte> packet) {
  const auto legal = [](bool is) { return is ? Outcome::kServed : Outcome::kIllegal; };
  Connection& connection = connections_.at(key);
  Reader reader(packet);
  const FrameHeader header = read_header(reader);
  if (!reader.ok()) return Outcome::kIllegal;
  switch (header.type) {
    case FrameType::kRequest: {
      if (connection.takes_nothing) return Outcome::kServed;
      if (connection.parked) return Outcome::kIllegal;
      const std::span<const std::byte> payload = reader.rest();
      const bool sent = answer(connection, {.kind = static_cast<RequestKind>(header.kind),
                                            .number = header.number,
                                            .payload = {payload.begin(), payload.end()}});
      return sent ? Outcome::kServed : Outcome::kReplyLost;
    }
    case FrameType::kPost: {
      const std::optional<Piece> piece = decode_piece(reader);
      return legal(piece && mailbox_.deposit(connection.peer, header.number, header.round, *piece));
    }
    case FrameType::kPostFailure:
      mailbox_.deposit_failure(connection.peer, header.number, header.round,
                               decode_error(reader, identity_.ranks));
      return Outcome::kServed;
    case FrameType::kBye:
      connection.said_bye = true;
      return Outcome::kServed;
    case FrameType::kWatch:
      connection.watched = true;
      if (leaving_) say_bye(connection);
      return Outcome::kServed;
    case FrameType::kNews:
      return legal(connection.watched && hear_news(header));
    default:
      return Outcome::kIllegal;
  }
}

bool Service::answer(Connection& connection, Parked request) {
  std::shared_ptr<const ControlPlane::WaitingHandler> handler;
  {
    const std::lock_guard lock(handlers_mutex_);
    const auto found = handlers_.find(request.kind);
    if (found != handlers_.end()) handler = found->second;
  }
  if (!handler) {
    connection.parked = std::move(request);
    return true;
  }
  FrameHeader header{.type = FrameType::kReply, .number = request.number};
  std::optional<Result<HandlerReply>> answer =
      (*handler)(Request{.from = connection.peer, .payload = request.payload});
  if (!answer) {
    connection.parked = std::move(request);
    return true;
  }
  Result<HandlerReply> reply = *std::move(answer);
  if (reply && reply->payload.size() > kMaxPayloadBytes) {
    reply = make_error(Code::kInternalError, "the reply is too long for a packet");
  }
  if (reply && reply->lent_fd >= 0 && !connection.channel.carries_descriptors()) {
    reply = make_error(Code::kNotSupported,
                       fmt::format("rank {} and rank {} are on different hosts: TCP cannot carry a "
                                   "descriptor, so they cannot share memory",
                                   identity_.self, connection.peer));
  }
  if (!reply) {
    header.kind = 1;
    return send(connection, encode_error(header, reply.error()), -1);
  }
  return send(connection, start_frame(header).raw(reply->payload).take(), reply->lent_fd);
}

bool Service::send(Connection& connection, std::vector<std::byte> packet, int lent_fd) {
  if (connection.backlog.empty()) {
    const IoState state = connection.channel.send(packet, lent_fd);
    const bool waits = state == IoState::kAgain || connection.channel.unsent();
    if (waits) loop_->modify(connection.token, EPOLLIN | EPOLLOUT);
    if (state != IoState::kAgain) return state == IoState::kDone;
  }
  if (connection.backlog.size() >= kMaxBacklog) return false;
  Outgoing outgoing{.packet = std::move(packet)};
  if (lent_fd >= 0) {
    outgoing.fd.reset(::fcntl(lent_fd, F_DUPFD_CLOEXEC, 0));
    if (!outgoing.fd) return false;
  }
  connection.backlog.push_back(std::move(outgoing));
  return true;
}

bool Service::flush(Connection& connection) {
  if (connection.channel.flush() != IoState::kDone) return false;
  while (!connection.backlog.empty() && !connection.channel.unsent()) {
    const Outgoing& next = connection.backlog.front();
    const IoState state = connection.channel.send(next.packet, next.fd.get());
    if (state == IoState::kAgain) return true;
    if (state != IoState::kDone) return false;
    connection.backlog.pop_front();
  }
  if (!connection.channel.unsent()) loop_->modify(connection.token, EPOLLIN);
  return true;
}

// Nothing can be sent to this peer. Where its time for an answer was over, it has said Bye before
// it closed the connection, and is well.
void Service::hear_out(ConnectionKey key) {
  constexpr int kMostPackets = 64;
  connections_.at(key).takes_nothing = true;
  for (int i = 0; i < kMostPackets && receive(key); ++i) {
  }
  if (connections_.contains(key)) hang_up(key);
}

void Service::hang_up(ConnectionKey key) {
  const auto found = connections_.find(key);
  const Rank peer = found->second.peer;
  const bool orderly = found->second.said_bye;
  // Its own process closed it, and would have said so: it has ended.
  if (found->second.watched && !orderly) dead_.push_back(peer);
  loop_->remove(found->second.token);
  connections_.erase(found);
  const bool has_another = std::ranges::any_of(
      connections_, [&](const auto& entry) { return entry.second.peer == peer; });
  if (!orderly && !has_another) mailbox_.source_gone(peer);
}

void Service::retry_parked(RequestKind kind) {
  std::vector<ConnectionKey> keys;
  for (const auto& [key, connection] : connections_) {
    if (connection.parked && connection.parked->kind == kind) keys.push_back(key);
  }
  for (const ConnectionKey key : keys) {
    Connection& connection = connections_.at(key);
    Parked request = std::move(*connection.parked);
    connection.parked.reset();
    if (!answer(connection, std::move(request))) hear_out(key);
  }
}

void Service::attend_meeting(Channel channel) {
  // std::function wants copyable captures; the owner travels in a shared_ptr.
  auto owner = std::make_shared<Channel>(std::move(channel));
  meeting_.store(Meeting::kBegun, std::memory_order_relaxed);
  loop_->post([this, owner] {
    const int fd = owner->fd();
    RootLink& root = roots_[fd];
    root.channel = std::move(*owner);
    root.token = loop_->add(fd, EPOLLIN, [this, fd](std::uint32_t) { hear_root(fd); });
  });
}

void Service::hear_root(int fd) {
  const Received received = roots_.at(fd).channel.receive(buffer_.all(), false);
  if (received.state == IoState::kAgain) return;
  const Meeting meeting = meeting_.load(std::memory_order_relaxed);
  Reader reader{buffer_.first(received.packet_bytes)};
  if (meeting == Meeting::kOver) {
    leave_root(fd);
  } else if (received.state == IoState::kDone && read_header(reader).type == FrameType::kRefused) {
    const Error error = decode_error(reader, identity_.ranks);
    mailbox_.fail(error);
    leave_root(fd);
    if (!roots_.empty())
      leave_roots(encode_error({.type = FrameType::kGiveUp}, as_remote(error, identity_.self)));
  } else {
    // Of who has met the others, that process may have left.
    if (meeting != Meeting::kMet)
      mailbox_.fail({Code::kRemoteError,
                     "the process that made the unique id ended before the job had met", kNoRank});
    leave_root(fd);
  }
}

void Service::finish_meeting() {
  if (meeting_.exchange(Meeting::kOver, std::memory_order_relaxed) != Meeting::kOver)
    loop_->post([this] { leave_roots(done_); });
}

void Service::give_up_meeting(const Error& error) {
  if (meeting_.exchange(Meeting::kOver, std::memory_order_relaxed) != Meeting::kOver)
    loop_->post([this, error] { leave_roots(encode_error({.type = FrameType::kGiveUp}, error)); });
}

void Service::leave_roots(std::span<const std::byte> last_word) noexcept {
  while (!roots_.empty()) {
    const auto root = roots_.begin();
    root->second.channel.send_last(last_word);
    leave_root(root->first);
  }
}

void Service::leave_root(int fd) {
  const auto root = roots_.find(fd);
  if (root->second.token != 0) loop_->remove(root->second.token);
  roots_.erase(root);
}

void Service::retry(RequestKind kind) {
  loop_->post([this, kind] { retry_parked(kind); });
}

bool Service::hear_news(const FrameHeader& header) {
  if (header.number >= static_cast<std::uint64_t>(identity_.ranks)) return false;
  const auto about = static_cast<Rank>(header.number);
  switch (static_cast<NewsKind>(header.kind)) {
    case NewsKind::kDied:
      dead_.push_back(about);
      return true;
    case NewsKind::kRevoked:
      hear_revoke(about);
      return true;
  }
  return false;
}

void Service::hear_revoke(Rank by) {
  if (std::exchange(heard_revoke_, true)) return;
  if (by != identity_.self) {
    const std::lock_guard lock(watch_mutex_);
    if (watching_ && on_revoke_) on_revoke_(by);
  }
  spread(NewsKind::kRevoked, by);
  watch_others();
}

// Neither end takes the end of this connection for a death from now on.
void Service::say_bye(Connection& connection) {
  if (!std::exchange(connection.said_bye, true)) connection.channel.send_last(bye_);
}

void Service::leave_watches() {
  loop_->post([this] {
    leaving_ = true;
    for (auto& [key, connection] : connections_)
      if (connection.watched) say_bye(connection);
  });
}

void Service::tell_revoke() {
  loop_->post([this] { hear_revoke(identity_.self); });
}

void Service::watch_revokes(std::function<void(Rank)> on_revoke) {
  const std::lock_guard lock(watch_mutex_);
  on_revoke_ = std::move(on_revoke);
}

// Tells the neighbours, which pass on what they had not heard. Connections that fail here are hung
// up when the loop comes to them.
void Service::spread(NewsKind kind, Rank about) {
  const FrameHeader news{.type = FrameType::kNews,
                         .kind = static_cast<std::uint16_t>(kind),
                         .number = static_cast<std::uint64_t>(about)};
  for (auto& [key, connection] : connections_) {
    if (!connection.watched || connection.said_bye || reported_dead_.contains(connection.peer))
      continue;
    const bool tcp = !connection.channel.carries_descriptors();
    // Sending would take the error that tells how the connection ended.
    if (tcp && ended_by_network(connection.channel.fd()))
      connection.said_bye = true;
    else
      static_cast<void>(send(connection, start_frame(news).take(), -1));
  }
}

void Service::watch(WatchPlan plan, std::function<bool(Rank)> on_death) {
  {
    const std::lock_guard lock(watch_mutex_);
    on_death_ = std::move(on_death);
    watching_ = true;
  }
  loop_->post([this, plan = std::move(plan)] {
    peer_watch_->start(plan.near, [this](Rank rank) { dead_.push_back(rank); });
    unwatched_ = plan.others;
  });
}

void Service::watch_closely() {
  loop_->post([this] { watch_others(); });
}

void Service::watch(Rank peer) {
  loop_->post([this, peer] {
    const auto found = std::ranges::find_if(unwatched_, [peer](const WatchTarget& target) {
      return std::ranges::find(target.ranks, peer) != target.ranks.end();
    });
    if (found == unwatched_.end()) return;
    const WatchTarget target = std::move(*found);
    unwatched_.erase(found);
    peer_watch_->add({target});
  });
}

// Where one has died others may have, among them those that would have told.
void Service::watch_others() { peer_watch_->add(std::exchange(unwatched_, {})); }

void Service::forget() {
  if (thread_ && std::this_thread::get_id() == thread_->get_id()) {
    watching_ = false;  // on_death runs on this thread and holds watch_mutex_
  } else {
    const std::lock_guard lock(watch_mutex_);
    watching_ = false;
  }
  loop_->post([this] {
    peer_watch_->stop();
    unwatched_.clear();
  });
}

}  // namespace tutti::control
