// SPDX-License-Identifier: Apache-2.0
// Packs: the vectors in which kernels work, on every instruction set.
//
// Vectors are the compiler's (vector_size), so that the same text means SSE2, AVX2, AVX-512 or
// NEON; only streaming stores and conversions of 16 bits name an instruction. A "pack" is N
// elements, or for N = 1 the bare scalar: remainders run through the same functions as the body.
//
// A part of kernel_template.hpp, with its invariants.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

#define TUTTI_INLINE inline __attribute__((always_inline))

namespace tutti::kernels {
namespace {

template <typename T, int N>
struct PackOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <typename T>
struct PackOf<T, 1> {
  using type = T;
};
template <typename T, int N>
using Pack = typename PackOf<T, N>::type;

template <typename To, typename From>
TUTTI_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename P>
TUTTI_INLINE P load_pack(const void* from) {
  P pack;
  __builtin_memcpy(&pack, from, sizeof(pack));
  return pack;
}

template <typename P>
TUTTI_INLINE void store_pack(void* to, P pack) {
  __builtin_memcpy(to, &pack, sizeof(pack));
}

// Around the cache; `to` is aligned to the pack. Plain where the machine has no such store.
template <typename P>
TUTTI_INLINE void stream_pack(void* to, P pack) {
#if defined(__AVX512F__)
  if constexpr (sizeof(P) == 64) {
    _mm512_stream_si512(static_cast<__m512i*>(to), bits<__m512i>(pack));
    return;
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(P) == 32) {
    _mm256_stream_si256(static_cast<__m256i*>(to), bits<__m256i>(pack));
    return;
  }
#endif
#if defined(__SSE2__)
  if constexpr (sizeof(P) == 16) {
    _mm_stream_si128(static_cast<__m128i*>(to), bits<__m128i>(pack));
    return;
  }
  if constexpr (sizeof(P) == 8) {
    _mm_stream_si64(static_cast<long long*>(to), bits<long long>(pack));
    return;
  }
#endif
  store_pack(to, pack);
}

TUTTI_INLINE void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Element conversion of packs and scalars alike.
template <typename To, typename ToElement, typename From>
TUTTI_INLINE To convert(From from) {
  if constexpr (sizeof(To) == sizeof(ToElement))
    return static_cast<To>(from);
  else
    return __builtin_convertvector(from, To);
}

// Every element `value`.
template <typename P, typename T, int N>
TUTTI_INLINE P broadcast(T value) {
  if constexpr (N == 1)
    return value;
  else
    return P{} + value;
}

// 16 bits to 32 and back (the upper half is zero). The compiler's own conversion of a whole vector
// goes by way of half vectors: with it bf16 sums took twice the time.
template <int N>
TUTTI_INLINE Pack<std::uint32_t, N> widen_bits(Pack<std::uint16_t, N> narrow) {
  using U = Pack<std::uint32_t, N>;
#if defined(__AVX512F__)
  if constexpr (N == 16) return bits<U>(_mm512_maskz_cvtepu16_epi32(0xffff, bits<__m256i>(narrow)));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return bits<U>(_mm256_cvtepu16_epi32(bits<__m128i>(narrow)));
#endif
  return convert<U, std::uint32_t>(narrow);
}

template <int N>
TUTTI_INLINE Pack<std::uint16_t, N> narrow_bits(Pack<std::uint32_t, N> wide) {
  using H = Pack<std::uint16_t, N>;
#if defined(__AVX512F__)
  if constexpr (N == 16) return bits<H>(_mm512_maskz_cvtepi32_epi16(0xffff, bits<__m512i>(wide)));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m256i packed = _mm256_packus_epi32(bits<__m256i>(wide), _mm256_setzero_si256());
    return bits<H>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000)));
  }
#endif
  return convert<H, std::uint16_t>(wide);
}

}  // namespace
}  // namespace tutti::kernels
