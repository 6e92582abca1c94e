// SPDX-License-Identifier: Apache-2.0
#include "comm/run_operations.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "comm/operation.hpp"
#include "comm/straight_transfers.hpp"
#include "comm/transfers.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// How many waiting rounds pass between looks at the poison word while spinning.
constexpr std::uint32_t kPoisonPollRounds = 64;

// Asks, once in a wait that has become longer than most, and at once after it was so.
void look_for_peer(const OngoingCall& call, Waiter& waiter, WaitPolicy& policy) {
  const bool here = call.peer_shares_core();
  if (here) waiter.stop_spinning();
  policy.look_at = here ? 1 : WaitPolicy::kFirstLook;
}

// Whose thread runs a call: another one of the program may make the call that a progress thread
// waits for.
enum class Thread { kOfProgram, kOfProgress };

Status carry_out(OngoingCall& call, WaitPolicy& policy, Thread thread) {
  TUTTI_TRY(call.start());
  Waiter waiter(policy);
  std::uint32_t rounds = 0;
  while (!call.done()) {
    TUTTI_TRY_ASSIGN(const bool moved, call.advance());
    if (moved) {
      waiter.reset();
      continue;
    }
    if (waiter.should_look()) look_for_peer(call, waiter, policy);
    const bool slow = waiter.wait([&](std::int64_t ns) { return call.block(ns); });
    if (slow || ++rounds % kPoisonPollRounds == 0)
      if (slow || call.disturbed()) TUTTI_TRY(call.look_around(waiter.waited_ns()));
    if (slow && !call.done() && thread == Thread::kOfProgram)
      TUTTI_TRY(call.look_for_group(waiter.waited_ns()));
  }
  return {};
}

Status run(OngoingCall& call, WaitPolicy& policy, Thread thread) {
  try {
    Status status = carry_out(call, policy, thread);
    if (!status) call.give_up();
    return status;
  } catch (...) {
    call.give_up_by_exception();
    throw;
  }
}

// Sends and receives; the communicator is held.
Status run_together(Communicator& communicator, std::span<const Transfer> all) {
  const TransfersLeft left = run_straight(communicator, all);
  if (left.none(all.size())) return {};
  Transfers transfers(communicator);
  try {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (left.has(all[i], i)) transfers.add(all[i]);
  } catch (...) {
    communicator.cannot_come();  // the others must not wait for this rank
    throw;
  }
  return run(transfers, communicator.wait_policy(), Thread::kOfProgram);
}

Status run_alone(Communicator& communicator, const Call& call) {
  const char* const name = call.info().name.data();
  const InFlightCall in_flight(communicator.call_slot(), name);
  if (!in_flight) return in_flight.status();
  if (is_point_to_point(call.collective)) {
    const Transfer transfer = Transfer::of(call, communicator.pairs().part_of(call));
    return run_together(communicator, std::span(&transfer, 1));
  }
  Operation operation(communicator, call);
  TUTTI_TRY(run(operation, communicator.wait_policy(), Thread::kOfProgram));
  communicator.repeats().keep(call);
  return {};
}

// What a communicator has left to do in a group: its operations in issue order, and beside them its
// sends and receives, all together.
struct Queue {
  Communicator* communicator = nullptr;
  // Ends in the reverse order: the calls, the call slot, what holds the communicator.
  std::vector<std::shared_ptr<const void>> holds;
  std::optional<InFlightCall> in_flight;  // given back when all has ended
  std::deque<Operation> operations;
  std::unique_ptr<Transfers> transfers;  // null: none, or none any more
  bool operation_started = false;        // the first
  bool transfers_started = false;

  void add(const Call& call) {
    if (!is_point_to_point(call.collective)) {
      operations.emplace_back(*communicator, call);
      return;
    }
    if (transfers == nullptr) transfers = std::make_unique<Transfers>(*communicator);
    transfers->add(call);
  }
  [[nodiscard]] bool done() const { return operations.empty() && transfers == nullptr; }
};

// One turn. True if it moved or ended.
Result<bool> turn(OngoingCall& call, bool& started, std::int64_t waited_ns, bool slow) {
  if (!std::exchange(started, true)) {
    TUTTI_TRY(call.start());
    return true;
  }
  TUTTI_TRY_ASSIGN(const bool moved, call.advance());
  if (moved || call.done()) return true;
  if (slow || call.disturbed()) TUTTI_TRY(call.look_around(waited_ns));
  return false;
}

