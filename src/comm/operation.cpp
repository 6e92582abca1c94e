// SPDX-License-Identifier: Apache-2.0
#include "comm/operation.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/reduce_copy.hpp"

namespace tutti {

ReduceCopyFn kernel_of(const Call& call) {
  if (!call.info().reduces()) return copy_kernel(element_bytes(call.type));
  return call.user_op ? user_kernel : reduce_copy_kernel(call.type, call.op);
}

std::uint32_t averaged_over(const Call& call, std::int32_t ranks) {
  const bool average = call.info().reduces() && call.op == ReduceOp::kAvg;
  return average ? static_cast<std::uint32_t>(ranks) : 0;
}

Operation::Operation(Communicator& communicator, const Call& call)
    : OngoingCall(communicator.members(), communicator.transport()),
      communicator_(communicator),
      plans_(communicator.plans()),
      counts_(communicator.counts()),
      call_(call) {}

Status Operation::start() {
  if (plan_ != nullptr) {  // begin()
    if (!pump_error_) members_.poison_as_failed(signature_);
    return std::exchange(pump_error_, {});
  }
  TUTTI_TRY(members_.open_to_calls());
  if (disturbed()) return tl::unexpected(fault_error());
  Result<BoundPlan*> plan = nullptr;
  signature_ = {.operation = counts_.issued + 1,
                .collective = call_.collective,
                .type = call_.type,
                .op = call_.op,
                .root = call_.root,
                .count = call_.sizes != nullptr ? call_.sizes->total() : call_.count,
                .sizes = call_.sizes != nullptr ? call_.sizes->hash() : 0};
  prepare_input();
  if (call_.count > 0) {
    signature_.in_windows = call_.sizes == nullptr && communicator_.in_windows(call_);
    plan = plans_.plan_for(call_, signature_.in_windows);
    // An error that every rank finds equally, before anything was sent.
    if (!plan &&
        (plan.error().code == Code::kNotSupported || plan.error().code == Code::kInvalidArgument))
      return tl::unexpected(plan.error());
    if (plan) signature_.plan = (*plan)->plan.id;
    if (plan && (*plan)->plan.shape.apart && is_in_place(call_, members_.rank()))
      apart_.emplace(call_, members_.rank(), members_.ranks(), communicator_.apart_memory());
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
  fence_ = plans_.fence_of(*plan_, signature_.operation);
  plans_.use(*plan_, signature_.operation, fence_);
  fenced_ = at_fence_ = plan_->fence_passed < fence_;
  if (at_fence_ && transport_ != nullptr) transport_->tell_done();  // all ranks are at this fence
  const Rank rank = members_.rank();
  const std::int32_t ranks = members_.ranks();
  return plan_->executor->start(
      {.call = &call_,
       .kernel = kernel_of(call_),
       .average_over = averaged_over(call_, ranks),
       .operation = signature_.operation,
       .signature = signature_.hash(),
       .nontemporal_output = !apart_ && call_.data_bytes(ranks) >= communicator_.nt_bytes(),
       .in_windows = signature_.in_windows,
       .lend_input = call_.has_input(rank) && may_lend(call_.input, call_.input_bytes(rank, ranks)),
       .lend_output =
           call_.has_output(rank) && may_lend(call_.output, call_.output_bytes(rank, ranks))});
}

void Operation::begin(BoundPlan& plan, const OperationSignature& signature, Status pump_error) {
  plan_ = &plan;
  signature_ = signature;
  pump_error_ = std::move(pump_error);
}

// Here, since an operation before it may have written its input.
void Operation::prepare_input() {
  const Rank rank = members_.rank();
  if (call_.count == 0) return;
  if (plans_.carries_fp32(call_))
    partials_.emplace(call_, rank, members_.ranks(), communicator_.fp32_memory());
  if (!call_.pre_multiplied || !call_.has_input(rank)) return;
  if (call_.sizes != nullptr) {
    scaled_input_ = scaled(*call_.pre_multiplied, call_.input, *call_.sizes);
    call_.sizes = std::make_shared<const BlockSizes>(call_.sizes->counts);
  } else {
    scaled_input_ = scaled(*call_.pre_multiplied, call_.input,
                           call_.input_bytes(rank, members_.ranks()) / element_bytes(call_.type));
  }
  call_.input = scaled_input_.get();
}

bool Operation::may_lend(const void* memory, std::uint64_t bytes) const {
  return transport_ != nullptr &&
         transport_->may_lend({static_cast<const std::byte*>(memory), bytes});
}

// The memory that this plan writes may still hold unread messages of operations under plans
// that divide it otherwise: wait until its owners are done with those.
bool Operation::pass_fence() {
  fence_peer_ = plans_.behind_fence(*plan_, fence_);
  fenced_ = fence_peer_ != kNoRank;
  return !fenced_;
}

Result<bool> Operation::advance() {
  const bool moved = (!fenced_ || pass_fence()) && plan_->executor->advance();
  if (moved) note_moved();
  if (plan_->executor->fault() != HostExecutor::Fault::kNone) return tl::unexpected(fault_error());
  // A call returns when its bytes need no more of this rank.
  const bool over = !fenced_ && plan_->executor->done();
  // At the fence, and where this rank only receives, others may wait for what it has to tell.
  const bool silent = over || at_fence_ || plan_->plan.sends.empty();
  if (!over || !flushed()) TUTTI_TRY(pump(silent));
  if (over && flushed()) finish();
  return moved || done_;
}

void Operation::finish() {
  if (apart_) apart_->finish();
  if (partials_) partials_->finish();
  if (transport_ != nullptr) transport_->publish_done(signature_.operation);
  board_.leave(signature_.operation);
  ++counts_.completed;
  if (plan_ != nullptr) counts_.last_slices = plan_->executor->slices();
  done_ = true;
}

void Operation::withdraw() {
  if (plan_ == nullptr) return;
  if (signature_.in_windows && !plan_->plan.remotes.empty()) members_.control().watch_closely();
  const Rank storing =
      plan_->executor->withdraw([this](Rank peer) { return members_.has_died(peer); });
  if (storing == kNoRank) return;
  TUTTI_LOG(members_.log(), LogLevel::kWarn,
            "{}: {} is stopped while it stores into this rank's output; when it goes on, it may "
            "write there once more: end it, or free that memory before you use it for something "
            "else",
            signature_.to_string(), members_.describe(storing));
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
    // An answer or none: what is known then is told. A rank of this host sends before it says what
    // it has called (Repeats), and says so at once unless it is stopped or killed between the two.
    const Deadline deadline = Deadline::in_ns(kMostAskNs);
    static_cast<void>(board_.ask(peer, signature_.operation, deadline));
    while (!members_.is_far(peer) && !members_.disturbed() && !diagnosis().has_entered(peer) &&
           !members_.has_died(peer) && !deadline.passed())
      ::sched_yield();
    if (const auto found = diagnosis().mismatch_with(peer)) return members_.poison(*found);
    for (Rank other = 0; other < members_.ranks(); ++other)
      if (const auto found = diagnosis().mismatch_with(other)) return members_.poison(*found);
  }
  if (has_died(peer)) return members_.poison(members_.death_of(peer));
  return members_.poison(diagnosis().failure_of(peer));
}

Rank Operation::suspect() const {
  const Rank first = blocked_on();
  if (first == kNoRank || fenced_ || plan_->executor->done()) return first;
  const Diagnosis here = diagnosis();
  const Rank absent = plan_->executor->blocked_on_one(
      [&](Rank peer) { return !members_.is_far(peer) && !here.has_entered(peer); });
  if (absent != kNoRank) return absent;
  const Rank far =
      plan_->executor->blocked_on_one([&](Rank peer) { return members_.is_far(peer); });
  return far != kNoRank ? far : first;
}

Rank Operation::blocked_on() const {
  if (fenced_) return fence_peer_;
  const bool sends = plan_->executor->done() && transport_ != nullptr;
  return sends ? transport_->unflushed() : plan_->executor->blocked_on();
}

WaitPlace Operation::place() const {
  const auto at = fenced_ ? HostExecutor::Place{} : plan_->executor->blocked_at();
  return {.lane = at.lane, .step = at.step, .slice = at.slice};
}

std::optional<Error> Operation::own_fault() {
  if (plan_ == nullptr || plan_->executor->fault() == HostExecutor::Fault::kNone)
    return std::nullopt;
  return executor_fault(plan_->executor->fault_peer());
}

}  // namespace tutti
