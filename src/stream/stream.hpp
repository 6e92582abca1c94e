// SPDX-License-Identifier: Apache-2.0
// Streams and events on host memory. A stream is no thread but the work that what is put on it next
// comes after; an event is a copy of that. Functions on a stream run in a thread of its own, which
// starts with the first. Any thread may use a stream; work is on it in the order of these calls.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/process_fd.hpp"
#include "base/result.hpp"
#include "stream/completion.hpp"
#include "stream/worker.hpp"

namespace tutti {

class Stream {
 public:
  // What work that is put on the stream now comes after.
  [[nodiscard]] std::vector<CompletionRef> after() const;
  // Makes room for what is put on the stream next, so that this needs no memory. Throws bad_alloc.
  void make_room();
  // Puts work on the stream that comes after `after`, which after() returned.
  void put(const CompletionRef& work, const std::vector<CompletionRef>& after);
  // What is put on the stream from now on comes after `work`.
  void wait_for(const std::vector<CompletionRef>& work);
  // Puts a function on the stream. Errors: those of Worker::enqueue().
  [[nodiscard]] Status call(Worker::Work function);
  // Work on the stream has failed. The first error stays until synchronize() has returned it.
  void fail(Error error) noexcept;

  // Errors of both: kInvalidUsage in a forked child.
  [[nodiscard]] Result<bool> done() const;
  // Blocks until all work on the stream has ended. Errors: those of Completion::wait().
  [[nodiscard]] Status drain();
  // The same. Errors: also that of the first work that failed since the last time.
  [[nodiscard]] Status synchronize();
  // Ends the thread of functions, after drain().
  void end() { functions_.end(); }

 private:
  void replace(const std::vector<CompletionRef>& after, const CompletionRef& work);

  mutable std::mutex mutex_;
  std::vector<CompletionRef> last_;  // guarded by mutex_
  std::optional<Error> failed_;      // guarded by mutex_
  const std::uint64_t generation_ = fork_generation();
  Worker functions_{"tutti-stream"};
};

class Event {
 public:
  void record(const Stream& stream);
  // What the last record said; nothing without one.
  [[nodiscard]] std::vector<CompletionRef> recorded() const;
  // Errors: as those of streams.
  [[nodiscard]] Result<bool> done() const;
  [[nodiscard]] Status synchronize() const;

 private:
  mutable std::mutex mutex_;
  std::vector<CompletionRef> recorded_;  // guarded by mutex_
  const std::uint64_t generation_ = fork_generation();
};

}  // namespace tutti
