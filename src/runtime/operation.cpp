#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/communicator.hpp"
#include "runtime/control/peer_watch.hpp"
#include "runtime/faults.hpp"

namespace tutti {
namespace {

// Who asks a far rank moves nothing meanwhile.
constexpr std::int64_t kMostAskNs = 500'000'000;
constexpr std::int64_t kMostAskPauseNs = 2'000'000'000;
constexpr std::int64_t kNearWordNs = 1'000'000'000;

}  // namespace

Status Operation::start() {
  Communicator& c = communicator_;
  if (!c.of_this_process())
    return make_error(Code::kInvalidUsage,
                      "this communicator was inherited by fork; only the process that made it may "
                      "use it");
  if (c.board_->state(c.rank_) == RankState::kLeaving)
    return make_error(Code::kInvalidUsage, "an operation after tuttiCommFinalize");
  if (disturbed()) return tl::unexpected(fault_error());
  const ReduceCopyFn kernel = reduce_copy_kernel(call_.type, call_.op);
  if (kernel == nullptr)
    return make_error(Code::kNotSupported, fmt::format("all_reduce of type {} with {} is not in "
                                                       "this build",
                                                       name_of(call_.type), name_of(call_.op)));
  Result<Communicator::BoundPlan*> plan = nullptr;
  signature_ = {
      .operation = c.operation_ + 1, .type = call_.type, .op = call_.op, .count = call_.count};
  const std::uint64_t bytes = call_.count * element_bytes(call_.type);
  if (call_.count > 0) {
    signature_.in_windows = c.in_windows(call_);
    plan = c.plan_for(bytes, signature_.in_windows);
    // What every rank finds alike, before anything was sent.
    if (!plan &&
        (plan.error().code == Code::kNotSupported || plan.error().code == Code::kInvalidArgument))
      return tl::unexpected(plan.error());
    if (plan) signature_.plan = (*plan)->plan.id;
  }
  ++c.operation_;
  c.board_->enter(signature_);
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
  Communicator::CarveUse& use =
      plan_->plan.options.protocol == Protocol::kSlots ? c.arena_use_ : c.flagged_use_;
  if (use.carve != plan_->plan.carve) use = {plan_->plan.carve, signature_.operation - 1};
  gate_ = use.barrier;
  gated_ = plan_->gate_passed < gate_;
  return plan_->executor->start(
      {.input = call_.input,
       .output = call_.output,
       .count = call_.count,
       .type = call_.type,
       .kernel = kernel,
       .average_over = call_.op == ReduceOp::kAvg ? static_cast<std::uint32_t>(c.ranks_) : 0,
       .operation = signature_.operation,
       .signature = signature_.hash(),
       .nontemporal_output = bytes >= c.nt_bytes_,
       .in_windows = signature_.in_windows,
       .lend_input = c.may_lend(call_.input, bytes),
       .lend_output = c.may_lend(call_.output, bytes)});
}

// Does nobody listen any more where the peer's service did?
bool Operation::is_gone(Rank peer) {
  Communicator& c = communicator_;
  const Deadline deadline = Deadline::in_ns(kMostAskNs);
  const Status asked =
      c.is_far(peer)
          ? c.board_->ask(peer, signature_.operation, deadline)
          : c.control_->call(peer, RequestKind::kExchangeState, {}, deadline).map([](const Reply&) {
            });
  return !asked && asked.error().code == Code::kRemoteError;
}

// This rank has no plan with all its connections. A peer is to blame only where it is gone; of one
// that is there this rank tells why no connection came about, and nobody is the culprit.
Error Operation::unprepared(const Error& cause) {
  Communicator& c = communicator_;
  const Rank peer = cause.culprit != kNoRank ? cause.culprit : c.rank_;
  TUTTI_LOG(c.log_, LogLevel::kWarn, "{}: {}", signature_.to_string(), cause.message);
  if (peer == c.rank_) {
    poison_as_failed();
    return cause;
  }
  if (cause.code == Code::kTimeout) return timed_out(peer);
  const bool gone = cause.code == Code::kRemoteError && is_gone(peer);
  if (disturbed()) return fault_error();  // the peer's word, or why it is gone
  const bool left = has_left(peer);
  const Poison poison{.code = Code::kRemoteError,
                      .culprit = peer,
                      .reporter = c.rank_,
                      .kind = left   ? Poison::Kind::kLeft
                              : gone ? Poison::Kind::kFailure
                                     : Poison::Kind::kNoWay,
                      .mine = signature_};
  const Error error = c.poison(poison, cause.message);
  if (left || gone) return error;
  return {cause.code, poison_error(poison, c.peers_, cause.message).message, peer};
}

bool Operation::disturbed() const {
  // Acquire pairs with the release in abort().
  return communicator_.aborted_.load(std::memory_order_acquire) || communicator_.board_->poisoned();
}

bool Operation::peer_shares_core() const {
  const Rank peer = blocked_on();
  if (peer == kNoRank) return false;
  communicator_.board_->note_cpu();
  return communicator_.board_->cpu_of(peer) == ::sched_getcpu();
}

// The memory that this plan writes may still hold unread messages of operations under another
// carve: wait until its owners are done with those.
bool Operation::gate_open() {
  for (const ConnectionSpec& spec : plan_->plan.sends)
    if (communicator_.transport_->done_of(spec.destination) < gate_) {
      gate_peer_ = spec.destination;
      return false;
    }
  gate_peer_ = kNoRank;
  gated_ = false;
  plan_->gate_passed = gate_;
  return true;
}

Result<bool> Operation::advance() {
  Transport* const transport = communicator_.transport_.get();
  const bool moved = (!gated_ || gate_open()) && plan_->executor->advance();
  if (moved) ask_after_ns_ = kFirstAskNs;
  if (moved && told_wait_) {
    told_wait_ = false;
    communicator_.board_->waiting_for(kNoRank);
  }
  if (plan_->executor->fault() != HostExecutor::Fault::kNone) return tl::unexpected(fault_error());
  if (transport != nullptr)
    if (const Status moving = transport->progress(); !moving) {
      poison_as_failed();
      return tl::unexpected(moving.error());
    }
  // A call returns when its bytes need no more of this rank.
  const bool done = !gated_ && plan_->executor->done();
  if (done && (transport == nullptr || transport->unflushed() == kNoRank)) finish();
  return moved;
}

void Operation::finish() {
  Communicator& c = communicator_;
  if (c.transport_) c.transport_->publish_done(signature_.operation);
  c.board_->leave(signature_.operation);
  ++c.completed_;
  if (plan_ != nullptr) c.last_slices_ = plan_->executor->slices();
  done_ = true;
}

// What failed is told here, by whoever knows.
void Operation::poison_as_failed() {
  Communicator& c = communicator_;
  c.poison({.code = Code::kRemoteError,
            .culprit = c.rank_,
            .reporter = c.rank_,
            .kind = Poison::Kind::kFailure,
            .mine = signature_});
}

void Operation::give_up_by_exception() {
  poison_as_failed();
  give_up();
}

void Operation::give_up() {
  if (plan_ != nullptr) plan_->executor->withdraw();
  if (communicator_.transport_) communicator_.transport_->take_back();
  done_ = true;
  if (disturbed()) communicator_.board_->set_state(RankState::kFailed);
}

Error Operation::mismatch(Rank peer, const OperationSignature& theirs) {
  return communicator_.poison({.code = Code::kInvalidUsage,
                               .culprit = peer,
                               .reporter = communicator_.rank_,
                               .kind = Poison::Kind::kMismatch,
                               .mine = signature_,
                               .theirs = theirs});
}

// Whose call differs from this one? The peer's if it does; else whoever's: ranks whose plans differ
// may have written over each other's messages.
std::optional<Error> Operation::mismatch_with(Rank peer) {
  const Board& board = *communicator_.board_;
  if (const auto theirs = board.signature(peer, signature_.operation)) {
    OperationSignature planned = *theirs;
    // A rank without a plan, for want of connections or memory, called the same; it says so itself.
    if (planned.plan == 0) planned.plan = signature_.plan;
    if (planned != signature_) return mismatch(peer, *theirs);
  }
  // So far ahead that the board has forgotten: it cannot have taken part in this operation.
  const std::uint64_t last = board.last_entered(peer);
  if (last >= signature_.operation + kRememberedOperations)
    if (const auto theirs = board.signature(peer, last)) return mismatch(peer, *theirs);
  return std::nullopt;
}

// Did reading the peer's memory show that its process has ended, and not in order?
bool Operation::has_died(Rank peer) const {
  const int error = plan_->executor->fault_errno();
  if (error != 0 && error != ESRCH)
    TUTTI_LOG(communicator_.log_, LogLevel::kError, "{}: the buffers of {} cannot be read: {}",
              signature_.to_string(), describe_rank(communicator_.peers_, peer),
              std::strerror(error));
  const RankState state = communicator_.board_->state(peer);
  return error == ESRCH && state != RankState::kLeaving && state != RankState::kLeft;
}

Error Operation::fault_error() {
  Communicator& c = communicator_;
  if (plan_ != nullptr && plan_->executor->fault() != HostExecutor::Fault::kNone) {
    const Rank peer = plan_->executor->fault_peer();
    if (plan_->executor->fault() == HostExecutor::Fault::kSignature) {
      // An answer or none: what is known then is told.
      static_cast<void>(c.board_->ask(peer, signature_.operation, Deadline::in_ns(kMostAskNs)));
      if (const auto error = mismatch_with(peer)) return *error;
      for (Rank other = 0; other < c.ranks_; ++other)
        if (const auto error = mismatch_with(other)) return *error;
    }
    if (has_died(peer)) return c.poison(c.death_of(peer));
    return c.poison({.code = Code::kRemoteError,
                     .culprit = peer,
                     .reporter = c.rank_,
                     .kind = Poison::Kind::kFailure,
                     .mine = signature_});
  }
  // Another rank's word, or this one's of an earlier call. A poison that is claimed is published
  // within a few stores.
  for (int i = 0; i < 1000; ++i) {
    if (const auto error = c.error()) {
      c.set_error(*error);
      return *error;
    }
    sched_yield();
  }
  const Error error{Code::kRemoteError, "the communicator was aborted", kNoRank};
  c.set_error(error);
  return error;
}

bool Operation::is_stopped(Rank rank) const {
  const std::vector<PeerInfo>& peers = communicator_.peers_;
  const PeerInfo& info = peers[static_cast<std::size_t>(rank)];
  // A pid of another host is somebody else here.
  const bool here = info.host_id == peers[static_cast<std::size_t>(communicator_.rank_)].host_id;
  return here && control::is_stopped(info.pid);
}

// Follows who waits for whom to the rank that holds everybody up: one that has not come, or that
// waits for nobody.
Rank Operation::culprit_of_wait(Rank peer) const {
  const Communicator& c = communicator_;
  // A stopped rank keeps everybody waiting in the end, and says nothing of whom it waits for.
  for (const PeerInfo& info : c.peers_)
    if (is_stopped(info.rank)) return info.rank;
  for (std::int32_t hops = 0; hops < c.ranks_; ++hops) {
    if (c.board_->last_entered(peer) < signature_.operation) return peer;
    const Rank next = c.board_->waits_for(peer);
    if (next < 0 || next >= c.ranks_ || next == c.rank_ || next == peer) return peer;
    peer = next;
  }
  return peer;
}

Rank Operation::blocked_on() const {
  if (gated_) return gate_peer_;
  const Transport* const transport = communicator_.transport_.get();
  const bool sends = plan_->executor->done() && transport != nullptr;
  return sends ? transport->unflushed() : plan_->executor->blocked_on();
}

bool Operation::block(std::int64_t ns) {
  const Rank peer = blocked_on();
  return peer != kNoRank && communicator_.transport_->await(peer, ns);
}

// Can this operation no longer complete? After a death only what waits for the dead, or for a rank
// that has given up, is lost: the rest completes from what is on its way. Nobody waits for ever,
// since of all that wait for each other some rank waits for the dead one itself. Every other poison
// ends everything.
bool Operation::hopeless() const {
  const Communicator& c = communicator_;
  if (c.aborted_.load(std::memory_order_acquire)) return true;
  const auto poison = c.board_->read_poison();
  if (!poison) return false;  // none, or about to be published
  if (poison->kind != Poison::Kind::kDeath) return true;
  const Rank peer = blocked_on();
  if (peer == kNoRank) return false;
  const RankState state = c.board_->state(peer);
  // Acquire pairs with the release on the service thread.
  return peer == poison->culprit || state == RankState::kFailed || state == RankState::kLeft ||
         !c.transport_->health(peer) ||
         c.dead_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
}

// A peer that has said goodbye without entering this operation will never come.
bool Operation::has_left(Rank peer) const {
  const Board& board = *communicator_.board_;
  const RankState state = board.state(peer);
  return (state == RankState::kLeft || state == RankState::kLeaving) &&
         board.last_entered(peer) < signature_.operation;
}

std::optional<Error> Operation::departed(Rank peer) {
  Communicator& c = communicator_;
  if (!has_left(peer)) return std::nullopt;
  return c.poison({.code = Code::kRemoteError,
                   .culprit = peer,
                   .reporter = c.rank_,
                   .kind = Poison::Kind::kLeft,
                   .mine = signature_});
}

// A process that ends closes its connections, and says goodbye first where it ends in order. A
// connection that broke otherwise says nothing of the peer: its service thread is asked. One that
// holds, and a service that cannot be reached, is a network that is cut: that takes the timeout.
std::optional<Error> Operation::lost_way(Rank peer, std::int64_t waited_ns) {
  Communicator& c = communicator_;
  const Status health = c.transport_->health(peer);
  const bool left = c.transport_->has_left(peer);
  if (health && !left && (!c.is_far(peer) || waited_ns < ask_after_ns_)) return std::nullopt;
  if (!c.is_far(peer)) {
    // The board and its process tell of a rank of this host, only later than its connections.
    if (broken_since_ns_ == 0) broken_since_ns_ = now_ns();
    if (now_ns() - broken_since_ns_ < kNearWordNs) return std::nullopt;
  }
  ask_after_ns_ = std::min(std::max(2 * waited_ns, kFirstAskNs), waited_ns + kMostAskPauseNs);
  const Status asked = c.board_->ask(peer, signature_.operation, Deadline::in_ns(kMostAskNs));
  if (c.board_->poisoned()) return std::nullopt;  // looked at in the next round
  const bool answers = asked || asked.error().code != Code::kRemoteError;
  if (health && !left && (answers || c.transport_->connected(peer))) return std::nullopt;
  const std::string cause = !health  ? health.error().message
                            : !asked ? asked.error().message
                                     : "it has said goodbye";
  TUTTI_LOG(c.log_, LogLevel::kWarn, "{}: {}", signature_.to_string(), cause);
  Poison poison = c.death_of(peer);
  if (left)
    poison.kind = Poison::Kind::kLeft;
  else if (health)
    poison.kind = Poison::Kind::kFailure;  // it never connected, and nobody answers there
  else if (answers || health.error().code == Code::kTimeout)
    poison.kind = Poison::Kind::kCut;
  if (poison.kind != Poison::Kind::kDeath) poison.mine = signature_;
  return c.poison(poison, cause);
}

namespace {

// All ranks tell one story of a timeout; how long this one waits is its own configuration.
Error with_timeout(Error error, std::int64_t timeout_ns) {
  if (error.code == Code::kTimeout)
    error.message += fmt::format("; the timeout is {} s", static_cast<double>(timeout_ns) / 1e9);
  return error;
}

}  // namespace

// The one who did not come is alive, as far as anybody knows; of one of another host that is what
// its service says.
Error Operation::timed_out(Rank culprit) {
  Communicator& c = communicator_;
  const bool stopped = is_stopped(culprit);
  const Status asked =
      c.is_far(culprit) ? c.board_->ask(culprit, signature_.operation, Deadline::in_ns(kMostAskNs))
                        : Status();
  return with_timeout(c.poison({.code = Code::kTimeout,
                                .culprit = culprit,
                                .reporter = c.rank_,
                                .kind = stopped ? Poison::Kind::kStopped : Poison::Kind::kTimeout,
                                .mine = signature_},
                               asked ? std::string() : asked.error().message),
                      c.config_.op_timeout_ns);
}

// For other ranks, and for people who ask who waits for whom.
void Operation::tell_wait(Rank peer, std::int64_t waited_ns) {
  const auto at = gated_ ? HostExecutor::Place{} : plan_->executor->blocked_at();
  communicator_.board_->waiting_for(
      peer,
      {.lane = at.lane, .step = at.step, .slice = at.slice, .since_ns = now_ns() - waited_ns});
  told_wait_ = peer != kNoRank;
}

Status Operation::look_around(std::int64_t waited_ns) {
  Communicator& c = communicator_;
  if (disturbed() && hopeless()) {
    // What came since the last round may have been all that was missing.
    TUTTI_TRY_ASSIGN(const bool moved, advance());
    if (moved || done_) return {};
    return tl::unexpected(fault_error());
  }
  const Rank peer = blocked_on();
  tell_wait(peer, waited_ns);
  if (peer == kNoRank) return {};
  if (!c.transport_->health(peer) || c.transport_->has_left(peer)) {
    // What came before the way broke may have been all that was missing.
    TUTTI_TRY_ASSIGN(const bool moved, advance());
    if (moved || done_ || blocked_on() != peer) return {};
  }
  if (const auto error = lost_way(peer, waited_ns)) return tl::unexpected(*error);
  if (const auto error = mismatch_with(peer)) return tl::unexpected(*error);
  if (const auto error = departed(peer)) return tl::unexpected(*error);
  if (waited_ns >= c.config_.op_timeout_ns) return tl::unexpected(timed_out(culprit_of_wait(peer)));
  if (!warned_ && waited_ns >= c.config_.warn_after_ns) {
    warned_ = true;
    const Rank culprit = culprit_of_wait(peer);
    TUTTI_LOG(c.log_, LogLevel::kWarn, "{} has waited {} s for {}{}", signature_.to_string(),
              waited_ns / 1'000'000'000, describe_rank(c.peers_, culprit),
              is_stopped(culprit) ? ", which is stopped (SIGSTOP or a debugger)" : "");
  }
  return {};
}

namespace {

// How many waiting rounds pass between looks at the poison word while spinning.
constexpr std::uint32_t kPoisonPollRounds = 64;

// Asks, once in a wait that has become longer than most, and at once after it was so.
void look_for_peer(const Operation& operation, Waiter& waiter, WaitPolicy& policy) {
  const bool here = operation.peer_shares_core();
  if (here) waiter.stop_spinning();
  policy.look_at = here ? 1 : WaitPolicy::kFirstLook;
}

Status run_one(Operation& operation, WaitPolicy& policy) {
  TUTTI_TRY(operation.start());
  Waiter waiter(policy);
  std::uint32_t rounds = 0;
  while (!operation.done()) {
    TUTTI_TRY_ASSIGN(const bool moved, operation.advance());
    if (moved) {
      waiter.reset();
      continue;
    }
    if (waiter.should_look()) look_for_peer(operation, waiter, policy);
    const bool slow = waiter.wait([&](std::int64_t ns) { return operation.block(ns); });
    if (slow || ++rounds % kPoisonPollRounds == 0)
      if (slow || operation.disturbed()) TUTTI_TRY(operation.look_around(waiter.waited_ns()));
  }
  return {};
}

// Marks a communicator as carried by a thread, for abort() and revoke(). The decrement is the last
// access.
class Carried {
 public:
  explicit Carried(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_acq_rel);
  }
  Carried(const Carried&) = delete;
  Carried& operator=(const Carried&) = delete;
  ~Carried() { count_.fetch_sub(1, std::memory_order_release); }

