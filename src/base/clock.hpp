// SPDX-License-Identifier: Apache-2.0
// Monotonic time as plain nanoseconds, and deadlines that every wait carries.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace tutti {

[[nodiscard]] inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The same clock as of the kernel's last tick: a few milliseconds behind, for a seventh of the
// price. For records that every operation writes.
[[nodiscard]] inline std::int64_t coarse_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A point in monotonic time after which a wait gives up.
struct Deadline {
  std::int64_t at_ns = 0;

  [[nodiscard]] static Deadline in_ns(std::int64_t duration_ns) { return {now_ns() + duration_ns}; }
  [[nodiscard]] static Deadline in_ms(std::int64_t duration_ms) {
    return in_ns(duration_ms * 1'000'000);
  }
  [[nodiscard]] std::int64_t left_ns() const { return at_ns - now_ns(); }
  [[nodiscard]] bool passed() const { return left_ns() <= 0; }
  // For poll(2): rounded up, 0 when passed, at most the 24 days that poll can wait.
  [[nodiscard]] int left_poll_ms() const {
    const std::int64_t left = left_ns();
    if (left <= 0) return 0;
    return static_cast<int>(
        std::min<std::int64_t>((left - 1) / 1'000'000 + 1, std::numeric_limits<int>::max()));
  }
};

}  // namespace tutti
