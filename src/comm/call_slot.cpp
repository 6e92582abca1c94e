// SPDX-License-Identifier: Apache-2.0
#include "comm/call_slot.hpp"

#include <fmt/core.h>

#include "exec/waiter.hpp"

namespace tutti {

void CallSlot::await_free() const {
  Waiter waiter({.spins = 100});
  for (const char* call = this->call(); call != nullptr && call != kDestroy; call = this->call())
    (void)waiter.wait();
}

Status InFlightCall::status() const {
  if (other_ == nullptr && drained_) return {};
  if (other_ == nullptr) return tl::unexpected(drained_.error());
  return make_error(Code::kInvalidUsage,
                    fmt::format("another thread is in {} on this communicator: one thread at a "
                                "time may use it; wait for that call, or end it by tuttiCommAbort",
                                other_));
}

}  // namespace tutti
