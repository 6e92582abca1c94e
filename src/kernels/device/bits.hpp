// SPDX-License-Identifier: Apache-2.0
// What a thread moves at once: 4, 8 or 16 bytes of elements in 32-bit registers; and its loads and
// stores of memory that other blocks, other devices and the host write.
//
// Loads never take the non-coherent path (ld.global.nc, __ldg): a peer may have written the bytes
// since this kernel started. They are weak: whoever calls has acquired what says that the bytes are
// there (base/word.hpp). They leave the first-level cache alone, since nothing is read twice.
// On the host the same functions are memcpy, which the sanitizers see, and an assertion: there a
// misaligned access would go unnoticed, on a device it ends the kernel.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/device.hpp"

#if defined(__CUDACC__)
#define TUTTI_HD_INLINE __forceinline__ TUTTI_HD
#else
#define TUTTI_HD_INLINE inline
#endif
#if TUTTI_ON_DEVICE
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_NO_UNROLL _Pragma("unroll 1")
#else
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#endif

namespace tutti::device {

// kBytes of consecutive elements; word 0 has the lowest address (little-endian on both sides).
template <int kBytes>
struct Bits {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  static constexpr int kWords = kBytes / 4;
  std::uint32_t words[kWords];
};

// The registers of one access: single elements of 1 or 2 bytes lie alone in a word, zeros above.
template <int kAccessBytes>
using Register = Bits<(kAccessBytes < 4 ? 4 : kAccessBytes)>;

template <typename To, typename From>
TUTTI_HD_INLINE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// The unsigned integer of 4 or 8 bytes at position `index` of bits.
template <typename Word, int kBytes>
TUTTI_HD_INLINE Word word_at(const Bits<kBytes>& bits, int index) {
  if constexpr (sizeof(Word) == 4) {
    return bits.words[index];
  } else {
    return static_cast<std::uint64_t>(bits.words[2 * index + 1]) << 32 | bits.words[2 * index];
  }
}

template <typename Word, int kBytes>
TUTTI_HD_INLINE void set_word(Bits<kBytes>& bits, int index, Word word) {
  if constexpr (sizeof(Word) == 4) {
    bits.words[index] = word;
  } else {
    bits.words[2 * index] = static_cast<std::uint32_t>(word);
    bits.words[2 * index + 1] = static_cast<std::uint32_t>(word >> 32);
  }
}

// Keeps the compiler from moving memory accesses across: load_bits names no memory, so that what
// it knows of other memory survives a load.
TUTTI_HD_INLINE void compiler_fence() {
#if TUTTI_ON_DEVICE
  asm volatile("" ::: "memory");
#endif
}

// `from` is aligned to kAccessBytes and lies in global memory: the device's own, a peer's, or the
// host's.
template <int kAccessBytes>
TUTTI_HD_INLINE Register<kAccessBytes> load_bits(const std::byte* from) {
  Register<kAccessBytes> bits{};
#if TUTTI_ON_DEVICE
  assert(__isGlobal(from));
  const std::size_t at = __cvta_generic_to_global(from);
  if constexpr (kAccessBytes == 16)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.words[0]), "=r"(bits.words[1]), "=r"(bits.words[2]),
                   "=r"(bits.words[3])
                 : "l"(at));
  else if constexpr (kAccessBytes == 8)
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(bits.words[0]), "=r"(bits.words[1])
                 : "l"(at));
  else if constexpr (kAccessBytes == 4)
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(bits.words[0]) : "l"(at));
  else if constexpr (kAccessBytes == 2)
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=r"(bits.words[0]) : "l"(at));
  else
    asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(bits.words[0]) : "l"(at));
#else
  assert(reinterpret_cast<std::uintptr_t>(from) % kAccessBytes == 0);
  memcpy(bits.words, from, kAccessBytes);
#endif
  return bits;
}

template <int kAccessBytes>
TUTTI_HD_INLINE void store_bits(std::byte* to, const Register<kAccessBytes>& bits) {
#if TUTTI_ON_DEVICE
  assert(__isGlobal(to));  // shared memory is written by plain stores
  const std::size_t at = __cvta_generic_to_global(to);
  if constexpr (kAccessBytes == 16)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(bits.words[0]),
                 "r"(bits.words[1]), "r"(bits.words[2]), "r"(bits.words[3])
                 : "memory");
  else if constexpr (kAccessBytes == 8)
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(bits.words[0]),
                 "r"(bits.words[1])
                 : "memory");
  else if constexpr (kAccessBytes == 4)
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(bits.words[0]) : "memory");
  else if constexpr (kAccessBytes == 2)
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(static_cast<std::uint16_t>(bits.words[0]))
                 : "memory");
  else
    asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(bits.words[0]) : "memory");
#else
  assert(reinterpret_cast<std::uintptr_t>(to) % kAccessBytes == 0);
  memcpy(to, bits.words, kAccessBytes);
#endif
}

}  // namespace tutti::device
