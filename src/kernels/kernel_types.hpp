// SPDX-License-Identifier: Apache-2.0
// How an element is stored, and in what it is accumulated: floats of 8 and 16 bits as fp32, the
// others as themselves. Conversions work on packs.
//
// A part of kernel_template.hpp, with its invariants.
#pragma once

#include "kernels/kernel_packs.hpp"

namespace tutti::kernels {
namespace {

// ---- 16-bit floats ----------------------------------------------------------------------------

// Exact. A signalling NaN may stay one: finishing makes every NaN canonical.
template <int N>
TUTTI_INLINE Pack<float, N> half_to_float(Pack<std::uint16_t, N> half) {
#if defined(__AVX512F__)
  // The masked form: GCC 12 warns of its own header's unmasked one.
  if constexpr (N == 16)
    return bits<Pack<float, N>>(_mm512_maskz_cvtph_ps(0xffff, bits<__m256i>(half)));
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return bits<Pack<float, N>>(_mm256_cvtph_ps(bits<__m128i>(half)));
  if constexpr (N == 1) return _cvtsh_ss(half);
#endif
  using U = Pack<std::uint32_t, N>;
  using F = Pack<float, N>;
  constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  const U wide = widen_bits<N>(half);
  const U sign = (wide & 0x8000u) << 16;
  const U magnitude = (wide & 0x7fffu) << 13;
  const U normal = magnitude + (112u << 23);
  const U special = magnitude | 0x7f800000u;
  // 2^-14 (1 + m/1024) - 2^-14 = m 2^-24
  const F small = bits<F>(U(magnitude + kSmallestNormal)) -
                  bits<F>(broadcast<U, std::uint32_t, N>(kSmallestNormal));
  U result = magnitude < (0x0400u << 13) ? bits<U>(small) : normal;
  result = magnitude >= (0x7c00u << 13) ? special : result;
  return bits<F>(U(result | sign));
}

// Rounds to nearest, ties to even; a NaN becomes 0x7e00.
template <int N>
TUTTI_INLINE Pack<std::uint16_t, N> float_to_half(Pack<float, N> value) {
#if defined(__F16C__)
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
  using F = Pack<float, N>;
  const F quiet = broadcast<F, float, N>(__builtin_nanf(""));
  [[maybe_unused]] const F canonical = value == value ? value : quiet;
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return bits<Pack<std::uint16_t, N>>(
        _mm512_maskz_cvtps_ph(0xffff, bits<__m512>(canonical), kNearest));
#endif
  if constexpr (N == 8)
    return bits<Pack<std::uint16_t, N>>(_mm256_cvtps_ph(bits<__m256>(canonical), kNearest));
  if constexpr (N == 1) return _cvtss_sh(canonical, kNearest);
#endif
  using U = Pack<std::uint32_t, N>;
  using G = Pack<float, N>;
  constexpr std::uint32_t kHalf = 126u << 23;  // 0.5: its last mantissa bit is 2^-24
  const U raw = bits<U>(value);
  const U sign = raw & 0x80000000u;
  const U magnitude = raw ^ sign;
  const U small =
      bits<U>(G(bits<G>(magnitude) + bits<G>(broadcast<U, std::uint32_t, N>(kHalf)))) - kHalf;
  const U odd = (magnitude >> 13) & 1u;
  const U normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  U result = magnitude < (113u << 23) ? small : normal;
  const U infinite = broadcast<U, std::uint32_t, N>(0x7c00u);
  const U nan = broadcast<U, std::uint32_t, N>(0x7e00u);
  result = magnitude >= (143u << 23) ? infinite : result;
  result = result | (sign >> 16);
  result = value == value ? result : nan;
  return narrow_bits<N>(result);
}

template <int N>
TUTTI_INLINE Pack<float, N> bfloat16_to_float(Pack<std::uint16_t, N> value) {
  using U = Pack<std::uint32_t, N>;
  return bits<Pack<float, N>>(U(widen_bits<N>(value) << 16));
}

// Rounds to nearest, ties to even, in the upper half; a NaN becomes 0x7fc0. The lower half is
// anything.
template <int N>
TUTTI_INLINE Pack<std::uint32_t, N> round_to_bfloat16(Pack<float, N> value) {
  using U = Pack<std::uint32_t, N>;
  const U raw = bits<U>(value);
  const U nan = broadcast<U, std::uint32_t, N>(0x7fc00000u);
  const U rounded = raw + 0x7fffu + ((raw >> 16) & 1u);
  return value == value ? rounded : nan;
}

template <int N>
TUTTI_INLINE Pack<std::uint16_t, N> float_to_bfloat16(Pack<float, N> value) {
  return narrow_bits<N>(Pack<std::uint32_t, N>(round_to_bfloat16<N>(value) >> 16));
}

// Two packs of floats for one of twice the elements, those with even indices and those with odd
// ones: a shift, a mask and an OR in the place of moves between lanes.
template <int N>
TUTTI_INLINE void bfloat16_to_floats(Pack<std::uint16_t, 2 * N> value, Pack<float, N>* even_odd) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  using U = Pack<std::uint32_t, N>;
  const U raw = bits<U>(value);
  even_odd[0] = bits<Pack<float, N>>(U(raw << 16));
  even_odd[1] = bits<Pack<float, N>>(U(raw & 0xffff0000u));
}

template <int N>
TUTTI_INLINE Pack<std::uint16_t, 2 * N> floats_to_bfloat16(const Pack<float, N>* even_odd) {
  using U = Pack<std::uint32_t, N>;
  const U low = round_to_bfloat16<N>(even_odd[0]) >> 16;
  const U high = round_to_bfloat16<N>(even_odd[1]) & 0xffff0000u;
  return bits<Pack<std::uint16_t, 2 * N>>(U(low | high));
}

// ---- 8-bit floats -----------------------------------------------------------------------------

// OCP 8-bit formats (OCP 8-bit Floating Point Specification 1.0), with the bits that the device's
// kernels give (device/small_float.hpp): what is too large, infinity too, becomes the largest
// finite value, as in NCCL; every NaN becomes 0x7f.
template <int kExponentBits, int kMantissaBits, std::uint32_t kLargest, bool kHasInfinity>
struct Float8Bits {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;

