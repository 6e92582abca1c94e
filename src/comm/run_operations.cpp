// SPDX-License-Identifier: Apache-2.0
#include "comm/run_operations.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "comm/operation.hpp"
#include "comm/transfers.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// How many waiting rounds pass between looks at the poison word while spinning.
constexpr std::uint32_t kPoisonPollRounds = 64;

// Asks, once in a wait that has become longer than most, and at once after it was so.
void look_for_peer(const LongWait& operation, Waiter& waiter, WaitPolicy& policy) {
  const bool here = operation.peer_shares_core();
  if (here) waiter.stop_spinning();
  policy.look_at = here ? 1 : WaitPolicy::kFirstLook;
}

template <typename Work>
Status carry_out(Work& operation, WaitPolicy& policy) {
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

template <typename Work>
Status run_work(Communicator& communicator, Work& work) {
  try {
    const Status status = carry_out(work, communicator.wait_policy());
    if (!status) work.give_up();
    return status;
  } catch (...) {
    work.give_up_by_exception();
    throw;
  }
}

Status run_alone(Communicator& communicator, const Call& call) {
  if (is_point_to_point(call.collective))
    return run_transfers(communicator, {&call, 1}, call.info().name.data());
  const InFlightCall in_flight(communicator.call_slot(), info_of(call.collective).name.data());
  if (!in_flight) return in_flight.status();
  Operation operation(communicator, call);
  return run_work(communicator, operation);
}

// What a communicator does in a group: its operations in issue order, and beside them its sends and
// receives, all together.
struct Queue {
  template <typename Work>
  struct Entry {
    explicit Entry(Communicator& communicator) : work(communicator) {}
    Entry(Communicator& communicator, const Call& call) : work(communicator, call) {}
    Work work;
    bool started = false;
  };
  Communicator* communicator = nullptr;
  std::deque<Entry<Operation>> operations;
  std::size_t next = 0;
  std::unique_ptr<Entry<Transfers>> transfers;
  std::vector<std::shared_ptr<const void>> holds;  // let go after the call slot
  std::optional<InFlightCall> in_flight;           // given back when all has ended

  void add(const Call& call) {
    if (!is_point_to_point(call.collective)) {
      operations.emplace_back(*communicator, call);
      return;
    }
    if (transfers == nullptr) transfers = std::make_unique<Entry<Transfers>>(*communicator);
    transfers->work.add(call);
  }
  [[nodiscard]] bool done() const {
    return next == operations.size() && (transfers == nullptr || transfers->work.done());
  }
};

// One turn. True if it moved or ended.
template <typename Work>
Result<bool> turn(Queue::Entry<Work>& entry, std::int64_t waited_ns, bool slow) {
  if (!std::exchange(entry.started, true)) {
    TUTTI_TRY(entry.work.start());
    return true;
  }
  TUTTI_TRY_ASSIGN(const bool moved, entry.work.advance());
  if (moved || entry.work.done()) return true;
  if (slow || entry.work.disturbed()) TUTTI_TRY(entry.work.look_around(waited_ns));
  return false;
}

// A turn after whose error or exception the work is done; the group goes on.
template <typename Work>
Result<bool> guarded_turn(Queue::Entry<Work>& entry, std::int64_t waited_ns, bool slow) {
  try {
    Result<bool> moved = turn(entry, waited_ns, slow);
    if (!moved) entry.work.give_up();
    return moved;
  } catch (const std::exception& error) {
    entry.work.give_up_by_exception();
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
      queues.push_back({communicator, {}, 0, nullptr, {}, std::move(in_flight)});
      queue = queues.end() - 1;
    }
    queue->add(call);
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
  const auto carry = [&](auto& entry) {
    const Result<bool> result = guarded_turn(entry, waiter.waited_ns(), slow);
    if (!result && first_error) first_error = tl::unexpected(result.error());
    return !result || *result;
  };
  for (bool left = true; left;) {
    left = false;
    bool moved = false;
    for (Queue& queue : queues) {
      if (queue.done()) continue;
      left = true;
      if (queue.next < queue.operations.size()) {
        auto& entry = queue.operations[queue.next];
        moved |= carry(entry);
        if (entry.work.done()) ++queue.next;
      }
      if (queue.transfers != nullptr && !queue.transfers->work.done())
        moved |= carry(*queue.transfers);
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

Status run_transfers(Communicator& communicator, std::span<const Call> calls, const char* name) {
  const InFlightCall in_flight(communicator.call_slot(), name);
  if (!in_flight) return in_flight.status();
  Transfers transfers(communicator);
  for (const Call& call : calls) transfers.add(call);
  return run_work(communicator, transfers);
}

}  // namespace tutti
