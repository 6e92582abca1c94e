// SPDX-License-Identifier: Apache-2.0
// The leak sanitizer, asked by a forked child before it ends: it looks for leaks at exit(), and a
// child ends by _exit(), for what runs at exit is its parent's.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <cstdint>

#include "base/clock.hpp"
#include "tests/comm/resources.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace tutti {

// Until no thread of this process is on its way out: the sanitizer looks into every thread, and was
// seen to crash in one that had none of its own memory left. At most for `kMostNs`.
inline void await_exiting_threads() {
  constexpr std::int64_t kMostNs = 10'000'000'000;
  const std::int64_t end_ns = now_ns() + kMostNs;
  while (test::living_threads() != test::entries("/proc/self/task") && now_ns() < end_ns)
    ::sched_yield();
}

// Does this process hold memory that nothing points to? The report goes to standard error. Always
// false without the address sanitizer.
inline bool leaks_memory() {
#if defined(__SANITIZE_ADDRESS__)
  rlimit descriptors{};  // a test may have taken them away; the sanitizer reads /proc
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  await_exiting_threads();
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

}  // namespace tutti
