// SPDX-License-Identifier: Apache-2.0
// Binds threads to processors, so that programs that are compared run on the same ones.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <vector>

namespace tutti::perf {

// Returns the processors on which the process was allowed to run at the first call, in order. Call
// it once before any thread is bound. Any thread.
inline const std::vector<int>& allowed_processors() {
  static const std::vector<int> allowed = [] {
    std::vector<int> found;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) found.push_back(cpu);
    return found;
  }();
  return allowed;
}

// Binds the calling thread to the nth allowed processor, modulo their number; returns whether the
// kernel has done so. nth >= 0.
inline bool bind_to_processor(int nth) {
  const std::vector<int>& allowed = allowed_processors();
  if (allowed.empty()) return false;
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  CPU_SET(static_cast<std::size_t>(allowed[static_cast<std::size_t>(nth) % allowed.size()]),
          &chosen);
  return ::pthread_setaffinity_np(::pthread_self(), sizeof chosen, &chosen) == 0;
}

}  // namespace tutti::perf
