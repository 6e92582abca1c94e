// SPDX-License-Identifier: Apache-2.0
#include "stream/worker.hpp"

#include <algorithm>
#include <utility>

#include "control/thread.hpp"

namespace tutti {

Status Worker::start() {
  if (ending_) return make_error(Code::kInvalidUsage, "the stream was destroyed");
  if (thread_ != nullptr) return {};
  auto thread = std::make_unique<std::thread>();
  TUTTI_TRY_ASSIGN(*thread, control::spawn_thread(
                                name_, [this] { run(); }, control::Runs::kCallsOfProgram));
  thread_ = std::move(thread);
  return {};
}

Result<CompletionRef> Worker::enqueue(std::vector<CompletionRef> after, Work work) {
  const std::lock_guard lock(mutex_);
  TUTTI_TRY(start());
  if (last_ != nullptr) after.push_back(last_);
  std::erase_if(after, [](const CompletionRef& before) { return before->done(); });
  const auto completion = std::make_shared<Completion>(after);
  // First, as memory may end: a signal too many does no harm.
  for (const CompletionRef& before : after) before->tell(signal_);
  items_.push_back({completion, std::move(work)});
  last_ = completion;
  ++given_;
  signal_->raise();
  return completion;
}

Status Worker::drain() const {
  if (generation_ != fork_generation()) return {};
  CompletionRef last;
  {
    const std::lock_guard lock(mutex_);
    last = last_;
  }
  return last == nullptr ? Status() : last->wait();
}

void Worker::hurry() {
  hurries_ = true;
  signal_->raise();
}

void Worker::end() {
  if (generation_ != fork_generation()) {
    static_cast<void>(thread_.release());  // the parent's thread: neither joined nor destroyed
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  signal_->raise();
  if (thread_ == nullptr) return;
  thread_->join();
  thread_.reset();
}

void Worker::carry_out(const Item& item) {
  for (;;) {
    const std::uint32_t seen = signal_->seen();
    if (hurries_ || item.completion->may_begin()) break;
    signal_->sleep(seen);
  }
  {
    const ScopedWork here(*item.completion);
    item.work();
  }
  ++ended_;
  item.completion->complete();
}

void Worker::run() {
  for (;;) {
    const std::uint32_t seen = signal_->seen();
    Item item;
    bool ending = false;
    {
      const std::lock_guard lock(mutex_);
      ending = ending_;
      if (!items_.empty()) {
        item = std::move(items_.front());
        items_.pop_front();
      }
    }
    if (item.completion != nullptr) {
      carry_out(item);
    } else if (ending) {
      return;
    } else {
      signal_->sleep(seen);
    }
  }
}

}  // namespace tutti
