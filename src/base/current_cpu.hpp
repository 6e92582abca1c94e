// SPDX-License-Identifier: Apache-2.0
// The processor that the calling thread runs on: a load, where the C library has registered
// restartable sequences, without the call.
#pragma once

#include <sched.h>

#if __has_include(<sys/rseq.h>) && defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#include <sys/rseq.h>
#define TUTTI_HAS_RSEQ
#endif
#endif

namespace tutti {

[[nodiscard]] inline int current_cpu() {
#if defined(TUTTI_HAS_RSEQ)
  const auto* const area = reinterpret_cast<const volatile struct rseq*>(
      static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset);
  const auto cpu = __rseq_size > 0 ? static_cast<int>(area->cpu_id) : -1;
  if (cpu >= 0) [[likely]]
    return cpu;
#endif
  return ::sched_getcpu();
}

}  // namespace tutti
