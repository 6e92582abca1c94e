// SPDX-License-Identifier: Apache-2.0
// Who is to blame for a call that cannot go on. One set of rules for calls on host memory and on
// devices: read off the status page, which ranks of other hosts are asked for.
//
// What is found is a Poison for the caller to spread. Any thread that may use the membership.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/membership.hpp"

namespace tutti {

// How long a rank of another host may take to answer. The one that asks makes no progress
// meanwhile.
inline constexpr std::int64_t kMostAskNs = 500'000'000;

// Do two signatures name the same call? A rank without a plan, for want of connections or memory,
// has called the same and says so itself: no plan is like any.
[[nodiscard]] bool are_alike(const OperationSignature& a, const OperationSignature& b);

// Of one call, `mine`, of the rank `reporter` (another of this process, of a job on devices). One
// point to point has no number: what a peer has called of that kind is not on the board.
class Diagnosis {
 public:
  Diagnosis(const Membership& members, const OperationSignature& mine)
      : Diagnosis(members, mine, members.rank()) {}
  Diagnosis(const Membership& members, const OperationSignature& mine, Rank reporter)
      : members_(members), board_(members.board()), mine_(mine), reporter_(reporter) {}

  // The lowest rank that has not made this call; kNoRank: all have.
  [[nodiscard]] Rank late() const;
  [[nodiscard]] bool has_entered(Rank peer) const {
    return board_.last_entered(peer) >= mine_.operation;
  }
  // Has the peer said goodbye without this call? It will never come.
  [[nodiscard]] bool has_left(Rank peer) const;
  [[nodiscard]] std::optional<Poison> departed(Rank peer) const;
  // What a peer that left did not call: the same, or point to point the other half.
  [[nodiscard]] OperationSignature missed_call() const;

  // Do the peer's calls differ from this rank's? All that the board remembers of both are compared,
  // up to this one, and the first that differs is told: a call may be over at ranks that differ,
  // where one had nothing to send or both took themselves for the root.
  [[nodiscard]] std::optional<Poison> mismatch_with(Rank peer) const;
  // The same where the peer's call is known.
  [[nodiscard]] std::optional<Poison> mismatch_with(Rank peer,
                                                    const OperationSignature& theirs) const;

  // Is the process stopped, by SIGSTOP or a debugger? False for ranks of other hosts.
  [[nodiscard]] bool is_stopped(Rank rank) const;
  // Follows who waits for whom from `suspect` to the rank that holds everybody up: one that is in
  // no call and has not come, that waits for nobody, or that cannot be asked. A rank that has not
  // come because an earlier call still waits there is not to blame. Ranks that wait for each other
  // in a circle miss a message that got lost, so it was lost between hosts: a rank of another host
  // is named then. `ask`: ranks of other hosts tell what they do now.
  [[nodiscard]] Rank culprit_of_wait(Rank suspect, bool ask) const;

  [[nodiscard]] Poison failure_of(Rank peer) const;
  [[nodiscard]] Poison timeout_of(Rank peer) const;
  // Does nobody listen any more where the peer's service did? Asks it.
  [[nodiscard]] bool is_gone(Rank peer) const;

 private:
  [[nodiscard]] Poison mismatch(Rank peer, const OperationSignature& mine,
                                const OperationSignature& theirs) const;
  [[nodiscard]] Poison of(Rank culprit, Poison::Kind kind, Code code) const;

  const Membership& members_;
  Board& board_;
  const OperationSignature mine_;
  const Rank reporter_;
};

}  // namespace tutti
