// SPDX-License-Identifier: Apache-2.0
// A thread that carries out work in the order in which it was given, each piece when all that it
// comes after has ended. The thread starts with the first piece and sleeps while there is none.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/process_fd.hpp"
#include "stream/completion.hpp"

namespace tutti {

class Worker {
 public:
  // `name`, of the thread: a literal of at most 15 bytes.
  explicit Worker(const char* name) : name_(name) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { end(); }

  // Must not throw.
  using Work = std::function<void()>;
  // Gives the worker a piece of work that comes after `after` and after what the worker has been
  // given before. Any thread. Errors: kSystemError where the thread cannot start, kInvalidUsage
  // after end(); it is not carried out then.
  [[nodiscard]] Result<CompletionRef> enqueue(std::vector<CompletionRef> after, Work work);
  // Has all that was given ended? Any thread; what the work did is seen where it has.
  [[nodiscard]] bool idle() const { return given_.load() == ended_.load(); }
  // Blocks until it has; not in a forked child, which has no such thread. Errors: those of
  // Completion::wait().
  [[nodiscard]] Status drain() const;
  // From now on nothing waits for what it comes after. Any thread.
  void hurry();
  // Carries out what is left, and ends the thread. Not in that thread. Idempotent.
  void end();

 private:
  struct Item {
    CompletionRef completion;
    Work work;
  };
  [[nodiscard]] Status start();  // with mutex_ held
  void run();
  void carry_out(const Item& item);

  const char* const name_;
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::atomic<std::uint64_t> given_{0}, ended_{0};
  std::atomic<bool> hurries_{false};
  mutable std::mutex mutex_;
  std::deque<Item> items_;               // guarded by mutex_
  CompletionRef last_;                   // guarded by mutex_; of what was given last
  bool ending_ = false;                  // guarded by mutex_
  std::unique_ptr<std::thread> thread_;  // made under mutex_
  const std::uint64_t generation_ = fork_generation();
};

}  // namespace tutti
