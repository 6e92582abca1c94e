// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/threads.hpp"

namespace tutti::gpt {

Threads::Threads(int count) {
  for (int thread = 1; thread < count; ++thread)
    workers_.emplace_back([this, thread] { run(thread); });
}

Threads::~Threads() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in run()
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Threads::for_each(int items, const Work& work) {
  if (workers_.empty() || items <= 1) {
    for (int item = 0; item < items; ++item) work(item, 0);
    return;
  }
  work_ = &work;
  items_ = items;
  // Relaxed: published by the release below.
  next_item_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);  // pairs with the acquire in run()
  round_.notify_all();
  take_items(0);
  // Acquire: pairs with the release in run(), so that what the workers wrote is seen.
  for (int busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire))
    busy_.wait(busy, std::memory_order_acquire);
}

void Threads::run(int thread) {
  for (unsigned seen = 0;; ++seen) {
    round_.wait(seen, std::memory_order_acquire);
    if (stop_) return;
    take_items(thread);
    if (busy_.fetch_sub(1, std::memory_order_release) == 1) busy_.notify_one();
  }
}

void Threads::take_items(int thread) {
  // Relaxed: an item's input was published with the round, its output is with busy_.
  for (int item = next_item_.fetch_add(1, std::memory_order_relaxed); item < items_;
       item = next_item_.fetch_add(1, std::memory_order_relaxed))
    (*work_)(item, thread);
}

}  // namespace tutti::gpt
