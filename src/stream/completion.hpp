// SPDX-License-Identifier: Apache-2.0
// The end of one piece of asynchronous work, and what sleeps until it has come. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"

namespace tutti {

// Wakes a thread that waits for one of several things. The thread reads seen(), looks at the
// things, and sleeps only if none has happened: what happens after seen() ends the sleep.
class Signal {
 public:
  // Acquire and release: what was done before raise() is seen after the sleep.
  [[nodiscard]] std::uint32_t seen() const { return raised_.load(std::memory_order_acquire); }
  void raise() {
    raised_.fetch_add(1, std::memory_order_release);
    raised_.notify_all();
  }
  void sleep(std::uint32_t seen) const { raised_.wait(seen, std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> raised_{0};
};

class Completion;
using CompletionRef = std::shared_ptr<Completion>;

class Completion {
 public:
  // Of work that begins after `after`.
  explicit Completion(std::vector<CompletionRef> after) : after_(std::move(after)) {}

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  // The work has ended, well or not. Once.
  void complete();
  // Raises `signal` when done, at once if it is.
  void tell(std::shared_ptr<Signal> signal);
  // What the work begins after, while it is not done.
  [[nodiscard]] std::vector<CompletionRef> after() const;
  // Has all that the work begins after ended?
  [[nodiscard]] bool may_begin() const;
  // Blocks. Errors: kInvalidUsage in a function whose own end this waits for, directly or not.
  [[nodiscard]] Status wait() const;

 private:
  std::atomic<std::uint32_t> done_{0};
  mutable std::mutex mutex_;
  std::vector<CompletionRef> after_;              // guarded by mutex_; empty once done
  std::vector<std::shared_ptr<Signal>> waiting_;  // guarded by mutex_
};

// The work that the calling thread carries out; null: it is no worker, or has none.
[[nodiscard]] const Completion* current_work();

// Says, for the time of a piece of work, that the calling thread carries it out.
class ScopedWork {
 public:
  explicit ScopedWork(const Completion& work);
  ScopedWork(const ScopedWork&) = delete;
  ScopedWork& operator=(const ScopedWork&) = delete;
  ~ScopedWork();
};

}  // namespace tutti
