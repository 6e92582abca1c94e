// SPDX-License-Identifier: Apache-2.0
#include "comm/ongoing_call.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "board/faults.hpp"
#include "control/thread.hpp"

namespace tutti {
namespace {

// Whom a call has waited for so long is watched. Most waits are over by then.
constexpr std::int64_t kWatchNs = 20'000'000;
constexpr std::int64_t kMostAskPauseNs = 2'000'000'000;
// For so long after a peer has gone, what it said before may still come.
constexpr std::int64_t kLastWordNs = 1'000'000'000;
// A call that has waited this long looks whether its own thread is to blame.
constexpr std::int64_t kLookForGroupNs = 100'000'000;

// All ranks tell one story of a timeout; how long this one waits is its own configuration.
Error with_timeout(Error error, std::int64_t timeout_ns) {
  if (error.code == Code::kTimeout)
    error.message += fmt::format("; the timeout is {} s", static_cast<double>(timeout_ns) / 1e9);
  return error;
}

// `since_ns`: when it was first seen to be gone; 0: now.
bool may_yet_tell(std::int64_t& since_ns) {
  if (since_ns == 0) since_ns = now_ns();
  return now_ns() - since_ns < kLastWordNs;
}

}  // namespace

// This rank has no plan with all its connections. A peer is to blame only where it is gone; of one
// that is there this rank tells why no connection came about, and nobody is the culprit.
Error OngoingCall::unprepared(const Error& cause) {
  const Rank peer = cause.culprit != kNoRank ? cause.culprit : members_.rank();
  TUTTI_LOG(members_.log(), LogLevel::kWarn, "{}: {}", signature_.to_string(), cause.message);
  if (peer == members_.rank()) {
    members_.poison_as_failed(signature_);
    return cause;
  }
  if (cause.code == Code::kTimeout) return timed_out(peer);
  const bool gone = cause.code == Code::kRemoteError && diagnosis().is_gone(peer);
  if (disturbed()) return fault_error();  // the peer's word, or why it is gone
  const bool left = diagnosis().has_left(peer);
  Poison poison = diagnosis().failure_of(peer);
  if (left || !gone) poison.kind = left ? Poison::Kind::kLeft : Poison::Kind::kNoWay;
  if (left) poison.mine = diagnosis().missed_call();
  const Error error = members_.poison(poison, cause.message);
  if (left || gone) return error;
  return {cause.code, poison_error(poison, members_.peers(), cause.message).message, peer};
}

void OngoingCall::give_up_by_exception() {
  members_.poison_as_failed(signature_);
  give_up();
}

void OngoingCall::give_up() {
  done_ = true;
  if (!members_.of_this_process()) return;  // all that follows is the parent's
  note_moved();
  withdraw();
  if (transport_ != nullptr) transport_->take_back();
  members_.give_up();
}

Status OngoingCall::pump(bool silent) {
  if (transport_ == nullptr) return {};
  if (silent) transport_->hasten();
  Status moving = transport_->progress();
  if (!moving) members_.poison_as_failed(signature_);
  return moving;
}

Status pump_straight(Transport& transport, bool over, bool silent) {
  try {
    if (over || silent) transport.hasten();
    if (over) {
      TUTTI_TRY(transport.flush());
      if (transport.unflushed() == kNoRank) return {};
    }
    return transport.progress();
  } catch (const std::exception& exception) {
    return make_error(Code::kSystemError, exception.what());
  }
}

bool OngoingCall::block(std::int64_t ns) {
  const Rank peer = blocked_on();
  return peer != kNoRank && transport_->await(peer, ns);
}

bool OngoingCall::peer_shares_core() const {
  const Rank peer = blocked_on();
  if (peer == kNoRank) return false;
  board_.note_cpu();
  return board_.cpu_of(peer) == ::sched_getcpu();
}

Error OngoingCall::fault_error() {
  if (const auto own = own_fault()) return *own;
  // Another rank's word, or this one's of an earlier call. A poison that is claimed is published
  // within a few stores.
  for (int i = 0; i < 1000; ++i) {
    if (const auto error = members_.error()) {
      members_.set_error(*error);
      return *error;
    }
    ::sched_yield();
  }
  const Error error{Code::kRemoteError, "the communicator was aborted", kNoRank};
  members_.set_error(error);
  return error;
}

// Can this call no longer complete? After a death only what waits for the dead, or for a rank that
// has given up, is lost: the rest completes from what is on its way. Nobody waits for ever, since
// of all that wait for each other some rank waits for the dead one itself. A revoke after it, and
// every other poison, end everything.
bool OngoingCall::hopeless() const {
  if (members_.aborted()) return true;
  const auto poison = board_.read_poison();
  if (!poison) return false;  // none, or about to be published
  if (poison->kind != Poison::Kind::kDeath || board_.revoked()) return true;
  const auto lost = [&](Rank peer) {
    if (peer == kNoRank) return false;
    const RankState state = board_.state(peer);
    return peer == poison->culprit || state == RankState::kFailed || state == RankState::kLeft ||
           !transport_->health(peer) || members_.has_died(peer);
  };
  return lost(blocked_on()) || lost(suspect());
}

// A process that ends closes its connections, and says goodbye first where it ends in order. A
// connection that broke otherwise says nothing of the peer: its service thread is asked. One that
// holds, and a service that cannot be reached, is a network that is cut: that takes the timeout,
// or, where nothing comes from that host any more, as long as a silent one is given.
std::optional<Error> OngoingCall::lost_way(Rank peer, std::int64_t waited_ns) {
  Status health = transport_->health(peer);
  const bool left = transport_->has_left(peer);
  if (health && !left && (!members_.is_far(peer) || waited_ns < ask_after_ns_)) return std::nullopt;
  if (!members_.is_far(peer)) {
    // The board and its process tell of a rank of this host, only later than its connections.
    if (may_yet_tell(broken_since_ns_)) return std::nullopt;
  }
  ask_after_ns_ = std::min(std::max(2 * waited_ns, kFirstAskNs), waited_ns + kMostAskPauseNs);
  const Status asked = board_.ask(peer, signature_.operation, Deadline::in_ns(kMostAskNs));
  if (board_.poisoned()) return std::nullopt;  // looked at in the next round
  const bool answers = asked || asked.error().code != Code::kRemoteError;
  if (health && !asked) {
    transport_->give_up_if_silent(peer);
    health = transport_->health(peer);
  }
  if (health && !left) {
    if (answers || transport_->connected(peer)) {
      silent_since_ns_ = 0;
      return std::nullopt;
    }
    // It may have come, sent what this rank waits for, and left since: that is on its way.
    ask_after_ns_ = waited_ns + kFirstAskNs;
    if (may_yet_tell(silent_since_ns_)) return std::nullopt;
  }
  const std::string cause = !health  ? health.error().message
                            : !asked ? asked.error().message
                                     : "it has closed its connections";
  TUTTI_LOG(members_.log(), LogLevel::kWarn, "{}: {}", signature_.to_string(), cause);
  Poison poison = members_.death_of(peer);
  if (left)
    poison.kind = Poison::Kind::kLeft;
  else if (health)
    poison.kind = Poison::Kind::kFailure;  // it never connected, and nobody answers there
  else if (answers || health.error().code == Code::kTimeout)
    poison.kind = Poison::Kind::kCut;
  if (poison.kind != Poison::Kind::kDeath) poison.mine = signature_;
  if (left) poison.mine = diagnosis().missed_call();
  return members_.poison(poison, cause);
}

// The one who did not come is alive, as far as anybody knows; of one of another host that is what
// its service says.
Error OngoingCall::timed_out(Rank culprit) {
  const Poison poison = diagnosis().timeout_of(culprit);
  const Status asked = members_.is_far(culprit)
                           ? board_.ask(culprit, signature_.operation, Deadline::in_ns(kMostAskNs))
                           : Status();
  return with_timeout(members_.poison(poison, asked ? std::string() : asked.error().message),
                      members_.config().op_timeout_ns);
}

// Of all that wait for each other some rank waits for one that is dead itself.
void OngoingCall::watch(Rank peer) {
  if (peer == watched_[0] || peer == watched_[1]) return;
  watched_ = {peer, watched_[0]};
  members_.control().watch(peer);
}

// For other ranks, and for people who ask who waits for whom.
void OngoingCall::tell_wait(Rank peer, std::int64_t waited_ns) {
  WaitPlace at = place();
  at.since_ns = now_ns() - waited_ns;
  board_.waiting_for(peer, at);
  told_wait_ = peer != kNoRank;
}

void OngoingCall::note_moved() {
  ask_after_ns_ = kFirstAskNs;
  silent_since_ns_ = 0;
  if (!std::exchange(told_wait_, false)) return;
  board_.waiting_for(kNoRank);
}

std::optional<Error> OngoingCall::trouble_with(Rank peer, std::int64_t waited_ns, bool left,
                                               const std::optional<Poison>& differs) {
  if (auto error = lost_way(peer, waited_ns)) return error;
  if (differs) return members_.poison(*differs);
  if (!left) return std::nullopt;
  // What a peer has sent by a wire before it left may be on its way; its goodbye comes behind that.
  if (is_point_to_point(signature_.collective) && !transport_->shares_with(peer))
    return std::nullopt;
  if (const auto found = diagnosis().departed(peer)) return members_.poison(*found);
  return std::nullopt;
}

bool OngoingCall::is_cut_off(Rank peer) const {
  return !transport_->health(peer) || transport_->has_left(peer);
}

// The peer may wait for this rank's service to let it in. A call that is not late yet may have a
// slow peer, and the shortage an end.
Status OngoingCall::own_health() {
  Status health = members_.control().health();
  if (!health) members_.poison_as_failed(signature_);
  return health;
}

Status OngoingCall::look_around(std::int64_t waited_ns) {
  if (disturbed() && hopeless()) {
    // Messages that arrived since the last round may complete the operation.
    TUTTI_TRY_ASSIGN(const bool moved, advance());
    if (moved || done_) return {};
    return tl::unexpected(fault_error());
  }
  const Rank first = blocked_on(), suspected = suspect();
  tell_wait(suspected, waited_ns);
  if (first == kNoRank) return {};
  for (const Rank peer : {first, suspected}) {
    if (waited_ns >= kWatchNs) watch(peer);
    const bool cut = is_cut_off(peer), left = diagnosis().has_left(peer);
    const std::optional<Poison> differs = diagnosis().mismatch_with(peer);
    if (cut || left || differs) {
      // Messages that arrived before the connection broke may complete the call. And a peer that is
      // far ahead by now, so that the board has forgotten this call, may have sent them.
      TUTTI_TRY_ASSIGN(const bool moved, advance());
      if (moved || done_ || blocked_on() != first) return {};
    }
    // Gone only since: what it sent before is looked at first, in the next round.
    if (is_cut_off(peer) != cut || diagnosis().has_left(peer) != left) return {};
    if (const auto error = trouble_with(peer, waited_ns, left, differs))
      return tl::unexpected(*error);
    if (suspected == first) break;
  }
  if (waited_ns >= members_.config().warn_after_ns) TUTTI_TRY(own_health());
  if (waited_ns >= members_.config().op_timeout_ns)
    return tl::unexpected(timed_out(diagnosis().culprit_of_wait(suspected, true)));
  if (!warned_ && waited_ns >= members_.config().warn_after_ns) {
    warned_ = true;
    const Rank culprit = diagnosis().culprit_of_wait(suspected, false);
    TUTTI_LOG(members_.log(), LogLevel::kWarn, "{} has waited {} s for {}{}",
              signature_.to_string(), waited_ns / 1'000'000'000, members_.describe(culprit),
              diagnosis().is_stopped(culprit) ? ", which is stopped (SIGSTOP or a debugger)" : "");
  }
  return {};
}

Status OngoingCall::look_for_group(std::int64_t waited_ns) {
  if (looked_for_group_ || waited_ns < kLookForGroupNs) return {};
  looked_for_group_ = true;
  // Who is to blame takes a look at every process of the host.
  const auto is_neighbour = [&](const PeerInfo& info) {
    return info.rank != members_.rank() && members_.in_this_process(info.rank);
  };
  if (std::ranges::none_of(members_.peers(), is_neighbour)) return {};
  const Rank suspected = suspect();
  if (suspected == kNoRank) return {};
  const Rank peer = diagnosis().culprit_of_wait(suspected, false);
  if (peer == members_.rank() || members_.is_far(peer) ||
      members_.peer(peer).pid != members_.own().pid)
    return {};
  // Whom the other half's rank waits for may be out of date.
  const bool to_blame =
      is_point_to_point(signature_.collective) ? peer == suspected : !diagnosis().has_entered(peer);
  if (!to_blame) return {};
  if (!control::is_only_thread_of_program()) return {};
  members_.poison_as_failed(signature_);
  return make_error(
      Code::kInvalidUsage,
      fmt::format("{} waits for rank {}, which belongs to the same thread: put the calls of all "
                  "ranks of a thread between tuttiGroupStart() and tuttiGroupEnd()",
                  signature_.to_string(), peer));
}

}  // namespace tutti
