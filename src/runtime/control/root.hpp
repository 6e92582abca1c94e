// The meeting point of a job: a thread in the process that made the unique id.
//
// Each rank checks in with who and where it is; when all have, each is told only the addresses that
// it needs for the log-step exchange, and the root stays until all have finished that. Anything
// that makes the meeting impossible is told to every rank that came or comes: a doubled rank, ranks
// that disagree on their number, a rank that dies, the first deadline to pass (with the names of
// the ranks that did not come). Then the thread ends. Also when nobody comes for kIdleNs, when the
// process exits (its static destructors wait for the thread), and in a forked child it does not
// exist.
//
// Everything but create, retire and the waiting runs on the root's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "runtime/control/lobby.hpp"
#include "runtime/control/messages.hpp"
#include "runtime/control/unique_id.hpp"

namespace tutti::control {

class Root {
 public:
  static constexpr std::int64_t kIdleNs = 3'600'000'000'000;
  // How long a root whose job has failed still tells the reason to ranks that come late.
  static constexpr std::int64_t kLingerNs = 10'000'000'000;
  static constexpr std::int64_t kCheckInNs = Lobby::kHandshakeNs;

  // Listens at all of them.
  [[nodiscard]] static Result<std::shared_ptr<Root>> create(const SessionKey& key, const Log& log,
                                                            std::vector<Listener> listeners);

  // The thread's life. Returns when the root has nothing left to do, or after stop().
  void run();
  void stop();  // any thread
  // A rank of this process cannot come. Any thread.
  void call_off(Rank rank, std::int32_t ranks, const Error& error);

 private:
  enum class Phase { kGathering, kMet, kFailed, kOver };
  struct Connection {
    Channel channel;
    EventLoop::Token token = 0;
    Claim claim;
    std::int64_t check_in_by_ns = 0;
    bool checked_in = false;
  };
  using ConnectionKey = std::uint64_t;
  struct Attendee {
    Member member;
    ConnectionKey connection = 0;
    std::int64_t deadline_ns = 0;
    bool done = false;
  };

  Root() = default;
  void admit(Channel channel, const Claim& claim);
  void receive(ConnectionKey key);
  void check_in(ConnectionKey key, CheckIn check_in);
  void meet();
  [[nodiscard]] std::optional<Error> find_unreachable() const;
  void finish(Rank rank);
  void leave(ConnectionKey key, const char* how);
  void fail(Error error);
  void refuse(ConnectionKey key);
  void hang_up(ConnectionKey key);
  void tick();
  void check_linger();
  [[nodiscard]] Error describe_absence() const;
  [[nodiscard]] std::int64_t next_tick_ns() const;

  std::unique_ptr<EventLoop> loop_;
  std::vector<std::unique_ptr<Lobby>> lobbies_;  // a flood at one does not reach the other
  Log log_;
  Phase phase_ = Phase::kGathering;
  std::int32_t ranks_ = 0;       // 0: nobody came yet
  Rank first_ = kNoRank;         // who said so
  std::int64_t give_up_ns_ = 0;  // kGathering: idle; kFailed: end of lingering
  ConnectionKey next_key_ = 1;
  std::map<ConnectionKey, Connection> connections_;
  std::map<Rank, Attendee> attendees_;
  std::size_t done_count_ = 0;
  std::optional<Error> failure_;
  std::set<Rank> told_;  // of the failure
};

// Starts a root on a thread of its own and returns its id. Listens on a Unix socket and, where
// there is a network interface, on TCP. `interfaces`: of RootOptions, settled.
[[nodiscard]] Result<UniqueId> start_root(const Log& log, std::string_view interfaces,
                                          ListenKind kind = ListenKind::kAny);
// Starts one for an id that was agreed on.
[[nodiscard]] Status start_agreed_root(const IdContent& content, const Log& log,
                                       std::string_view interfaces);
// The addresses of an agreed root's host, for whom listens and for whom comes. A name that means
// only the loopback here, and is not "localhost", means the interface's address: /etc/hosts often
// gives a host's own name so. Errors: kRemoteError (the name is not known), kInvalidArgument.
[[nodiscard]] Result<std::vector<TcpAddress>> find_agreed(const std::string& tcp,
                                                          std::string_view interfaces);
// Ends the root of this session if it lives in this process. For jobs of one rank, which need none.
void retire_root(const SessionId& session);
// Ends the meeting of this session, if its root lives in this process: `rank` of `ranks` cannot
// come, and `error` says why. Any thread, never blocks.
void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error);
// Waits until no root of this process is left, and its threads are gone. False: `deadline` passed.
[[nodiscard]] bool wait_for_roots(Deadline deadline);

}  // namespace tutti::control
