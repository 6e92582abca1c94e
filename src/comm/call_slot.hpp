// SPDX-License-Identifier: Apache-2.0
// One call at a time: which call uses a communicator now, by name. Any thread asks; the thread that
// holds an InFlightCall is the only one that touches what is not said to be for any thread, once
// the calls on streams have ended, which the communicator's progress thread carries out.
#pragma once

#include <atomic>
#include <utility>

#include "base/result.hpp"
#include "stream/worker.hpp"

namespace tutti {

// The word that says it. A communicator's handle has it, and outlives the communicator: who has
// taken the word and finds the handle still valid has the communicator too.
class CallWord {
 public:
  // A literal; null: none.
  [[nodiscard]] const char* call() const { return call_.load(std::memory_order_acquire); }
  // Null, or the call that was there first.
  [[nodiscard]] const char* take(const char* call) {
    const char* other = nullptr;
    // What the last call did is seen by this one: pairs with the release in give_back(). And in one
    // order with the lives of handles.
    call_.compare_exchange_strong(other, call, std::memory_order_seq_cst);
    return other;
  }
  void give_back() { call_.store(nullptr, std::memory_order_release); }

 private:
  std::atomic<const char*> call_{nullptr};
};

class CallSlot {
 public:
  // `word`: null where no handle has one.
  CallSlot(const Worker& progress, CallWord* word)
      : progress_(progress), word_(word != nullptr ? *word : own_) {}

  [[nodiscard]] const char* call() const { return word_.call(); }
  // The end of the communicator: no call begins any more. Not to be waited for.
  static constexpr const char* kDestroy = "tuttiCommDestroy";
  [[nodiscard]] const char* take(const char* call) { return word_.take(call); }
  void give_back() { word_.give_back(); }
  // Until no call but the end is there.
  void await_free() const;
  // Have the calls on streams ended?
  [[nodiscard]] bool drained() const { return progress_.idle(); }
  // Until the calls on streams have ended. Errors: those of Completion::wait().
  [[nodiscard]] Status drain() const { return progress_.idle() ? Status() : progress_.drain(); }

 private:
  const Worker& progress_;
  CallWord own_;
  CallWord& word_;
};

// Holds a communicator for the time of a call, which begins when the calls on streams have ended.
// Empty where another call holds it, which status() names, and where the wait fails.
class InFlightCall {
 public:
  InFlightCall(CallSlot& slot, const char* call) : InFlightCall(&slot, slot.take(call)) {
    if (other_ == nullptr) drained_ = slot.drain();
  }
  // Of a call that is put on a stream: it waits for none.
  [[nodiscard]] static InFlightCall issuing(CallSlot& slot, const char* call) {
    return {&slot, slot.take(call)};
  }
  InFlightCall(InFlightCall&& from) noexcept
      : slot_(std::exchange(from.slot_, nullptr)),
        other_(from.other_),
        drained_(std::move(from.drained_)) {}
  InFlightCall& operator=(InFlightCall&&) = delete;
  ~InFlightCall() {
    if (slot_ != nullptr && other_ == nullptr) slot_->give_back();
  }
  [[nodiscard]] explicit operator bool() const { return other_ == nullptr && drained_; }
  // kInvalidUsage with the other call's name, or what drain() said.
  [[nodiscard]] Status status() const;

 private:
  InFlightCall(CallSlot* slot, const char* other) : slot_(slot), other_(other) {}

  CallSlot* slot_;
  const char* other_;
  Status drained_;
};

}  // namespace tutti
