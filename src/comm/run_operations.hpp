// SPDX-License-Identifier: Apache-2.0
// Carries calls out in the calling thread: one alone, or those of a group by turns, so that one
// thread can carry many ranks.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "base/call.hpp"
#include "base/result.hpp"
#include "base/signature.hpp"
#include "comm/call_slot.hpp"
#include "comm/transfer.hpp"
#include "stream/stream.hpp"

namespace tutti {

class Communicator;
struct BoundPlan;

// A call, and what keeps its communicator alive until it has ended; null: the caller does.
struct HeldCall {
  Communicator* communicator = nullptr;
  Call call;
  std::shared_ptr<const void> hold;
  std::shared_ptr<Stream> stream = nullptr;  // host memory's; null: the calling thread runs it
};

// The communicators that a thread's calls hold.
using HeldSlots = std::map<Communicator*, InFlightCall>;
// Adds the call's, if it is not held yet. kInvalidUsage naming the call of another thread that
// holds it.
[[nodiscard]] Status hold_slot(HeldSlots& slots, const HeldCall& held);

// Runs operations in the calling thread until all are done. Those of one communicator run in the
// order given, beside its sends and receives; those of different communicators by turns. Returns
// the first error; every operation has ended then. Of several, what holds a communicator is let go
// as soon as its own have ended, so that an abort waits for no other communicator.
[[nodiscard]] Status run_operations(std::span<HeldCall> calls);

// Runs an operation to its end that has begun (Operation::begin). The caller holds its slot.
[[nodiscard]] Status run_begun(Communicator& communicator, const Call& call, BoundPlan& plan,
                               const OperationSignature& signature, Status pump_error);

// Runs sends and receives of one communicator, all together, as one call named `name` (a literal).
[[nodiscard]] Status run_transfers(Communicator& communicator, std::span<const Transfer> transfers,
                                   const char* name);
// The same of those that are parts of one call. They get its number.
[[nodiscard]] Status run_parts(Communicator& communicator, Parts& parts, const char* name);

// Runs calls of one communicator together, in its progress thread, while no other thread can be in
// a call that looks at what they change. Errors: as of run_operations().
[[nodiscard]] Status run_issued(Communicator& communicator, std::span<const Call> calls);

}  // namespace tutti
