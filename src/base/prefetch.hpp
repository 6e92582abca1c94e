// SPDX-License-Identifier: Apache-2.0
// Cache lines that will be needed soon, fetched without waiting for them. In assembly: GCC 12 takes
// a function of nothing but __builtin_prefetch for one without effect, and leaves its calls out;
// and the builtin fetches for writing only where the compiler is told that the machine can.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace tutti {

inline void prefetch(const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" ::"m"(*line));
#else
  __builtin_prefetch(line);
#endif
}

// Takes a line that will be written from the cache of whoever read it.
inline void prefetch_to_write(const std::byte* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Lines of so many bytes from the beginning of one on.
[[nodiscard]] constexpr std::uint64_t lines_of(std::uint64_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes;
}

// At least one.
inline void prefetch_lines(const std::byte* line, std::uint64_t lines) {
  do prefetch(line);
  while (line += kCacheLineBytes, --lines != 0);
}
inline void prefetch_lines_to_write(const std::byte* line, std::uint64_t lines) {
  do prefetch_to_write(line);
  while (line += kCacheLineBytes, --lines != 0);
}

}  // namespace tutti
