// SPDX-License-Identifier: Apache-2.0
// Threads that share the items of a loop. What an item computes must not depend on the thread.
//
// One thread owns the object and calls for_each(); it works along, so that Threads(1) starts none.
// Start it after fork(). Work must not throw.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace tutti::gpt {

class Threads {
 public:
  explicit Threads(int count);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  [[nodiscard]] int count() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls work(item, thread) for each item below `items`; returns when all have ended. `thread` is
  // below count(), for scratch memory.
  using Work = std::function<void(int item, int thread)>;
  void for_each(int items, const Work& work);

 private:
  void run(int thread);
  void take_items(int thread);

  std::vector<std::thread> workers_;
  const Work* work_ = nullptr;  // written before round_, read after it
  int items_ = 0;               // as work_
  std::atomic<int> next_item_{0};
  std::atomic<unsigned> round_{0};  // a new value starts the workers
  std::atomic<int> busy_{0};        // workers in this round
  bool stop_ = false;               // as work_
};

}  // namespace tutti::gpt
