// SPDX-License-Identifier: Apache-2.0
#include "comm/diagnosis.hpp"

#include <algorithm>

#include "control/peer_watch.hpp"
#include "transports/connection.hpp"

namespace tutti {

bool are_alike(const OperationSignature& a, const OperationSignature& b) {
  OperationSignature planned = b;
  if (a.plan == 0 || b.plan == 0) planned.plan = a.plan;
  return planned == a;
}

Poison Diagnosis::of(Rank culprit, Poison::Kind kind, Code code) const {
  return {.code = code, .culprit = culprit, .reporter = reporter_, .kind = kind, .mine = mine_};
}

Poison Diagnosis::failure_of(Rank peer) const {
  return of(peer, Poison::Kind::kFailure, Code::kRemoteError);
}

Poison Diagnosis::timeout_of(Rank peer) const {
  return of(peer, is_stopped(peer) ? Poison::Kind::kStopped : Poison::Kind::kTimeout,
            Code::kTimeout);
}

Poison Diagnosis::mismatch(Rank peer, const OperationSignature& mine,
                           const OperationSignature& theirs) const {
  Poison poison = of(peer, Poison::Kind::kMismatch, Code::kInvalidUsage);
  poison.mine = mine;
  poison.theirs = theirs;
  return poison;
}

Rank Diagnosis::late() const {
  for (Rank peer = 0; peer < members_.ranks(); ++peer)
    if (!has_entered(peer)) return peer;
  return kNoRank;
}

bool Diagnosis::has_left(Rank peer) const {
  const RankState state = board_.state(peer);
  const bool left = state == RankState::kLeft || state == RankState::kLeaving;
  return left && (is_point_to_point(mine_.collective) || !has_entered(peer));
}

OperationSignature Diagnosis::missed_call() const {
  return is_point_to_point(mine_.collective) ? counterpart(mine_, reporter_) : mine_;
}

std::optional<Poison> Diagnosis::departed(Rank peer) const {
  if (!has_left(peer)) return std::nullopt;
  Poison poison = of(peer, Poison::Kind::kLeft, Code::kRemoteError);
  poison.mine = missed_call();
  return poison;
}

std::optional<Poison> Diagnosis::mismatch_with(Rank peer) const {
  if (is_point_to_point(mine_.collective)) return std::nullopt;
  const std::uint64_t last = board_.last_entered(peer);
  const std::uint64_t newest = std::min(last, mine_.operation);
  // The oldest first: what came after the call in which they differ is its consequence. A call may
  // be over though they differ, as two ranks are that both took themselves for the root.
  for (std::uint64_t operation = newest > kRememberedOperations ? newest - kRememberedOperations + 1
                                                                : 1;
       operation <= newest; ++operation) {
    const auto mine = operation == mine_.operation ? std::optional<OperationSignature>(mine_)
                                                   : board_.signature(reporter_, operation);
    if (!mine) continue;
    if (const auto theirs = board_.signature(peer, operation))
      if (!are_alike(*mine, *theirs)) return mismatch(peer, *mine, *theirs);
  }
  // So far ahead that the board has forgotten: it cannot have taken part in this operation, unless
  // its messages have come meanwhile.
  static_assert(kRememberedOperations > kMaxSlots);
  if (last >= mine_.operation + kRememberedOperations)
    if (const auto theirs = board_.signature(peer, last)) return mismatch(peer, mine_, *theirs);
  return std::nullopt;
}

std::optional<Poison> Diagnosis::mismatch_with(Rank peer, const OperationSignature& theirs) const {
  if (are_alike(mine_, theirs)) return std::nullopt;
  return mismatch(peer, mine_, theirs);
}

bool Diagnosis::is_stopped(Rank rank) const {
  // A pid of another host is somebody else here.
  return !members_.is_far(rank) && control::is_stopped(members_.peer(rank).pid);
}

Rank Diagnosis::culprit_of_wait(Rank suspect, bool ask) const {
  // A stopped rank keeps everybody waiting in the end, and says nothing of whom it waits for.
  for (const PeerInfo& info : members_.peers())
    if (is_stopped(info.rank)) return info.rank;
  Rank beyond = kNoRank;  // the first one of another host
  Rank rank = suspect;
  for (std::int32_t hops = 0; hops < members_.ranks(); ++hops) {
    if (members_.is_far(rank)) {
      if (beyond == kNoRank) beyond = rank;
      if (ask && !board_.ask(rank, mine_.operation, Deadline::in_ns(kMostAskNs))) return rank;
    }
    const bool inside = board_.last_left(rank) < board_.last_entered(rank);
    const Rank next = board_.waits_for(rank);
    if (!inside && !has_entered(rank) && next == kNoRank) return rank;
    if (next < 0 || next >= members_.ranks() || next == rank) return rank;
    if (next == reporter_) break;
    rank = next;
  }
  return beyond != kNoRank ? beyond : suspect;
}

bool Diagnosis::is_gone(Rank peer) const {
  const Deadline deadline = Deadline::in_ns(kMostAskNs);
  const Status asked = members_.is_far(peer)
                           ? board_.ask(peer, mine_.operation, deadline)
                           : members_.control()
                                 .call(peer, RequestKind::kExchangeState, {}, deadline)
                                 .map([](const Reply&) {});
  return !asked && asked.error().code == Code::kRemoteError;
}

}  // namespace tutti