 private:
  std::atomic<int>& count_;
};

}  // namespace

Status Communicator::run(const AllReduceCall& call) {
  const Carried carried(carried_);
  Operation operation(*this, call);
  try {
    const Status status = run_one(operation, wait_policy_);
    if (!status) operation.give_up();
    return status;
  } catch (...) {
    operation.give_up_by_exception();
    throw;
  }
}

// One turn of an operation in a group. True if it moved or ended.
Result<bool> Communicator::turn(Operation& operation, bool& started, std::int64_t waited_ns,
                                bool slow) {
  if (!started) {
    started = true;
    TUTTI_TRY(operation.start());
    return true;
  }
  TUTTI_TRY_ASSIGN(const bool moved, operation.advance());
  if (moved || operation.done()) return true;
  if (slow || operation.disturbed()) TUTTI_TRY(operation.look_around(waited_ns));
  return false;
}

namespace {

// The operations of one communicator in a group, in issue order.
struct Queue {
  struct Entry {
    Operation operation;
    bool started = false;
  };
  Communicator* communicator = nullptr;
  std::vector<Entry> entries;
  std::size_t next = 0;
  std::unique_ptr<Carried> carried;                // given back when the last entry has ended
  std::vector<std::shared_ptr<const void>> holds;  // let go after that
};

// A turn whose exception ends every operation of the group before it goes on.
Result<bool> guarded_turn(Queue& queue, Queue::Entry& entry, std::int64_t waited_ns, bool slow) {
  try {
    return queue.communicator->turn(entry.operation, entry.started, waited_ns, slow);
  } catch (const std::exception& error) {
    entry.operation.give_up_by_exception();
    return make_error(Code::kSystemError, error.what());
  }
}

}  // namespace

