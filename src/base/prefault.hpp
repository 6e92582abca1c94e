// SPDX-License-Identifier: Apache-2.0
// Pages mapped before they are used.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

// Maps all pages of [begin, begin + bytes) for writing, and makes those that do not exist; contents
// stay. What the kernel refuses, or is too old for (Linux 5.14), faults do later. Any thread.
inline void prefault(std::byte* begin, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before = reinterpret_cast<std::uintptr_t>(begin) % page_bytes;
  static_cast<void>(::madvise(begin - before, bytes + before, MADV_POPULATE_WRITE));
#else
  static_cast<void>(begin), static_cast<void>(bytes);
#endif
}

}  // namespace tutti
