// SPDX-License-Identifier: Apache-2.0
// What ends a wait besides its deadline: a signal from another thread, or a question asked
// meanwhile. Any thread; each wait on the thread that calls it.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "base/process_fd.hpp"
#include "base/result.hpp"

namespace tutti::control {

// A flag that poll(2) can wait for. raise() from any thread.
class StopSignal {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StopSignal>> create();
  void raise();
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit StopSignal(ProcessFd fd) : fd_(std::move(fd)) {}
  ProcessFd fd_;
};

// Ends a wait before its deadline.
struct Stop {
  // `over` is asked every kAskNs.
  static constexpr std::int64_t kAskNs = 50'000'000;

  Stop(int stop_fd, const std::function<bool()>* ends = nullptr) : fd(stop_fd), over(ends) {}
  int fd;                             // a StopSignal's; -1: none
  const std::function<bool()>* over;  // null: none
};

// Waits until `socket` has one of `events` (POLLIN, POLLOUT) or hung up; -1: waits for the end.
// Errors: kTimeout, kInvalidUsage (stopped).
[[nodiscard]] Status wait_for(int socket, short events, const Stop& stop, Deadline deadline);

// The pause before another attempt, longer each time.
class Backoff {
 public:
  static constexpr std::int64_t kFirstNs = 1'000'000;
  static constexpr std::int64_t kLongestNs = 50'000'000;
  explicit Backoff(int most_attempts = INT_MAX, std::int64_t longest_ns = kLongestNs)
      : attempts_left_(most_attempts), longest_ns_(longest_ns) {}
  // Errors: those of wait_for; kTimeout: no time is left; kRemoteError: no attempt.
  [[nodiscard]] Status pause(const Stop& stop, Deadline deadline);

 private:
  int attempts_left_;
  const std::int64_t longest_ns_;
  std::int64_t pause_ns_ = kFirstNs;
};

}  // namespace tutti::control
