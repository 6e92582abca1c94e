// SPDX-License-Identifier: Apache-2.0
#include "comm/operation.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "board/faults.hpp"
#include "control/thread.hpp"
#include "kernels/reduce_copy.hpp"

namespace tutti {
namespace {

constexpr std::int64_t kMostAskPauseNs = 2'000'000'000;
constexpr std::int64_t kNearWordNs = 1'000'000'000;
// A call that has waited this long looks whether its own thread is to blame.
constexpr std::int64_t kLookForGroupNs = 100'000'000;

// All ranks tell one story of a timeout; how long this one waits is its own configuration.
Error with_timeout(Error error, std::int64_t timeout_ns) {
  if (error.code == Code::kTimeout)
    error.message += fmt::format("; the timeout is {} s", static_cast<double>(timeout_ns) / 1e9);
  return error;
}

}  // namespace

Operation::Operation(Communicator& communicator, const Call& call)
    : communicator_(communicator),
      members_(communicator.members()),
      board_(members_.board()),
      plans_(communicator.plans()),
      transport_(communicator.transport()),
      counts_(communicator.counts()),
      call_(call) {}

Status Operation::start() {
  TUTTI_TRY(members_.open_to_calls());
  if (disturbed()) return tl::unexpected(fault_error());
  scale_input();
  const bool reduces = call_.info().reduces();
  const ReduceCopyFn kernel =
      reduces ? reduce_copy_kernel(call_.type, call_.op) : copy_kernel(element_bytes(call_.type));
  Result<BoundPlan*> plan = nullptr;
  signature_ = {.operation = counts_.issued + 1,
                .collective = call_.collective,
                .type = call_.type,
                .op = call_.op,
                .root = call_.root,
                .count = call_.count};
  if (call_.count > 0) {
    signature_.in_windows = communicator_.in_windows(call_);
    plan = plans_.plan_for(call_, signature_.in_windows);
    // An error that every rank finds equally, before anything was sent.
    if (!plan &&
        (plan.error().code == Code::kNotSupported || plan.error().code == Code::kInvalidArgument))
      return tl::unexpected(plan.error());
    if (plan) signature_.plan = (*plan)->plan.id;
  }
  ++counts_.issued;
  board_.enter(signature_);
  if (!plan) {
    if (disturbed()) return tl::unexpected(fault_error());
    // The others have entered, or will: they must not wait for this rank.
    return tl::unexpected(unprepared(plan.error()));
  }
  plan_ = *plan;
  if (plan_ == nullptr) {
    finish();
    return {};
  }
  gate_ = plans_.use(*plan_, signature_.operation);
  gated_ = plan_->gate_passed < gate_;
  const Rank rank = members_.rank();
  const std::int32_t ranks = members_.ranks();
  const bool average = reduces && call_.op == ReduceOp::kAvg;
  return plan_->executor->start(
      {.call = &call_,
       .kernel = kernel,
       .average_over = average ? static_cast<std::uint32_t>(ranks) : 0,
       .operation = signature_.operation,
       .signature = signature_.hash(),
       .nontemporal_output = call_.data_bytes(ranks) >= communicator_.nt_bytes(),
       .in_windows = signature_.in_windows,
       .lend_input = call_.has_input(rank) && may_lend(call_.input, call_.input_bytes(ranks)),
       .lend_output = call_.has_output(rank) && may_lend(call_.output, call_.output_bytes(ranks))});
}

// Here, since an operation before it may have written its input.
void Operation::scale_input() {
  const std::int32_t ranks = members_.ranks();
  if (!call_.pre_multiplied || call_.count == 0 || !call_.has_input(members_.rank())) return;
  scaled_input_ = scaled(*call_.pre_multiplied, call_.input,
                         call_.input_bytes(ranks) / element_bytes(call_.type));
  call_.input = scaled_input_.get();
}

bool Operation::may_lend(const void* memory, std::uint64_t bytes) const {
  return transport_ != nullptr &&
         transport_->may_lend({static_cast<const std::byte*>(memory), bytes});
}

// This rank has no plan with all its connections. A peer is to blame only where it is gone; of one
// that is there this rank tells why no connection came about, and nobody is the culprit.
Error Operation::unprepared(const Error& cause) {
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
  const Error error = members_.poison(poison, cause.message);
  if (left || gone) return error;
  return {cause.code, poison_error(poison, members_.peers(), cause.message).message, peer};
}

bool Operation::peer_shares_core() const {
  const Rank peer = blocked_on();
  if (peer == kNoRank) return false;
  board_.note_cpu();
  return board_.cpu_of(peer) == ::sched_getcpu();
}

// The memory that this plan writes may still hold unread messages of operations under another
// carve: wait until its owners are done with those.
bool Operation::gate_open() {
  for (const ConnectionSpec& spec : plan_->plan.sends)
    if (transport_->done_of(spec.destination) < gate_) {
      gate_peer_ = spec.destination;
      return false;
    }
  gate_peer_ = kNoRank;
  gated_ = false;
  plan_->gate_passed = gate_;
  return true;
}

Result<bool> Operation::advance() {
  const bool moved = (!gated_ || gate_open()) && plan_->executor->advance();
  if (moved) ask_after_ns_ = kFirstAskNs;
  if (moved && told_wait_) {
    told_wait_ = false;
    board_.waiting_for(kNoRank);
  }
  if (plan_->executor->fault() != HostExecutor::Fault::kNone) return tl::unexpected(fault_error());
  if (transport_ != nullptr)
    if (const Status moving = transport_->progress(); !moving) {
      members_.poison_as_failed(signature_);
      return tl::unexpected(moving.error());
    }
  // A call returns when its bytes need no more of this rank.
  const bool done = !gated_ && plan_->executor->done();
  if (done && (transport_ == nullptr || transport_->unflushed() == kNoRank)) finish();
  return moved;
}

void Operation::finish() {
  if (transport_ != nullptr) transport_->publish_done(signature_.operation);
  board_.leave(signature_.operation);
  ++counts_.completed;
  if (plan_ != nullptr) counts_.last_slices = plan_->executor->slices();
  done_ = true;
}

void Operation::give_up_by_exception() {
  members_.poison_as_failed(signature_);
  give_up();
}

void Operation::give_up() {
  if (plan_ != nullptr) plan_->executor->withdraw();
  if (transport_ != nullptr) transport_->take_back();
  done_ = true;
  if (disturbed()) board_.set_state(RankState::kFailed);
}

// Did reading the peer's memory show that its process has ended, and not in order?
bool Operation::has_died(Rank peer) const {
  const int error = plan_->executor->fault_errno();
  if (error != 0 && error != ESRCH)
    TUTTI_LOG(members_.log(), LogLevel::kError, "{}: the buffers of {} cannot be read: {}",
              signature_.to_string(), members_.describe(peer), std::strerror(error));
  const RankState state = board_.state(peer);
  return error == ESRCH && state != RankState::kLeaving && state != RankState::kLeft;
}

// What made the executor stop, told by the peer that it stopped at.
Error Operation::executor_fault(Rank peer) {
  if (plan_->executor->fault() == HostExecutor::Fault::kSignature) {
    // An answer or none: what is known then is told.
    static_cast<void>(board_.ask(peer, signature_.operation, Deadline::in_ns(kMostAskNs)));
    if (const auto found = diagnosis().mismatch_with(peer)) return members_.poison(*found);
    for (Rank other = 0; other < members_.ranks(); ++other)
      if (const auto found = diagnosis().mismatch_with(other)) return members_.poison(*found);
  }
  if (has_died(peer)) return members_.poison(members_.death_of(peer));
  return members_.poison(diagnosis().failure_of(peer));
}

Error Operation::fault_error() {
  if (plan_ != nullptr && plan_->executor->fault() != HostExecutor::Fault::kNone)
    return executor_fault(plan_->executor->fault_peer());
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

Rank Operation::suspect() const {
  const Rank first = blocked_on();
  if (first == kNoRank || gated_ || plan_->executor->done()) return first;
  const Diagnosis here = diagnosis();
  const Rank absent = plan_->executor->blocked_on_one(
      [&](Rank peer) { return !members_.is_far(peer) && !here.has_entered(peer); });
  if (absent != kNoRank) return absent;
  const Rank far =
      plan_->executor->blocked_on_one([&](Rank peer) { return members_.is_far(peer); });
  return far != kNoRank ? far : first;
}

Rank Operation::blocked_on() const {
  if (gated_) return gate_peer_;
  const bool sends = plan_->executor->done() && transport_ != nullptr;
  return sends ? transport_->unflushed() : plan_->executor->blocked_on();
}

bool Operation::block(std::int64_t ns) {
  const Rank peer = blocked_on();
  return peer != kNoRank && transport_->await(peer, ns);
}

// Can this operation no longer complete? After a death only what waits for the dead, or for a rank
// that has given up, is lost: the rest completes from what is on its way. Nobody waits for ever,
// since of all that wait for each other some rank waits for the dead one itself. A revoke after it,
// and every other poison, end everything.
bool Operation::hopeless() const {
  if (members_.aborted()) return true;
  const auto poison = board_.read_poison();
  if (!poison) return false;  // none, or about to be published
  if (poison->kind != Poison::Kind::kDeath || board_.revoked()) return true;
  const Rank peer = blocked_on();
  if (peer == kNoRank) return false;
  const RankState state = board_.state(peer);
  return peer == poison->culprit || state == RankState::kFailed || state == RankState::kLeft ||
         !transport_->health(peer) || members_.has_died(peer);
}

// A process that ends closes its connections, and says goodbye first where it ends in order. A
// connection that broke otherwise says nothing of the peer: its service thread is asked. One that
// holds, and a service that cannot be reached, is a network that is cut: that takes the timeout.
std::optional<Error> Operation::lost_way(Rank peer, std::int64_t waited_ns) {
  const Status health = transport_->health(peer);
  const bool left = transport_->has_left(peer);
  if (health && !left && (!members_.is_far(peer) || waited_ns < ask_after_ns_)) return std::nullopt;
  if (!members_.is_far(peer)) {
    // The board and its process tell of a rank of this host, only later than its connections.
    if (broken_since_ns_ == 0) broken_since_ns_ = now_ns();
    if (now_ns() - broken_since_ns_ < kNearWordNs) return std::nullopt;
  }
  ask_after_ns_ = std::min(std::max(2 * waited_ns, kFirstAskNs), waited_ns + kMostAskPauseNs);
  const Status asked = board_.ask(peer, signature_.operation, Deadline::in_ns(kMostAskNs));
  if (board_.poisoned()) return std::nullopt;  // looked at in the next round
  const bool answers = asked || asked.error().code != Code::kRemoteError;
  if (health && !left && (answers || transport_->connected(peer))) return std::nullopt;
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
  return members_.poison(poison, cause);
}

// The one who did not come is alive, as far as anybody knows; of one of another host that is what
// its service says.
Error Operation::timed_out(Rank culprit) {
  const Poison poison = diagnosis().timeout_of(culprit);
  const Status asked = members_.is_far(culprit)
                           ? board_.ask(culprit, signature_.operation, Deadline::in_ns(kMostAskNs))
                           : Status();
  return with_timeout(members_.poison(poison, asked ? std::string() : asked.error().message),
                      members_.config().op_timeout_ns);
}

// For other ranks, and for people who ask who waits for whom.
void Operation::tell_wait(Rank peer, std::int64_t waited_ns) {
  const auto at = gated_ ? HostExecutor::Place{} : plan_->executor->blocked_at();
  board_.waiting_for(
      peer,
      {.lane = at.lane, .step = at.step, .slice = at.slice, .since_ns = now_ns() - waited_ns});
  told_wait_ = peer != kNoRank;
}

std::optional<Error> Operation::trouble_with(Rank peer, std::int64_t waited_ns) {
  if (auto error = lost_way(peer, waited_ns)) return error;
  if (const auto found = diagnosis().mismatch_with(peer)) return members_.poison(*found);
  if (const auto found = diagnosis().departed(peer)) return members_.poison(*found);
  return std::nullopt;
}

Status Operation::look_around(std::int64_t waited_ns) {
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
    if (!transport_->health(peer) || transport_->has_left(peer)) {
      // Messages that arrived before the connection broke may complete the operation.
      TUTTI_TRY_ASSIGN(const bool moved, advance());
      if (moved || done_ || blocked_on() != first) return {};
    }
    if (const auto error = trouble_with(peer, waited_ns)) return tl::unexpected(*error);
    if (suspected == first) break;
  }
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

Status Operation::look_for_group(std::int64_t waited_ns) {
  if (looked_for_group_ || waited_ns < kLookForGroupNs) return {};
  looked_for_group_ = true;
  const Rank suspected = suspect();
  if (suspected == kNoRank) return {};
  const Rank peer = diagnosis().culprit_of_wait(suspected, false);
  if (peer == members_.rank() || members_.is_far(peer) ||
      members_.peer(peer).pid != members_.own().pid)
    return {};
  if (diagnosis().has_entered(peer)) return {};
  if (!control::is_only_thread_of_program()) return {};
  members_.poison_as_failed(signature_);
  return make_error(
      Code::kInvalidUsage,
      fmt::format("{} waits for rank {}, which belongs to the same thread: put the calls of all "
                  "ranks of a thread between tuttiGroupStart() and tuttiGroupEnd()",
                  signature_.to_string(), peer));
}

}  // namespace tutti
