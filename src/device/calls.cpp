// SPDX-License-Identifier: Apache-2.0
#include "device/calls.hpp"

#include <utility>

#include "base/clock.hpp"

namespace tutti::device {

bool Calls::begin(const OperationSignature& signature, bool captured) {
  const std::lock_guard lock(mutex_);
  running_.push_back({signature, now_ns(), captured, false});
  return !std::exchange(looked_after_, true);
}

Calls::Now Calls::now(std::uint64_t left) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before = ended_;
  while (!running_.empty() &&
         (running_.front().captured || running_.front().signature.operation <= left)) {
    ended_ = running_.front().signature.operation;
    running_.pop_front();
  }
  if (running_.empty()) return {ended_, std::nullopt};
  if (ended_ != before) running_.front().since_ns = now_ns();
  return {ended_, running_.front()};
}

bool Calls::warns_of(const RunningCall& call) {
  const std::lock_guard lock(mutex_);
  return !running_.empty() && running_.front().signature.operation == call.signature.operation &&
         !std::exchange(running_.front().warned, true);
}

bool Calls::at_rest() {
  const std::lock_guard lock(mutex_);
  looked_after_ = !running_.empty();
  return !looked_after_;
}

}  // namespace tutti::device
