// SPDX-License-Identifier: Apache-2.0
#include "stream/stream.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

Status in_its_process(std::uint64_t generation) {
  if (generation == fork_generation()) return {};
  return make_error(Code::kInvalidUsage,
                    "it was inherited by fork; only the process that made it may use it");
}

bool all_done(const std::vector<CompletionRef>& work) {
  return std::ranges::all_of(work, &Completion::done);
}

Status wait_for_all(const std::vector<CompletionRef>& work) {
  for (const CompletionRef& one : work) TUTTI_TRY(one->wait());
  return {};
}

void drop_done(std::vector<CompletionRef>& work) {
  std::erase_if(work, [](const CompletionRef& one) { return one->done(); });
}

}  // namespace

std::vector<CompletionRef> Stream::after() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

// Another thread may have put work on the stream since `after` was read; that stays.
void Stream::replace(const std::vector<CompletionRef>& after, const CompletionRef& work) {
  drop_done(last_);
  std::erase_if(last_, [&](const CompletionRef& one) {
    return std::ranges::find(after, one) != after.end();
  });
  last_.push_back(work);
}

void Stream::make_room() {
  const std::lock_guard lock(mutex_);
  last_.reserve(last_.size() + 1);
}

void Stream::put(const CompletionRef& work, const std::vector<CompletionRef>& after) {
  const std::lock_guard lock(mutex_);
  replace(after, work);
}

void Stream::wait_for(const std::vector<CompletionRef>& work) {
  const std::lock_guard lock(mutex_);
  drop_done(last_);
  last_.insert(last_.end(), work.begin(), work.end());
}

Status Stream::call(Worker::Work function) {
  TUTTI_TRY(in_its_process(generation_));
  const std::lock_guard lock(mutex_);
  const std::vector<CompletionRef> after = last_;
  last_.reserve(last_.size() + 1);  // once it is enqueued, nothing may fail
  TUTTI_TRY_ASSIGN(const CompletionRef work, functions_.enqueue(after, std::move(function)));
  replace(after, work);
  return {};
}

void Stream::fail(Error error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = std::move(error);
}

Result<bool> Stream::done() const {
  TUTTI_TRY(in_its_process(generation_));
  return all_done(after());
}

Status Stream::drain() {
  TUTTI_TRY(in_its_process(generation_));
  return wait_for_all(after());
}

Status Stream::synchronize() {
  TUTTI_TRY(drain());
  const std::lock_guard lock(mutex_);
  drop_done(last_);
  if (!failed_) return {};
  return tl::unexpected(*std::exchange(failed_, std::nullopt));
}

void Event::record(const Stream& stream) {
  std::vector<CompletionRef> now = stream.after();
  const std::lock_guard lock(mutex_);
  recorded_ = std::move(now);
}

std::vector<CompletionRef> Event::recorded() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

Result<bool> Event::done() const {
  TUTTI_TRY(in_its_process(generation_));
  return all_done(recorded());
}

Status Event::synchronize() const {
  TUTTI_TRY(in_its_process(generation_));
  return wait_for_all(recorded());
}

}  // namespace tutti
