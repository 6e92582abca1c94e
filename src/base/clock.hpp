// Monotonic time as plain nanoseconds, and deadlines that every wait carries.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti {

[[nodiscard]] inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A point in monotonic time after which a wait gives up.
struct Deadline {
  std::int64_t at_ns = 0;

  [[nodiscard]] static Deadline in_ns(std::int64_t duration_ns) {
    return {now_ns() + duration_ns};
  }
  [[nodiscard]] static Deadline in_ms(std::int64_t duration_ms) {
    return in_ns(duration_ms * 1'000'000);
  }
  [[nodiscard]] std::int64_t left_ns() const { return at_ns - now_ns(); }
  [[nodiscard]] bool passed() const { return left_ns() <= 0; }
  // For poll(2): rounded up, 0 when passed.
  [[nodiscard]] int left_poll_ms() const {
    const std::int64_t left = left_ns();
    return left <= 0 ? 0 : static_cast<int>((left + 999'999) / 1'000'000);
  }
};

}  // namespace tutti
