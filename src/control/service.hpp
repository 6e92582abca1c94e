// SPDX-License-Identifier: Apache-2.0
// A rank's service thread: lets peers in, answers their requests, takes in their messages, watches
// their processes.
//
// It never waits on one peer: all sockets are non-blocking, a reply that does not fit waits in a
// bounded queue of its connection, a request for a kind that has no handler yet is parked until the
// handler comes. A peer that breaks the protocol loses its connection and nothing else.
// The public functions may be called from any thread; everything private runs on the service's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "control/control_plane.hpp"
#include "control/lobby.hpp"
#include "control/mailbox.hpp"
#include "control/messages.hpp"
#include "control/peer_watch.hpp"

namespace tutti::control {

class Service {
 public:
  static constexpr std::size_t kMaxConnectionsPerPeer = 4;  // an honest peer has one
  static constexpr std::size_t kMaxBacklog = 4;             // replies that wait for room
  static constexpr int kMaxSettleTurns = 16;  // of the loop, between a death and its notice

  struct Options {
    Log log = Log();
    WatchMode watch_mode = WatchMode::kPidfd;
    ListenKind listen_kind = ListenKind::kAny;
    std::optional<TcpAddress> tcp_at{};  // listen there, too
  };
  // Holds the peers that may connect, and the identity with which this rank answers.
  struct Identity {
    SessionKey key;
    Rank self = kNoRank;
    std::int32_t ranks = 0;
  };
  // Listens; those who connect wait until let_in().
  [[nodiscard]] static Result<std::unique_ptr<Service>> start(const Options& options);
  ~Service() { stop(); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const std::string& tcp_address() const { return tcp_address_; }  // empty: none
  [[nodiscard]] Mailbox& mailbox() { return mailbox_; }
  // Once. A failure of the service fails the mailbox.
  void let_in(const Identity& identity);
  void serve(RequestKind kind, ControlPlane::WaitingHandler handler);
  // Takes over the connection to a root until the meeting is finished: if the root reports a
  // failure, or dies before this rank has met the others, the mailbox fails.
  void attend_meeting(Channel channel);
  // This rank has met the others. It stays with the roots, which may still tell it why a rank that
  // has not gave up.
  void note_met() { meeting_.store(Meeting::kMet, std::memory_order_relaxed); }
  // Tells the roots that this rank needs them no longer, as stop() does once it has met.
  void finish_meeting();
  // Tells the roots why this rank cannot take part.
  void give_up_meeting(const Error& error);
  // May a root still have something to tell?
  [[nodiscard]] bool attends_meeting() const {
    const Meeting meeting = meeting_.load(std::memory_order_relaxed);
    return meeting == Meeting::kBegun || meeting == Meeting::kMet;
  }
  // `on_death`: once a rank; true where the others are to be told.
  void watch(WatchPlan plan, std::function<bool(Rank)> on_death);
  void watch_closely();
  void watch(Rank peer);
  // Takes over a connection on which Watch was sent: its end is the peer's death, and both ends
  // tell each other news.
  void add_watch(Rank peer, Channel channel);
  void leave_watches();
  // News of this rank. Told once.
  void tell_revoke();
  void watch_revokes(std::function<void(Rank)> on_revoke);
  // Handles what waits for an answer of this kind again.
  void retry(RequestKind kind);
  // No on_death begins after this has returned (unless called by on_death itself).
  void forget();
  // As ControlPlane's.
  void look_when(std::function<std::int64_t()> look);
  void look_soon();
  [[nodiscard]] Status health() const;  // as ControlPlane's
  // Ends the thread and closes everything. In a forked child: only forgets it.
  void stop();

 private:
  struct Outgoing {
    std::vector<std::byte> packet;
    UniqueFd fd{};
  };
  struct Parked {
    RequestKind kind;
    std::uint64_t number;
    std::vector<std::byte> payload;
  };
  struct Connection {
    Channel channel;
    EventLoop::Token token = 0;
    Rank peer = kNoRank;
    bool said_bye = false;
    bool watched = false;
    bool takes_nothing = false;  // a packet for it was lost: it is read until its end
    std::deque<Outgoing> backlog{};
    std::optional<Parked> parked{};
  };
  using ConnectionKey = std::uint64_t;  // ascending, so the oldest comes first

  explicit Service(const Options& options) : options_(options) {}
  [[nodiscard]] Status open();
  void run();
  void turn();
  [[nodiscard]] Status open_lobby(Listener listener);
  void open_lobbies();
  void note_starved(std::int64_t at_ns);
  void admit(Channel channel, const Claim& claim);
  void on_event(ConnectionKey key, std::uint32_t events);
  [[nodiscard]] bool receive(ConnectionKey key);  // false: nothing more now
  enum class Outcome { kServed, kIllegal, kReplyLost };
  [[nodiscard]] Outcome dispatch(ConnectionKey key, std::span<const std::byte> packet);
  [[nodiscard]] bool answer(Connection& connection, Parked request);
  [[nodiscard]] bool send(Connection& connection, std::vector<std::byte> packet, int lent_fd);
  [[nodiscard]] bool flush(Connection& connection);
  void hear_out(ConnectionKey key);
  void hang_up(ConnectionKey key);
  [[nodiscard]] ConnectionKey keep(Channel channel, Rank peer, bool watched);
  void retry_parked(RequestKind kind);
  [[nodiscard]] bool hear_news(const FrameHeader& header);
  void hear_revoke(Rank by);
  void watch_others();
  void spread(NewsKind kind, Rank about);
  void say_bye(Connection& connection);
  void hear_root(int fd);
  void leave_root(int fd);
  void leave_roots(std::span<const std::byte> last_word) noexcept;
  void settle_deaths();
  void look(std::int64_t at_ns);

  const Options options_;
  std::unique_ptr<EventLoop> loop_;
  Identity identity_;                            // the default until let_in()
  std::vector<Listener> listeners_;              // until let_in()
  std::vector<std::unique_ptr<Lobby>> lobbies_;  // a flood at one does not reach the other
  std::unique_ptr<PeerWatch> peer_watch_;
  std::vector<WatchTarget> unwatched_;  // until something has happened
  std::string address_;
  std::string tcp_address_;
  Mailbox mailbox_;
  std::atomic<int> starved_errno_ = 0;  // 0: who knocks is let in
  std::unique_ptr<std::thread> thread_;
  std::uint64_t generation_ = fork_generation();
  bool running_ = true;
  enum class Meeting : std::uint8_t { kNone, kBegun, kMet, kOver };
  std::atomic<Meeting> meeting_ = Meeting::kNone;  // relaxed: what follows from it is posted

  std::mutex handlers_mutex_;
  // Guarded by handlers_mutex_.
  std::map<RequestKind, std::shared_ptr<const ControlPlane::WaitingHandler>> handlers_;

  std::mutex watch_mutex_;
  std::function<bool(Rank)> on_death_;   // guarded by watch_mutex_, held while it runs
  std::function<void(Rank)> on_revoke_;  // the same
  bool watching_ = false;                // guarded by watch_mutex_

  std::mutex look_mutex_;
  std::function<std::int64_t()> look_;     // guarded by look_mutex_, held while it runs
  std::int64_t next_look_ns_ = INT64_MAX;  // service thread

  std::vector<Rank> dead_;  // noticed, not yet reported
  std::set<Rank> reported_dead_;
  bool heard_revoke_ = false;
  bool leaving_ = false;  // who begins to watch this rank hears so
  ConnectionKey next_key_ = 1;
  std::map<ConnectionKey, Connection> connections_;
  PacketBuffer buffer_;
  const std::vector<std::byte> bye_ = start_frame({.type = FrameType::kBye}).take();
  const std::vector<std::byte> done_ = start_frame({.type = FrameType::kDone}).take();
  struct RootLink {
    Channel channel;
    EventLoop::Token token = 0;
  };
  std::map<int, RootLink> roots_;  // by descriptor; one, or two for a leader (division.hpp)
};

}  // namespace tutti::control
