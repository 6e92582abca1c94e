// SPDX-License-Identifier: Apache-2.0
#include "comm/repeats.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/ongoing_call.hpp"
#include "comm/operation.hpp"
#include "comm/run_operations.hpp"
#include "device/driver.hpp"

namespace tutti {

Call Repeats::whole(const Kept& kept, const SmallCall& call) {
  Call whole = kept.call;
  whole.input = call.input;
  whole.output = call.output;
  return whole;
}

// What the buffers that this rank has must be; everything else the ordinary way tells.
bool Repeats::take(Kept& kept, const SmallCall& call) const {
  const auto from = reinterpret_cast<std::uintptr_t>(call.input);
  const auto to = reinterpret_cast<std::uintptr_t>(call.output);
  const bool input = kept.input_bytes > 0, output = kept.output_bytes > 0;
  if (input && (from == 0 || (from & kept.unaligned) != 0)) return false;
  if (output && (to == 0 || (to & kept.unaligned) != 0)) return false;
  const std::uint64_t input_base = from - kept.input_shift, output_base = to - kept.output_shift;
  const bool overlap = from < to + kept.output_bytes && to < from + kept.input_bytes;
  if (input && output && overlap && input_base != output_base) return false;
  if (!communicator_.plans().without_windows() &&
      communicator_.in_windows(whole(kept, call)) != kept.signature.in_windows)
    return false;
  kept.input = call.input;
  kept.output = call.output;
  kept.input_base = input_base;
  kept.output_base = output_base;
  return true;
}

bool Repeats::can_run(const Kept& kept) const {
  const PlanCache& plans = communicator_.plans();
  if (device::driver_was_found() &&
      ((kept.input_bytes > 0 && device::driver_knows_for_device(kept.input)) ||
       (kept.output_bytes > 0 && device::driver_knows_for_device(kept.output))))
    return false;
  return kept.generation == plans.generation() && communicator_.members().is_open() &&
         !communicator_.members().disturbed();
}

void Repeats::enter(const StraightCall& call) {
  const auto& entry = static_cast<const Entry&>(call);
  Communicator& communicator = entry.repeats.communicator_;
  communicator.plans().note_last_plan(*entry.kept.plan);
  communicator.members().board().enter(call.operation, entry.kept.record);
}

bool Repeats::pump(const StraightCall& call, bool over) {
  const auto& entry = static_cast<const Entry&>(call);
  Status& error = entry.repeats.pump_error_;
  error = pump_straight(*entry.repeats.communicator_.transport(), over, entry.kept.silent);
  return error.has_value();
}

bool Repeats::flushed(const StraightCall& call) {
  return static_cast<const Entry&>(call).repeats.communicator_.transport()->unflushed() == kNoRank;
}

// At the fence, as Operation::start() is.
[[gnu::noinline]] bool Repeats::passes(const Kept& kept, std::uint64_t fence) const {
  if (kept.done == nullptr) communicator_.transport()->tell_done();
  return communicator_.plans().behind_fence(*kept.plan, fence) == kNoRank;
}

Repeats::Ran Repeats::run(const SmallCall& call) {
  // First of all: until calls on streams have ended, the thread that carries them out has the
  // plans.
  if (!communicator_.call_slot().drained()) return Ran::kNot;
  Kept& kept = place_of(call.kind, call.count);
  if (kept.kind != call.kind || kept.count != call.count || kept.plan == nullptr) return Ran::kNot;
  return run(kept, call);
}

Repeats::Ran Repeats::run(Kept& kept, const SmallCall& call) {
  if ((call.input != kept.input || call.output != kept.output) && !take(kept, call))
    return Ran::kNot;
  if (!can_run(kept)) return Ran::kNot;
  OperationCounts& counts = communicator_.counts();
  const std::uint64_t operation = counts.issued + 1;
  PlanCache& plans = communicator_.plans();
  const std::uint64_t fence = plans.fence_of(*kept.plan, operation);
  if (fence > kept.plan->fence_passed && !passes(kept, fence)) return Ran::kNot;
  plans.use(*kept.plan, operation, fence);
  counts.issued = operation;
  static constexpr StraightHooks kHooks{.enter = enter, .pump = pump, .flushed = flushed};
  const Entry entry{{.hooks = kHooks,
                     .input_base = kept.input_base,
                     .output_base = kept.output_base,
                     .operation = operation,
                     .signature = OperationSignature::hash_of(operation, kept.hash)},
                    *this,
                    kept};
  // Until it is time to ask whether the peer runs on this core.
  const WaitPolicy& policy = communicator_.wait_policy();
  const bool through =
      kept.plan->executor->run(kept.line, entry, std::min(policy.spins, policy.look_at));
  if (!through) [[unlikely]] {
    ended_ = go_on(kept, call, operation);
    return Ran::kSlowly;
  }
  if (kept.done != nullptr) [[likely]]
    kept.done->store(operation, std::memory_order_release);
  else
    communicator_.transport()->publish_done(operation);
  communicator_.members().board().leave(operation);
  ++counts.completed;
  counts.last_slices = 1;
  return Ran::kWell;
}

Status Repeats::go_on(const Kept& kept, const SmallCall& call, std::uint64_t operation) {
  OperationSignature signature = kept.signature;
  signature.operation = operation;
  return run_begun(communicator_, whole(kept, call), *kept.plan, signature,
                   std::exchange(pump_error_, {}));
}

void Repeats::keep(const Call& call) {
  if (call.count > kMostBytes) return;
  try {
    look_up(call);
  } catch (const std::bad_alloc&) {  // the call has ended well all the same
  }
}

void Repeats::look_up(const Call& call) {
  const Rank rank = communicator_.rank();
  const std::int32_t ranks = communicator_.ranks();
  const bool plain =
      call.sizes == nullptr && !call.pre_multiplied && !call.user_op && !call.on_device;
  if (!plain || call.count == 0 || call.data_bytes(ranks) > kMostBytes) return;
  PlanCache& plans = communicator_.plans();
  if (plans.carries_fp32(call)) return;
  if (communicator_.on_device() != nullptr) return;
  const std::uint64_t kind = SmallCall::kind_of(call.collective, call.type, call.op, call.root);
  Kept& kept = place_of(kind, call.count);
  const bool again = kept.kind == kind && kept.count == call.count;
  if (again && kept.generation == plans.generation()) return;
  kept.plan = nullptr;
  kept.kind = kind;
  kept.count = call.count;
  kept.generation = again ? plans.generation() : 0;
  if (!again) return;  // it has not repeated yet
  BoundPlan* const plan = plans.last_bound();
  if (plan == nullptr || communicator_.transport() == nullptr) return;
  const bool pumped = !communicator_.shares_everything();
  kept.done = pumped ? nullptr : communicator_.transport()->done_word();
  kept.silent = plan->plan.sends.empty();
  std::optional<StraightLine> line = plan->executor->straighten(
      {.call = &call, .kernel = kernel_of(call), .average_over = averaged_over(call, ranks)},
      pumped);
  if (!line) return;
  kept.line = *std::move(line);
  kept.call = call;
  kept.call.input = nullptr;
  kept.call.output = nullptr;
  kept.signature = {.collective = call.collective,
                    .type = call.type,
                    .op = call.op,
                    .root = call.root,
                    .count = call.count,
                    .plan = plan->plan.id,
                    .in_windows = communicator_.in_windows(call)};
  kept.hash = kept.signature.hash_of_kind();
  kept.record = Board::record_of(kept.signature);
  kept.input_bytes = call.has_input(rank) ? call.input_bytes(rank, ranks) : 0;
  kept.output_bytes = call.has_output(rank) ? call.output_bytes(rank, ranks) : 0;
  kept.input = call.input;
  kept.output = call.output;
  kept.input_base = call.input_base(rank);
  kept.output_base = call.output_base(rank);
  kept.input_shift = reinterpret_cast<std::uintptr_t>(call.input) - kept.input_base;
  kept.output_shift = reinterpret_cast<std::uintptr_t>(call.output) - kept.output_base;
  kept.unaligned = element_bytes(call.type) - 1;
  kept.plan = plan;
}

}  // namespace tutti
