// SPDX-License-Identifier: Apache-2.0
#include "comm/repeats.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/operation.hpp"
#include "comm/run_operations.hpp"
#include "device/driver.hpp"

namespace tutti {
namespace {

// All but the count and the buffers; never 0.
std::uint64_t kind_of(const SmallCall& call) {
  return static_cast<std::uint64_t>(call.collective) << 56 |
         static_cast<std::uint64_t>(call.type) << 48 | static_cast<std::uint64_t>(call.op) << 40 |
         static_cast<std::uint32_t>(call.root);
}

std::uint64_t tag_of(std::uint64_t kind, std::uint64_t count) {
  return (kind ^ count << 20) * 0x9e3779b97f4a7c15u | 1;
}

}  // namespace

// What the buffers that this rank has must be; everything else the ordinary way tells.
bool Repeats::takes(const Kept& kept, const SmallCall& call) const {
  const auto from = reinterpret_cast<std::uintptr_t>(call.input);
  const auto to = reinterpret_cast<std::uintptr_t>(call.output);
  const bool input = kept.input_bytes > 0, output = kept.output_bytes > 0;
  if (input && (from == 0 || (from & kept.unaligned) != 0)) return false;
  if (output && (to == 0 || (to & kept.unaligned) != 0)) return false;
  if (device::driver_was_found() && ((input && device::driver_knows_for_device(call.input)) ||
                                     (output && device::driver_knows_for_device(call.output))))
    return false;
  if (!input || !output || from - kept.input_shift == to - kept.output_shift) return true;
  return from + kept.input_bytes <= to || to + kept.output_bytes <= from;
}

bool Repeats::can_run(const Kept& kept) const {
  const PlanCache& plans = communicator_.plans();
  return kept.generation == plans.generation() && plans.without_windows() &&
         communicator_.members().is_open() && !communicator_.members().disturbed();
}

void Repeats::enter(const StraightCall& call) {
  const auto& entry = static_cast<const Entry&>(call);
  Communicator& communicator = entry.repeats.communicator_;
  communicator.plans().note_last_plan(*entry.kept.plan);
  communicator.members().board().enter(call.operation, entry.kept.record);
}

bool Repeats::run(const SmallCall& call, std::optional<Status>& ended) {
  const std::uint64_t kind = kind_of(call), tag = tag_of(kind, call.count);
  // First of all: until calls on streams have ended, the thread that carries them out has the
  // plans.
  if (!communicator_.call_slot().drained()) return false;
  const Kept& kept = place_of(tag);
  if (kept.tag != tag || kept.kind != kind || kept.count != call.count) return false;
  if (!takes(kept, call) || !can_run(kept)) return false;
  OperationCounts& counts = communicator_.counts();
  const std::uint64_t operation = counts.issued + 1;
  PlanCache& plans = communicator_.plans();
  if (plans.use(*kept.plan, operation) > kept.plan->gate_passed) return false;
  counts.issued = operation;
  const Entry entry{
      {.enter = enter,
       .input_base = reinterpret_cast<std::uintptr_t>(call.input) - kept.input_shift,
       .output_base = reinterpret_cast<std::uintptr_t>(call.output) - kept.output_shift,
       .kernel = kept.kernel,
       .average_over = kept.average_over,
       .operation = operation,
       .signature = OperationSignature::hash_of(operation, kept.hash)},
      *this,
      kept};
  // Until it is time to ask whether the peer runs on this core.
  const WaitPolicy& policy = communicator_.wait_policy();
  const bool through =
      kept.plan->executor->run(kept.line, entry, std::min(policy.spins, policy.look_at));
  if (!through) [[unlikely]] {
    ended = go_on(kept, call, operation);
    return true;
  }
  communicator_.transport()->publish_done(operation);
  communicator_.members().board().leave(operation);
  ++counts.completed;
  counts.last_slices = 1;
  return true;
}

Status Repeats::go_on(const Kept& kept, const SmallCall& call, std::uint64_t operation) {
  Call whole = kept.call;
  whole.input = call.input;
  whole.output = call.output;
  OperationSignature signature = kept.signature;
  signature.operation = operation;
  return run_begun(communicator_, whole, *kept.plan, signature);
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
  if (!plans.without_windows() || plans.carries_fp32(call)) return;
  if (communicator_.on_device() != nullptr) return;
  const std::uint64_t kind = kind_of({call.collective, call.type, call.op, call.root});
  const std::uint64_t tag = tag_of(kind, call.count);
  Kept& kept = place_of(tag);
  const bool again = kept.kind == kind && kept.count == call.count;
  if (again && kept.generation == plans.generation()) return;
  kept.tag = 0;
  kept.kind = kind;
  kept.count = call.count;
  kept.generation = again ? plans.generation() : 0;
  if (!again) return;  // it has not repeated yet
  BoundPlan* const plan = plans.last_bound();
  if (plan == nullptr || !communicator_.shares_everything()) return;
  std::optional<StraightLine> line = plan->executor->straighten(call);
  if (!line) return;
  kept.line = *std::move(line);
  kept.call = call;
  kept.call.input = nullptr;
  kept.call.output = nullptr;
  kept.plan = plan;
  kept.signature = {.collective = call.collective,
                    .type = call.type,
                    .op = call.op,
                    .root = call.root,
                    .count = call.count,
                    .plan = plan->plan.id};
  kept.hash = kept.signature.hash_of_kind();
  kept.record = Board::record_of(kept.signature);
  kept.kernel = kernel_of(call);
  kept.average_over = averaged_over(call, ranks);
  kept.input_bytes = call.has_input(rank) ? call.input_bytes(rank, ranks) : 0;
  kept.output_bytes = call.has_output(rank) ? call.output_bytes(rank, ranks) : 0;
  kept.input_shift = reinterpret_cast<std::uintptr_t>(call.input) - call.input_base(rank);
  kept.output_shift = reinterpret_cast<std::uintptr_t>(call.output) - call.output_base(rank);
  kept.unaligned = element_bytes(call.type) - 1;
  kept.tag = tag;
}

}  // namespace tutti
