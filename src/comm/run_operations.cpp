// SPDX-License-Identifier: Apache-2.0
#include "comm/run_operations.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "comm/operation.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// How many waiting rounds pass between looks at the poison word while spinning.
constexpr std::uint32_t kPoisonPollRounds = 64;

// Asks, once in a wait that has become longer than most, and at once after it was so.
void look_for_peer(const Operation& operation, Waiter& waiter, WaitPolicy& policy) {
  const bool here = operation.peer_shares_core();
  if (here) waiter.stop_spinning();
  policy.look_at = here ? 1 : WaitPolicy::kFirstLook;
}

Status carry_out(Operation& operation, WaitPolicy& policy) {
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
    if (slow && !operation.done()) TUTTI_TRY(operation.look_for_group(waiter.waited_ns()));
  }
  return {};
}

Status run_alone(Communicator& communicator, const Call& call) {
  const InFlightCall in_flight(communicator.call_slot(), info_of(call.collective).name.data());
  if (!in_flight) return in_flight.status();
  Operation operation(communicator, call);
  try {
    const Status status = carry_out(operation, communicator.wait_policy());
    if (!status) operation.give_up();
    return status;
  } catch (...) {
    operation.give_up_by_exception();
    throw;
  }
}

// The operations of one communicator in a group, in issue order.
struct Queue {
  struct Entry {
    Operation operation;
    bool started = false;
  };
  Communicator* communicator = nullptr;
  std::vector<Entry> entries;
  std::size_t next = 0;
  std::optional<InFlightCall> in_flight;           // given back when the last entry has ended
  std::vector<std::shared_ptr<const void>> holds;  // let go after that
};

// One turn. True if it moved or ended.
Result<bool> turn(Queue::Entry& entry, std::int64_t waited_ns, bool slow) {
  if (!std::exchange(entry.started, true)) {
    TUTTI_TRY(entry.operation.start());
    return true;
  }
  TUTTI_TRY_ASSIGN(const bool moved, entry.operation.advance());
  if (moved || entry.operation.done()) return true;
  if (slow || entry.operation.disturbed()) TUTTI_TRY(entry.operation.look_around(waited_ns));
  return false;
}

// A turn whose exception ends every operation of the group before it goes on.
Result<bool> guarded_turn(Queue::Entry& entry, std::int64_t waited_ns, bool slow) {
  try {
    return turn(entry, waited_ns, slow);
  } catch (const std::exception& error) {
    entry.operation.give_up_by_exception();
    return make_error(Code::kSystemError, error.what());
  }
}

// Errors: kInvalidUsage where another thread is in a call of one of the communicators.
Result<std::vector<Queue>> make_queues(std::span<HeldCall> calls) {
  std::vector<Queue> queues;
  for (auto& [communicator, call, hold] : calls) {
    auto queue = std::ranges::find(queues, communicator, &Queue::communicator);
    if (queue == queues.end()) {
      InFlightCall in_flight(communicator->call_slot(), "tuttiGroupEnd");
      if (!in_flight) return tl::unexpected(in_flight.status().error());
      queues.push_back({communicator, {}, 0, std::move(in_flight), {}});
      queue = queues.end() - 1;
    }
    queue->entries.push_back({Operation(*communicator, call)});
    queue->holds.push_back(std::move(hold));
  }
  return queues;
}

}  // namespace

Status run_operations(std::span<HeldCall> calls) {
  if (calls.size() == 1) return run_alone(*calls[0].communicator, calls[0].call);
  TUTTI_TRY_ASSIGN(std::vector<Queue> queues, make_queues(calls));
  Status first_error;
  Waiter waiter(calls[0].communicator->wait_policy());
  bool slow = false;
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (Queue& queue : queues) {
      if (queue.next == queue.entries.size()) continue;
      left = true;
      Queue::Entry& entry = queue.entries[queue.next];
      const Result<bool> result = guarded_turn(entry, waiter.waited_ns(), slow);
      if (!result && first_error) first_error = tl::unexpected(result.error());
      if (!result) entry.operation.give_up();
      moved |= !result || *result;
      if (entry.operation.done() && ++queue.next == queue.entries.size()) {
        queue.in_flight.reset();
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
