// SPDX-License-Identifier: Apache-2.0
// The meeting of a job, at the process that made the unique id.
//
// Each rank checks in with who and where it is; when all have, each is told only the addresses that
// it needs for the exchange, and the root stays until each has ended another exchange or watches
// the others: a rank that has all records would not learn otherwise why one without them gave up.
// Anything that makes the meeting impossible is told to every rank that came or comes: a doubled
// rank, ranks that disagree on their number, a rank that dies or cannot come, the first deadline to
// pass (with the names of the ranks that did not come). Then it is over; also when nobody comes for
// the time that an id waits.
//
// Where a job has several ids, a root has a part of its ranks, and root 0 also the other parts'
// leaders (division.hpp), who learn the leaders' addresses from it. Which of them it is, ranks tell
// it when they check in: the process that makes an id does not know.
//
// All roots of a process are served by one thread, behind one Unix socket and one TCP socket for
// each interface (root_registry.cpp): a hello names the session, and so the root. The thread and
// the sockets are there while a root is. It ends with the process (static destructors wait for it),
// and in a forked child it does not exist.
//
// A Root is used on that thread alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "control/lobby.hpp"
#include "control/messages.hpp"
#include "control/unique_id.hpp"

namespace tutti::control {

class Root {
 public:
  // The longest that a rank may say it has left.
  static constexpr std::int64_t kLongestStayNs = 3'600'000'000'000;
  // How long a root whose job has failed still tells the reason to ranks that come late.
  static constexpr std::int64_t kLingerNs = 10'000'000'000;
  static constexpr std::int64_t kCheckInNs = Lobby::kHandshakeNs;
  // How long after the ranks' deadline a root that has met waits for what the others may have to
  // tell of ranks that did not come to them.
  static constexpr std::int64_t kOtherRootsNs = 1'000'000'000;

  using Doors = std::vector<std::shared_ptr<Lobby>>;

  // Ranks come through `doors`; others may share them. Over if none has come after `idle_ns`.
  Root(EventLoop& loop, const SessionKey& key, const Log& log, Doors doors, std::int64_t idle_ns);
  ~Root();
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  [[nodiscard]] const SessionKey& key() const { return key_; }
  // A member that came through a door.
  void admit(Channel channel, const Claim& claim);
  // A rank of this process cannot come.
  void call_off(Rank rank, std::int32_t ranks, const Error& error);
  void stop() { phase_ = Phase::kOver; }
  // Nothing is left to do.
  [[nodiscard]] bool over() const { return phase_ == Phase::kOver; }
  void tick(std::int64_t at_ns);
  // When tick() has something to do at the latest.
  [[nodiscard]] std::int64_t next_tick_ns() const;

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

  void receive(ConnectionKey key);
  void check_in(ConnectionKey key, CheckIn check_in);
  void meet();
  [[nodiscard]] std::optional<Error> object_to(const CheckIn& check_in, const Claim& claim) const;
  [[nodiscard]] bool expects(Rank rank) const;
  [[nodiscard]] std::size_t expected() const;
  void finish(Rank rank);
  void leave(ConnectionKey key, const char* how);
  void fail(Error error);
  void refuse(ConnectionKey key);
  void hang_up(ConnectionKey key);
  void check_linger();
  [[nodiscard]] std::int64_t deadline_of(const Attendee& attendee) const;
  [[nodiscard]] Error describe_absence() const;

  EventLoop& loop_;
  const SessionKey key_;
  const Log log_;
  const Doors doors_;                   // a flood at one does not reach the other
  std::uint64_t strangers_before_ = 0;  // of other ids, at these doors
  Phase phase_ = Phase::kGathering;
  std::int32_t ranks_ = 0;         // 0: nobody came yet
  Rank first_ = kNoRank;           // who said so
  std::optional<RootOfJob> self_;  // the same one; nullopt: nobody
  std::int64_t give_up_ns_ = 0;    // kGathering: idle; kFailed: end of lingering
  ConnectionKey next_key_ = 1;
  std::map<ConnectionKey, Connection> connections_;
  std::map<Rank, Attendee> attendees_;
  std::size_t done_count_ = 0;
  std::optional<Error> failure_;
  std::set<Rank> told_;  // of the failure
};

// Starts a root and returns its id. Reached over a Unix socket and, where there is a network
// interface, over TCP; ids of a process share both. `interfaces`: of RootOptions, settled.
struct RootSetup {
  Log log = Log();
  std::string interfaces{};
  std::int64_t idle_ns = 60'000'000'000;  // how long the id waits for its first rank
  ListenKind kind = ListenKind::kAny;
};
[[nodiscard]] Result<UniqueId> start_root(const RootSetup& setup);
// Starts one for an id that was agreed on.
[[nodiscard]] Status start_agreed_root(const IdContent& content, const RootSetup& setup);
// The addresses of an agreed root's host, for whom listens and for whom comes. A name that means
// only the loopback here, and is not "localhost", means the interface's address: /etc/hosts often
// gives a host's own name so. Errors: kRemoteError (the name is not known), kInvalidArgument.
[[nodiscard]] Result<std::vector<TcpAddress>> find_agreed(const std::string& tcp,
                                                          std::string_view interfaces);
// Ends the root of this session if it lives in this process. For jobs of one rank, which need none.
// Any thread, never blocks.
void retire_root(const SessionId& session);
// Ends the meeting of this session, if its root lives in this process: `rank` of `ranks` cannot
// come, and `error` says why. Any thread, never blocks.
void call_off(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error);
// As call_off(), and nobody is told who comes later: the root ends at once.
void abandon_root(const SessionId& session, Rank rank, std::int32_t ranks, const Error& error);
// Waits until no root of this process is left, and its thread is gone. False: `deadline` passed.
[[nodiscard]] bool wait_for_roots(Deadline deadline);

}  // namespace tutti::control
