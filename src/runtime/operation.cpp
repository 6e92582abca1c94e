#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/communicator.hpp"
#include "runtime/faults.hpp"

namespace tutti {

Status Operation::start() {
  Communicator& c = communicator_;
  if (disturbed()) return tl::unexpected(fault_error());
  const ReduceCopyFn kernel = reduce_copy_kernel(call_.type, call_.op);
  if (kernel == nullptr)
    return make_error(Code::kNotSupported, fmt::format("all_reduce of type {} with {} is not in "
                                                       "this build",
                                                       name_of(call_.type), name_of(call_.op)));
  Result<Communicator::BoundPlan*> plan = nullptr;
  signature_ = {
      .operation = c.operation_ + 1, .type = call_.type, .op = call_.op, .count = call_.count};
  if (call_.count > 0) {
    plan = c.plan_for(call_);
    if (!plan && plan.error().code == Code::kNotSupported) return tl::unexpected(plan.error());
    if (plan) signature_.plan = (*plan)->plan.id;
  }
  ++c.operation_;
  c.board_->enter(signature_);
  if (!plan) {
    if (disturbed()) return tl::unexpected(fault_error());
    // The others have entered, or will: they must not wait for this rank.
    const Rank culprit = plan.error().culprit != kNoRank ? plan.error().culprit : c.rank_;
    const Error error = c.poison({.code = Code::kRemoteError,
                                  .culprit = culprit,
                                  .reporter = c.rank_,
                                  .kind = Poison::Kind::kFailure,
                                  .mine = signature_});
    TUTTI_LOG(c.log_, LogLevel::kInfo, "{}: {}", signature_.to_string(), plan.error().message);
    return tl::unexpected(culprit == c.rank_ ? plan.error() : error);
  }
  plan_ = *plan;
  if (plan_ == nullptr) {
    finish();
    return {};
  }
  Communicator::CarveUse& use =
      plan_->plan.options.protocol == Protocol::kFlagged ? c.flagged_use_ : c.arena_use_;
  if (use.carve != plan_->plan.carve) use = {plan_->plan.carve, signature_.operation - 1};
  gate_ = use.barrier;
  gated_ = plan_->gate_passed < gate_;
  const std::uint64_t bytes = call_.count * element_bytes(call_.type);
  return plan_->executor->start(
      {.input = call_.input,
       .output = call_.output,
       .count = call_.count,
       .type = call_.type,
       .kernel = kernel,
       .average_over = call_.op == ReduceOp::kAvg ? static_cast<std::uint32_t>(c.ranks_) : 0,
       .operation = signature_.operation,
       .signature = signature_.hash(),
       .nontemporal_output = bytes >= c.nt_bytes_});
}

bool Operation::disturbed() const {
  // Acquire pairs with the release in abort().
  return communicator_.aborted_.load(std::memory_order_acquire) || communicator_.board_->poisoned();
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
  if (gated_ && !gate_open()) return false;
  const bool moved = plan_->executor->advance();
  if (plan_->executor->fault() != HostExecutor::Fault::kNone) return tl::unexpected(fault_error());
  if (plan_->executor->done()) finish();
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

void Operation::give_up() {
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

Error Operation::fault_error() {
  Communicator& c = communicator_;
  if (plan_ != nullptr && plan_->executor->fault() != HostExecutor::Fault::kNone) {
    const Rank peer = plan_->executor->fault_peer();
    if (plan_->executor->fault() == HostExecutor::Fault::kSignature)
      if (const auto theirs = c.board_->signature(peer, signature_.operation);
          theirs && *theirs != signature_)
        return mismatch(peer, *theirs);
    return c.poison({.code = Code::kRemoteError,
                     .culprit = peer,
                     .reporter = c.rank_,
                     .kind = Poison::Kind::kFailure,
                     .mine = signature_});
  }
  // Another rank's word. A poison that is claimed is published within a few stores.
  for (int i = 0; i < 1000; ++i) {
    if (const auto poison = c.board_->read_poison()) {
      const Error error = poison_error(*poison, c.peers_);
      c.set_error(error);
      return error;
    }
    sched_yield();
  }
  const Error error{Code::kRemoteError, "the communicator was aborted", kNoRank};
  c.set_error(error);
  return error;
}

// Follows who waits for whom to the rank that holds everybody up: one that has not come, or that
// waits for nobody.
Rank Operation::culprit_of_wait(Rank peer) const {
  const Communicator& c = communicator_;
  for (std::int32_t hops = 0; hops < c.ranks_; ++hops) {
    if (c.board_->last_entered(peer) < signature_.operation) return peer;
    const Rank next = c.board_->waits_for(peer);
    if (next < 0 || next >= c.ranks_ || next == c.rank_ || next == peer) return peer;
    peer = next;
  }
  return peer;
}

Rank Operation::blocked_on() const { return gated_ ? gate_peer_ : plan_->executor->blocked_on(); }

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
         c.dead_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire);
}

Status Operation::look_around(std::int64_t waited_ns) {
  Communicator& c = communicator_;
  if (disturbed() && hopeless()) return tl::unexpected(fault_error());
  const Rank peer = blocked_on();
  c.board_->waiting_for(peer);
  if (peer == kNoRank) return {};
  if (const auto theirs = c.board_->signature(peer, signature_.operation);
      theirs && *theirs != signature_)
    return tl::unexpected(mismatch(peer, *theirs));
  if (c.board_->state(peer) == RankState::kLeft &&
      c.board_->last_entered(peer) < signature_.operation)
    return tl::unexpected(c.poison({.code = Code::kRemoteError,
                                    .culprit = peer,
                                    .reporter = c.rank_,
                                    .kind = Poison::Kind::kFailure,
                                    .mine = signature_}));
  if (waited_ns >= c.config_.op_timeout_ns)
    return tl::unexpected(c.poison({.code = Code::kTimeout,
                                    .culprit = culprit_of_wait(peer),
                                    .reporter = c.rank_,
                                    .kind = Poison::Kind::kTimeout,
                                    .mine = signature_}));
  if (!warned_ && waited_ns >= c.config_.warn_after_ns) {
    warned_ = true;
    TUTTI_LOG(c.log_, LogLevel::kWarn, "{} has waited {} s for {}", signature_.to_string(),
              waited_ns / 1'000'000'000, describe_rank(c.peers_, culprit_of_wait(peer)));
  }
  return {};
}

namespace {

// How many waiting rounds pass between looks at the poison word while spinning.
constexpr std::uint32_t kPoisonPollRounds = 64;

Status run_one(Operation& operation, const WaitPolicy& policy, Transport* transport) {
  TUTTI_TRY(operation.start());
  Waiter waiter(policy);
  std::uint32_t rounds = 0;
  while (!operation.done()) {
    TUTTI_TRY_ASSIGN(const bool moved, operation.advance());
    if (moved) {
      waiter.reset();
      continue;
    }
    if (transport != nullptr) TUTTI_TRY(transport->progress());
    const bool slow = waiter.wait();
    if (slow || ++rounds % kPoisonPollRounds == 0)
      if (slow || operation.disturbed()) TUTTI_TRY(operation.look_around(waiter.waited_ns()));
  }
  return {};
}

// Marks a communicator as busy for abort().
class Running {
 public:
  explicit Running(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_acq_rel);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    // Release pairs with the acquire in abort(): the operation's last access comes before.
    if (count_.fetch_sub(1, std::memory_order_release) == 1) count_.notify_all();
  }

 private:
  std::atomic<int>& count_;
};

}  // namespace

Status Communicator::run(const AllReduceCall& call) {
  const Running running(running_);
  Operation operation(*this, call);
  const Status status = run_one(operation, wait_policy_, transport_.get());
  if (!status) operation.give_up();
  return status;
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
  if (transport_) TUTTI_TRY(transport_->progress());
  if (slow || operation.disturbed()) TUTTI_TRY(operation.look_around(waited_ns));
  return false;
}

Status run_operations(std::span<const std::pair<Communicator*, AllReduceCall>> calls) {
  if (calls.size() == 1) return calls[0].first->run(calls[0].second);
  struct Entry {
    Operation operation;
    bool started = false;
  };
  // Queues in issue order, one a communicator.
  std::vector<std::pair<Communicator*, std::vector<Entry>>> queues;
  for (const auto& [communicator, call] : calls) {
    auto queue = std::find_if(queues.begin(), queues.end(),
                              [&](const auto& q) { return q.first == communicator; });
    if (queue == queues.end()) queue = queues.insert(queues.end(), {communicator, {}});
    queue->second.push_back({Operation(*communicator, call)});
  }
  std::vector<std::unique_ptr<Running>> running;
  for (auto& [communicator, queue] : queues)
    running.push_back(std::make_unique<Running>(communicator->running_));
  Status first_error;
  Waiter waiter(calls[0].first->wait_policy_);
  bool slow = false;
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (auto& [communicator, queue] : queues) {
      const auto next = std::find_if(queue.begin(), queue.end(),
                                     [](const Entry& entry) { return !entry.operation.done(); });
      if (next == queue.end()) continue;
      left = true;
      const Result<bool> result =
          communicator->turn(next->operation, next->started, waiter.waited_ns(), slow);
      if (!result && first_error) first_error = tl::unexpected(result.error());
      if (!result) next->operation.give_up();
      moved |= !result || *result;
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