  // Exact. The magnitude above the largest is infinity, or NaN where there is none; then come NaNs.
  template <int N>
  static TUTTI_INLINE Pack<float, N> to_float(Pack<std::uint8_t, N> stored) {
    using U = Pack<std::uint32_t, N>;
    using F = Pack<float, N>;
    const U wide = convert<U, std::uint32_t>(stored);
    const U magnitude = wide & 0x7fu;
    // With the exponent as it is, a number is too small by a power of two, a subnormal too.
    constexpr std::uint32_t kScale = static_cast<std::uint32_t>(254 - kBias) << 23;
    const F scaled =
        bits<F>(U(magnitude << kShift)) * bits<F>(broadcast<U, std::uint32_t, N>(kScale));
    const U infinite = broadcast<U, std::uint32_t, N>(0x7f800000u);
    const U nan = broadcast<U, std::uint32_t, N>(0x7fc00000u);
    U result = magnitude > kLargest ? nan : bits<U>(scaled);
    if constexpr (kHasInfinity) result = magnitude == kLargest + 1 ? infinite : result;
    return bits<F>(U(result | (wide & 0x80u) << 24));
  }

  // Rounds to nearest, ties to even.
  template <int N>
  static TUTTI_INLINE Pack<std::uint8_t, N> from_float(Pack<float, N> value) {
    using U = Pack<std::uint32_t, N>;
    using F = Pack<float, N>;
    // A float of this size has the last bit of the format's subnormals: adding it rounds.
    constexpr std::uint32_t kRounder = static_cast<std::uint32_t>(127 + 24 - kBias - kMantissaBits)
                                       << 23;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const U raw = bits<U>(value);
    const U sign = raw & 0x80000000u;
    const U magnitude = raw ^ sign;
    const U small =
        bits<U>(F(bits<F>(magnitude) + bits<F>(broadcast<U, std::uint32_t, N>(kRounder)))) -
        kRounder;
    const U odd = (magnitude >> kShift) & 1u;
    const U normal = (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + odd) >> kShift;
    const U largest = broadcast<U, std::uint32_t, N>(kLargest);
    const U nan = broadcast<U, std::uint32_t, N>(0x7fu);
    U result = magnitude < kSmallestNormal ? small : normal;
    result = result > largest ? largest : result;
    result = result | (sign >> 24);
    result = value == value ? result : nan;
    return convert<Pack<std::uint8_t, N>, std::uint8_t>(result);
  }
};

// ---- types: how an element is stored and in what it is accumulated
// -------------------------------

template <typename T>
struct IntegerType {
  using Storage = T;
  using Accumulator = T;
  template <int N>
  static TUTTI_INLINE Pack<T, N> widen(Pack<T, N> stored) {
    return stored;
  }
  template <int N>
  static TUTTI_INLINE Pack<T, N> narrow(Pack<T, N> value) {
    return value;
  }
};

template <typename T>
struct FloatType {
  using Storage = T;
  using Accumulator = T;
  template <int N>
  static TUTTI_INLINE Pack<T, N> widen(Pack<T, N> stored) {
    return stored;
  }
  template <int N>
  static TUTTI_INLINE Pack<T, N> narrow(Pack<T, N> value) {
    const Pack<T, N> nan = broadcast<Pack<T, N>, T, N>(static_cast<T>(__builtin_nanf("")));
    return value == value ? value : nan;
  }
};

struct HalfType {
  using Storage = std::uint16_t;
  using Accumulator = float;
  template <int N>
  static TUTTI_INLINE Pack<float, N> widen(Pack<Storage, N> stored) {
    return half_to_float<N>(stored);
  }
  template <int N>
  static TUTTI_INLINE Pack<Storage, N> narrow(Pack<float, N> value) {
    return float_to_half<N>(value);
  }
};

struct Bfloat16Type {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static constexpr bool kInPairs = true;
  template <int N>
  static TUTTI_INLINE void widen_pair(Pack<Storage, 2 * N> stored, Pack<float, N>* values) {
    bfloat16_to_floats<N>(stored, values);
  }
  template <int N>
  static TUTTI_INLINE Pack<Storage, 2 * N> narrow_pair(const Pack<float, N>* values) {
    return floats_to_bfloat16<N>(values);
  }
  template <int N>
  static TUTTI_INLINE Pack<float, N> widen(Pack<Storage, N> stored) {
    return bfloat16_to_float<N>(stored);
  }
  template <int N>
  static TUTTI_INLINE Pack<Storage, N> narrow(Pack<float, N> value) {
    return float_to_bfloat16<N>(value);
  }
};

template <class Format>
struct Float8Type {
  using Storage = std::uint8_t;
  using Accumulator = float;
  template <int N>
  static TUTTI_INLINE Pack<float, N> widen(Pack<Storage, N> stored) {
    return Format::template to_float<N>(stored);
  }
  template <int N>
  static TUTTI_INLINE Pack<Storage, N> narrow(Pack<float, N> value) {
    return Format::template from_float<N>(value);
  }
};
using E4m3Type = Float8Type<Float8Bits<4, 3, 0x7e, false>>;
using E5m2Type = Float8Type<Float8Bits<5, 2, 0x7b, true>>;

}  // namespace
}  // namespace tutti::kernels
