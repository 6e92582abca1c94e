// SPDX-License-Identifier: Apache-2.0
// The agreement of a shrink, without a socket or a thread: what ranks report to the one that
// decides, and what it answers.
//
// The lowest rank that is neither excluded nor gone decides. An attempt goes through three answers:
// kJoin (the members, once every living rank has reported), kPrepare (once every member has joined
// and lives), kCommit (once every living member has reported that it is prepared). A rank succeeds
// with kCommit alone. If the deciding rank ends, the next one collects the reports of all that live
// and goes on: it commits where any rank is prepared, tries again where some have joined.
//
// Why no two survivors differ: kCommit is given only when every living member is prepared. A rank
// that decides after that is prepared itself, so it can only commit; and as long as no rank has
// committed, both outcomes are possible. It needs that a rank is taken for gone only when its
// process has ended or has closed the old job (the network's silence is a timeout, an error).
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "control/control_plane.hpp"

namespace tutti {

// Holds the members of a new job, in the order of its ranks.
struct Members {
  control::SessionKey key;
  std::vector<ChildMember> list;
};

// How far a rank is with its last attempt.
enum class ShrinkPhase : std::uint8_t {
  kNew,       // not in it, or no more: it waits for the next one
  kJoined,    // in its communicator
  kPrepared,  // and knows that all members are
};

struct ShrinkReport {
  std::uint64_t attempt = 0;  // the last one that this rank was in; 0: none
  ShrinkPhase phase = ShrinkPhase::kNew;
  bool ready = false;          // kNew: it can take part
  bool late = false;           // its time is over: it asks whether there is anything to wait for
  std::uint64_t excluded = 0;  // hash_ranks() of its list
  std::uint32_t first = 0;     // of the members to be answered; a packet may not hold all
  ServiceAddress address{};    // kNew: where its part of the next attempt listens
  std::vector<Rank> gone{};    // ranks that it found so
};

enum class ShrinkVerdict : std::uint8_t {
  kJoin,
  kPrepare,
  kCommit,
  kAgain,   // the attempt is given up: leave what was joined
  kWait,    // late: the deciding rank has come, and answers within its own time
  kAbsent,  // late: it has not
  kExcluded,
  kFailed,
};

struct ShrinkAnswer {
  ShrinkVerdict verdict = ShrinkVerdict::kFailed;
  std::uint64_t attempt = 0;
  std::uint32_t ranks = 0;  // kJoin: of all members; those from the report's `first` on follow
  Members members{};
  Error error{};  // kFailed
};

[[nodiscard]] std::uint64_t hash_ranks(std::span<const Rank> ranks);
[[nodiscard]] std::vector<std::byte> encode(const ShrinkReport& report);
[[nodiscard]] std::vector<std::byte> encode(const ShrinkAnswer& answer);
// The bytes may be anything: returns nullopt if they are not from a job of so many ranks.
[[nodiscard]] std::optional<ShrinkReport> decode_report(std::span<const std::byte> bytes,
                                                        std::int32_t ranks);
[[nodiscard]] std::optional<ShrinkAnswer> decode_answer(std::span<const std::byte> bytes,
                                                        std::int32_t ranks);

class ShrinkDecision {
 public:
  ShrinkDecision(Rank self, std::vector<PeerInfo> peers) : self_(self), peers_(std::move(peers)) {}

  // This rank has come to shrink; or left, with what others are told of it.
  void open(std::span<const Rank> excluded);
  void close(const std::optional<Error>& failure);
  // Returns the answer to a rank's report; nullopt: the rank has to wait.
  [[nodiscard]] std::optional<ShrinkAnswer> hear(Rank from, const ShrinkReport& report);
  // This rank was told the members of an attempt; and that it has succeeded.
  void enter(std::uint64_t attempt, const Members& members);
  void commit(std::uint64_t attempt) { committed_ = attempt; }
  void mark_gone(Rank rank) { gone_.insert(rank); }
  [[nodiscard]] bool is_gone(Rank rank) const { return gone_.contains(rank); }
  [[nodiscard]] const std::set<Rank>& gone() const { return gone_; }

  // The deciding rank. Something that ends the shrink for all?
  [[nodiscard]] std::optional<Error> disagreement() const;
  // The first of those that live that has yet to report; kNoRank: none.
  [[nodiscard]] Rank missing(std::span<const Rank> living) const;
  // The next step, once none is missing.
  void decide(std::span<const Rank> living);
  void fail(const Error& error) { failure_ = error; }

 private:
  enum class Stage : std::uint8_t { kCollecting, kJoining, kPreparing, kAgain };

  [[nodiscard]] bool is_to_hear_of_failure(Rank from, const ShrinkReport& report);
  [[nodiscard]] std::optional<ShrinkAnswer> answer_to(Rank from, const ShrinkReport& report) const;
  [[nodiscard]] ShrinkAnswer page(std::size_t first) const;
  [[nodiscard]] bool all_members_in(std::span<const Rank> living) const;

  const Rank self_;
  const std::vector<PeerInfo> peers_;
  bool open_ = false;
  std::vector<Rank> excluded_;
  std::map<Rank, ShrinkReport> reports_;  // those without an answer
  std::set<Rank> gone_;
  Stage stage_ = Stage::kCollecting;
  std::uint64_t attempt_ = 0;    // of the stage
  std::uint64_t committed_ = 0;  // the last one; stays when this rank has left
  Members members_;
  std::uint64_t members_attempt_ = 0;
  std::set<Rank> left_out_;  // came too late for an attempt that is committed
  std::optional<Error> failure_;
  // Each rank is told of the failure once, by the address of the call that asked; and again where
  // that call asks again, since the answer may have come when it no longer waited.
  std::map<Rank, ServiceAddress> told_;
};

}  // namespace tutti