// A turn after whose error or exception the call is done; the group goes on.
Result<bool> guarded_turn(OngoingCall& call, bool& started, std::int64_t waited_ns, bool slow) {
  try {
    Result<bool> moved = turn(call, started, waited_ns, slow);
    if (!moved) call.give_up();
    return moved;
  } catch (const std::exception& error) {
    call.give_up_by_exception();
    return make_error(Code::kSystemError, error.what());
  }
}

// Errors: kInvalidUsage where another thread is in a call of one of the communicators.
Result<std::vector<Queue>> make_queues(std::span<HeldCall> calls) {
  std::vector<Queue> queues;
  for (auto& [communicator, call, hold, stream] : calls) {
    auto queue = std::ranges::find(queues, communicator, &Queue::communicator);
    if (queue == queues.end()) {
      InFlightCall in_flight(communicator->call_slot(), "tuttiGroupEnd");
      if (!in_flight) return tl::unexpected(in_flight.status().error());
      queues.emplace_back();
      queues.back().communicator = communicator;
      queues.back().in_flight.emplace(std::move(in_flight));
      queue = queues.end() - 1;
    }
    queue->add(call);
    queue->holds.push_back(std::move(hold));
  }
  return queues;
}

// By turns, until all are done.
Status run_queues(std::vector<Queue>& queues) {
  Status first_error;
  Waiter waiter(queues[0].communicator->wait_policy());
  bool slow = false;
  const auto carry = [&](OngoingCall& call, bool& started) {
    const Result<bool> result = guarded_turn(call, started, waiter.waited_ns(), slow);
    if (!result && first_error) first_error = tl::unexpected(result.error());
    return !result || *result;
  };
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (Queue& queue : queues) {
      if (queue.done()) continue;
      left = true;
      if (!queue.operations.empty()) {
        moved |= carry(queue.operations.front(), queue.operation_started);
        if (queue.operations.front().done()) {
          queue.operations.pop_front();
          queue.operation_started = false;
        }
      }
      if (queue.transfers != nullptr) {
        moved |= carry(*queue.transfers, queue.transfers_started);
        if (queue.transfers->done()) queue.transfers.reset();
      }
      if (!queue.done()) continue;
      queue.in_flight.reset();
      queue.holds.clear();
    }
    slow = false;
    if (moved)
      waiter.reset();
    else if (left)
      slow = waiter.wait();
  }
  return first_error;
}

}  // namespace

Status hold_slot(HeldSlots& slots, const HeldCall& held) {
  if (slots.contains(held.communicator)) return {};
  const Whole whole = held.call.whole;  // its name or the call's own, both literals
  const std::string_view name = whole == Whole::kItself
                                    ? info_of(held.call.collective).name
                                    : kWholeNames[static_cast<std::size_t>(whole)];
  InFlightCall own(held.communicator->call_slot(), name.data());
  if (!own) return own.status();
  slots.emplace(held.communicator, std::move(own));
  return {};
}

Status run_operations(std::span<HeldCall> calls) {
  if (calls.size() == 1) return run_alone(*calls[0].communicator, calls[0].call);
  TUTTI_TRY_ASSIGN(std::vector<Queue> queues, make_queues(calls));
  return run_queues(queues);
}

Status run_begun(Communicator& communicator, const Call& call, BoundPlan& plan,
                 const OperationSignature& signature, Status pump_error) {
  Operation operation(communicator, call);
  operation.begin(plan, signature, std::move(pump_error));
  return run(operation, communicator.wait_policy(), Thread::kOfProgram);
}

Status run_transfers(Communicator& communicator, std::span<const Transfer> transfers,
                     const char* name) {
  const InFlightCall in_flight(communicator.call_slot(), name);
  if (!in_flight) return in_flight.status();
  return run_together(communicator, transfers);
}

Status run_parts(Communicator& communicator, Parts& parts, const char* name) {
  const InFlightCall in_flight(communicator.call_slot(), name);
  if (!in_flight) return in_flight.status();
  const PartOf part = communicator.pairs().part_of(parts.whole, parts.made_by);
  for (Transfer& transfer : parts.transfers) transfer.part = part;
  return run_together(communicator, parts.transfers);
}

Status run_issued(Communicator& communicator, std::span<const Call> calls) {
  WaitPolicy& policy = communicator.wait_policy();
  if (calls.size() == 1 && !is_point_to_point(calls[0].collective)) {
    Operation operation(communicator, calls[0]);
    return run(operation, policy, Thread::kOfProgress);
  }
  std::vector<Queue> queue(1);
  queue[0].communicator = &communicator;
  for (const Call& call : calls) queue[0].add(call);
  if (!queue[0].operations.empty()) return run_queues(queue);
  return run(*queue[0].transfers, policy, Thread::kOfProgress);
}

}  // namespace tutti
