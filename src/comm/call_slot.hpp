// SPDX-License-Identifier: Apache-2.0
// One call at a time: which call uses a communicator now, by name. Any thread asks; the thread that
// holds an InFlightCall is the only one that touches what is not said to be for any thread.
#pragma once

#include <atomic>
#include <utility>

#include "base/result.hpp"

namespace tutti {

class CallSlot {
 public:
  // A literal; null: none.
  [[nodiscard]] const char* call() const { return call_.load(std::memory_order_acquire); }
  // The end of the communicator: no call begins any more. Not to be waited for.
  static constexpr const char* kDestroy = "tuttiCommDestroy";
  // Null, or the call that was there first.
  [[nodiscard]] const char* take(const char* call) {
    const char* other = nullptr;
    // Acquire pairs with the release in give_back(): what the last call did is seen by this one.
    call_.compare_exchange_strong(other, call, std::memory_order_acquire);
    return other;
  }
  void give_back() { call_.store(nullptr, std::memory_order_release); }
  // Until no call but the end is there.
  void await_free() const;

 private:
  std::atomic<const char*> call_{nullptr};
};

// Holds a communicator for the time of a call. Empty where another call holds it: status() then
// names that.
class InFlightCall {
 public:
  InFlightCall(CallSlot& slot, const char* call) : slot_(&slot), other_(slot.take(call)) {}
  InFlightCall(InFlightCall&& from) noexcept
      : slot_(std::exchange(from.slot_, nullptr)), other_(from.other_) {}
  InFlightCall& operator=(InFlightCall&&) = delete;
  ~InFlightCall() {
    if (slot_ != nullptr && other_ == nullptr) slot_->give_back();
  }
  [[nodiscard]] explicit operator bool() const { return other_ == nullptr; }
  // kInvalidUsage with the other call's name.
  [[nodiscard]] Status status() const;

 private:
  CallSlot* slot_;
  const char* other_;
};

}  // namespace tutti