Status run_operations(std::span<HeldCall> calls) {
  if (calls.size() == 1) return calls[0].communicator->run(calls[0].call);
  std::vector<Queue> queues;
  for (auto& [communicator, call, hold] : calls) {
    auto queue = std::find_if(queues.begin(), queues.end(), [own = communicator](const Queue& q) {
      return q.communicator == own;
    });
    if (queue == queues.end()) {
      queues.push_back({communicator, {}, 0, {}, {}});
      queue = queues.end() - 1;
      queue->carried = std::make_unique<Carried>(communicator->carried_);
    }
    queue->entries.push_back({Operation(*communicator, call)});
    queue->holds.push_back(std::move(hold));
  }
  Status first_error;
  Waiter waiter(calls[0].communicator->wait_policy_);
  bool slow = false;
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (Queue& queue : queues) {
      if (queue.next == queue.entries.size()) continue;
      left = true;
      Queue::Entry& entry = queue.entries[queue.next];
      const Result<bool> result = guarded_turn(queue, entry, waiter.waited_ns(), slow);
      if (!result && first_error) first_error = tl::unexpected(result.error());
      if (!result) entry.operation.give_up();
      moved |= !result || *result;
      if (entry.operation.done() && ++queue.next == queue.entries.size()) {
        queue.carried.reset();
        queue.holds.clear();
      }
    }
    slow = false;
    if (moved)
      waiter.reset();
    else if (left)
      slow = waiter.wait();
  }
  return first_error;
}

}  // namespace tutti
