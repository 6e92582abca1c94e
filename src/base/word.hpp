// SPDX-License-Identifier: Apache-2.0
// A 64-bit word that two threads share, on the host or on a device: the atomic of connections.
//
// The same bytes on both sides, so that a structure of words in memory that a CPU and a GPU see
// means the same to both. On the host it is std::atomic, which ThreadSanitizer knows; in device
// code loads and stores of system scope (PTX ISA, "ld" and "st"), whose order holds for peers on
// other devices and on the host as well.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/device.hpp"

namespace tutti {

class Word {
 public:
  // relaxed or acquire.
  [[nodiscard]] TUTTI_HD std::uint64_t load(std::memory_order order) const {
#if TUTTI_ON_DEVICE
    std::uint64_t value;
    if (order == std::memory_order::acquire)
      asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(&word_) : "memory");
    else
      asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(&word_) : "memory");
    return value;
#else
    return word_.load(order);
#endif
  }

  // relaxed or release.
  TUTTI_HD void store(std::uint64_t value, std::memory_order order) {
#if TUTTI_ON_DEVICE
    if (order == std::memory_order::release)
      asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(&word_), "l"(value) : "memory");
    else
      asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(&word_), "l"(value) : "memory");
#else
    word_.store(value, order);
#endif
  }

  // Returns the previous value. Acquire and release.
  TUTTI_HD std::uint64_t fetch_add(std::uint64_t more) {
#if TUTTI_ON_DEVICE
    std::uint64_t before;
    asm volatile("atom.acq_rel.sys.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(&word_), "l"(more)
                 : "memory");
    return before;
#else
    return word_.fetch_add(more, std::memory_order_acq_rel);
#endif
  }

 private:
  std::atomic<std::uint64_t> word_;
};
static_assert(sizeof(Word) == 8 && alignof(Word) == 8);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace tutti
