// SPDX-License-Identifier: Apache-2.0
// Adaptive waiting: spin, then yield, then sleep, in epoll where the kernel wakes who waits for a
// socket. Cheap while the peer is about to answer, polite when there are more ranks than cores,
// quiet when nobody comes.
#pragma once

#include <sched.h>
#include <time.h>

#include <cstdint>

#include "base/clock.hpp"

namespace tutti {

struct WaitPolicy {
  // Rounds of `pause` before the first yield. 0 where ranks outnumber cores: the core is wanted by
  // whoever is waited for.
  std::uint32_t spins = 2000;
  // The round in which to ask whether the peer runs on this very core, so that spinning keeps it
  // from answering. The kernel may well put two ranks on one core while another is idle.
  std::uint32_t look_at = kFirstLook;
  static constexpr std::uint32_t kFirstLook = 100;
  // Time of yielding after which sleeps begin. A sleep costs a wake-up of some 50 us, so it starts
  // only when the wait is already much longer than that.
  std::int64_t yield_ns = 2'000'000;
  std::int64_t max_sleep_ns = 1'000'000;
};

class Waiter {
 public:
  explicit Waiter(const WaitPolicy& policy) : policy_(policy) {}

  // Something moved: start over.
  void reset() {
    round_ = 0;
    slow_since_ns_ = 0;
    sleep_ns_ = kFirstSleepNs;
  }

  [[nodiscard]] bool should_look() const {
    return round_ == policy_.look_at && round_ < policy_.spins;
  }
  // The peer is on this core: yield from now on.
  void stop_spinning() { round_ = policy_.spins; }

  // One round of waiting. True when the wait has become slow: the caller then looks at clocks,
  // peers and poison beyond the cheap check it makes every round. `block(ns)` sleeps until
  // something comes, at most so long; false, and at once: nothing would wake it.
  template <typename Block>
  bool wait(Block&& block) {
    if (round_ < policy_.spins) {
      ++round_;
      relax();
      return false;
    }
    const std::int64_t now = now_ns();
    if (slow_since_ns_ == 0) slow_since_ns_ = now;
    if (now - slow_since_ns_ < policy_.yield_ns) {
      sched_yield();
      return now - slow_since_ns_ > kSlowNs;
    }
    if (block(policy_.max_sleep_ns)) return true;
    const timespec pause{0, static_cast<long>(sleep_ns_)};
    nanosleep(&pause, nullptr);
    sleep_ns_ = sleep_ns_ * 2 < policy_.max_sleep_ns ? sleep_ns_ * 2 : policy_.max_sleep_ns;
    return true;
  }
  bool wait() {
    return wait([](std::int64_t /*ns*/) { return false; });
  }

  // How long nothing has moved; 0 while still spinning.
  [[nodiscard]] std::int64_t waited_ns() const {
    return slow_since_ns_ == 0 ? 0 : now_ns() - slow_since_ns_;
  }

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }

 private:
  static constexpr std::int64_t kFirstSleepNs = 20'000;
  static constexpr std::int64_t kSlowNs = 100'000;

  WaitPolicy policy_;
  std::uint32_t round_ = 0;
  std::int64_t slow_since_ns_ = 0;
  std::int64_t sleep_ns_ = kFirstSleepNs;
};

}  // namespace tutti
