// SPDX-License-Identifier: Apache-2.0
#include "stream/completion.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti {
namespace {

constinit thread_local const Completion* current = nullptr;

// Does `work` begin only after `other`, or is it that one? Each piece of work waits for what was
// issued before it, so this ends.
bool comes_after(const Completion& work, const Completion& other) {
  if (&work == &other) return true;
  std::vector<CompletionRef> left = work.after();
  std::set<const Completion*> seen;
  while (!left.empty()) {
    const CompletionRef one = std::move(left.back());
    left.pop_back();
    if (one.get() == &other) return true;
    if (one->done() || !seen.insert(one.get()).second) continue;
    for (CompletionRef& before : one->after()) left.push_back(std::move(before));
  }
  return false;
}

}  // namespace

void Completion::complete() {
  std::vector<CompletionRef> after;
  std::vector<std::shared_ptr<Signal>> waiting;
  {
    const std::lock_guard lock(mutex_);
    // Release pairs with the acquire in done() and wait(): who sees it sees the work's results.
    done_.store(1, std::memory_order_release);
    after.swap(after_);
    waiting.swap(waiting_);
  }
  done_.notify_all();
  for (const std::shared_ptr<Signal>& signal : waiting) signal->raise();
}

void Completion::tell(std::shared_ptr<Signal> signal) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      waiting_.push_back(std::move(signal));
      return;
    }
  }
  signal->raise();
}

std::vector<CompletionRef> Completion::after() const {
  const std::lock_guard lock(mutex_);
  return after_;
}

bool Completion::may_begin() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(after_, &Completion::done);
}

Status Completion::wait() const {
  if (done()) return {};
  if (current != nullptr && comes_after(*this, *current))
    return make_error(Code::kInvalidUsage,
                      "a function on a stream waits for work that begins only after the function; "
                      "put the call on a stream, or make it when the function has returned");
  done_.wait(0, std::memory_order_acquire);
  return {};
}

const Completion* current_work() { return current; }

ScopedWork::ScopedWork(const Completion& work) { current = &work; }
ScopedWork::~ScopedWork() { current = nullptr; }

}  // namespace tutti
