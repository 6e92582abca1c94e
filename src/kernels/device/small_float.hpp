// SPDX-License-Identifier: Apache-2.0
// Floating-point formats of 8 and 16 bits, and fp32: their conversions, a 32-bit word at a time.
//
// The host's form is arithmetic on the bits, one template for all four formats. The device has
// instructions that give the same bits, but for NaNs: it writes 0x7fff, we the quiet NaN whose
// payload is zero (0x7e00, 0x7fc0). Both 8-bit formats have 0x7f on both sides.
//
// 8-bit formats saturate as in NCCL, whose conversions are CUDA's __NV_SATFINITE: what is too
// large, infinity too, becomes the largest finite value (448 and 57344). e4m3 has no infinity at
// all.
#pragma once

#include <cstdint>

#include "kernels/device/bits.hpp"

// cvt to and from 8-bit formats: PTX ISA, "cvt", sm_89 and newer. Older ones take the host's form.
#if TUTTI_ON_DEVICE
#if __CUDA_ARCH__ >= 890
#define TUTTI_DEVICE_HAS_FP8 1
#endif
#endif
#ifndef TUTTI_DEVICE_HAS_FP8
#define TUTTI_DEVICE_HAS_FP8 0
#endif

namespace tutti::device {

// 1 sign bit, kExponentBits, kMantissaBits. kLargest: the bits of what too large values become,
// infinity or the largest finite. kNan: the NaN that is written. kNanAbove: magnitudes above are
// NaN.
template <int kExponentBits, int kMantissaBits, std::uint32_t kLargest, std::uint32_t kNan,
          std::uint32_t kNanAbove, bool kHasInfinity>
struct SmallFloat {
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr int kPerWord = 32 / kBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kBits - 1);

  // Exact; a NaN stays one.
  static TUTTI_HD_INLINE float to_float(std::uint32_t element) {
    const std::uint32_t magnitude = element & (kSign - 1);
    // With the exponent as it is the number is too small by a power of two, subnormals too.
    constexpr std::uint32_t kScale = static_cast<std::uint32_t>(254 - kBias) << 23;
    const float scaled = bit_cast<float>(magnitude << kShift) * bit_cast<float>(kScale);
    std::uint32_t wide = bit_cast<std::uint32_t>(scaled);
    constexpr std::uint32_t kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;
    if (kHasInfinity && magnitude >= kInfinity) wide = magnitude << kShift | 0x7f800000u;
    if (!kHasInfinity && magnitude > kNanAbove) wide = 0x7fc00000u;
    return bit_cast<float>(wide | (element & kSign) << (32 - kBits));
  }

  // Rounds to nearest, ties to even.
  static TUTTI_HD_INLINE std::uint32_t from_float(float value) {
    const std::uint32_t raw = bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = raw & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return kNan;
    // A float of this size has the last bit of the format's subnormals: adding rounds.
    constexpr std::uint32_t kRounder = static_cast<std::uint32_t>(127 + 24 - kBias - kMantissaBits)
                                       << 23;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const float sum = bit_cast<float>(magnitude) + bit_cast<float>(kRounder);
    const std::uint32_t odd = magnitude >> kShift & 1;
    std::uint32_t element = (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + odd) >> kShift;
    if (magnitude < kSmallestNormal) element = bit_cast<std::uint32_t>(sum) - kRounder;
    if (element > kLargest) element = kLargest;
    return element | raw >> 31 << (kBits - 1);
  }

  static TUTTI_HD_INLINE void widen(std::uint32_t word, float (&values)[kPerWord]) {
    TUTTI_UNROLL
    for (int i = 0; i < kPerWord; ++i)
      values[i] = to_float(word >> (i * kBits) & (kSign | (kSign - 1)));
  }
  static TUTTI_HD_INLINE std::uint32_t narrow(const float (&values)[kPerWord]) {
    std::uint32_t word = 0;
    TUTTI_UNROLL
    for (int i = 0; i < kPerWord; ++i) word |= from_float(values[i]) << (i * kBits);
    return word;
  }
};

using HalfBits = SmallFloat<5, 10, 0x7c00, 0x7e00, 0x7c00, true>;
using Bfloat16Bits = SmallFloat<8, 7, 0x7f80, 0x7fc0, 0x7f80, true>;
using E4m3Bits = SmallFloat<4, 3, 0x7e, 0x7f, 0x7e, false>;
using E5m2Bits = SmallFloat<5, 2, 0x7b, 0x7f, 0x7c, true>;

// The device's NaN, 0x7fff in both halves, to ours: as signed numbers all others are smaller.
TUTTI_HD_INLINE std::uint32_t canonical_halves(std::uint32_t word, std::uint32_t nans) {
#if TUTTI_ON_DEVICE
  return __vmins2(word, nans);
#else
  static_cast<void>(nans);
  return word;
#endif
}

// Each format: kPerWord elements in a word, widen to floats, narrow from them; NaN canonical.
struct Half {
  using Format = HalfBits;
  static constexpr int kPerWord = 2;
  static constexpr std::uint32_t kNans = 0x7e007e00u;
  static TUTTI_HD_INLINE void widen(std::uint32_t word, float (&values)[2]) {
#if TUTTI_ON_DEVICE
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(values[0]), "=f"(values[1])
        : "r"(word));
#else
    Format::widen(word, values);
#endif
  }
  static TUTTI_HD_INLINE std::uint32_t narrow(const float (&values)[2]) {
#if TUTTI_ON_DEVICE
    std::uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(values[0]), "f"(values[1]));
    return canonical_halves(word, kNans);
#else
    return Format::narrow(values);
#endif
  }
};

struct Bfloat16 {
  using Format = Bfloat16Bits;
  static constexpr int kPerWord = 2;
  static constexpr std::uint32_t kNans = 0x7fc07fc0u;
  static TUTTI_HD_INLINE void widen(std::uint32_t word, float (&values)[2]) {
    values[0] = bit_cast<float>(word << 16);
    values[1] = bit_cast<float>(word & 0xffff0000u);
  }
  static TUTTI_HD_INLINE std::uint32_t narrow(const float (&values)[2]) {
#if TUTTI_ON_DEVICE
    std::uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(values[0]), "f"(values[1]));
    return canonical_halves(word, kNans);
#else
    return Format::narrow(values);
#endif
  }
};

// 8-bit formats lie within fp16: four of them are also two words of two halves each, exactly.
struct E4m3 {
  using Format = E4m3Bits;
  static constexpr int kPerWord = 4;
  static TUTTI_HD_INLINE void to_halves(std::uint32_t word, std::uint32_t (&halves)[2]) {
#if TUTTI_DEVICE_HAS_FP8
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a;"
        " cvt.rn.f16x2.e4m3x2 %1, b;}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(word));
#else
    float values[4];
    Format::widen(word, values);
    halves[0] = Half::narrow({values[0], values[1]});
    halves[1] = Half::narrow({values[2], values[3]});
#endif
  }
  static TUTTI_HD_INLINE void widen(std::uint32_t word, float (&values)[4]);
  static TUTTI_HD_INLINE std::uint32_t narrow(const float (&values)[4]) {
#if TUTTI_DEVICE_HAS_FP8
    std::uint32_t word;
    asm("{.reg .b16 a, b; cvt.rn.satfinite.e4m3x2.f32 a, %2, %1;"
        " cvt.rn.satfinite.e4m3x2.f32 b, %4, %3; mov.b32 %0, {a, b};}"
        : "=r"(word)
        : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
    return word;
#else
    return Format::narrow(values);
#endif
  }
};

struct E5m2 {
  using Format = E5m2Bits;
  static constexpr int kPerWord = 4;
  // An e5m2 is the upper byte of its fp16.
  static TUTTI_HD_INLINE void to_halves(std::uint32_t word, std::uint32_t (&halves)[2]) {
    halves[0] = (word & 0xffu) << 8 | (word & 0xff00u) << 16;
    halves[1] = (word >> 16 & 0xffu) << 8 | (word & 0xff000000u);
  }
  static TUTTI_HD_INLINE void widen(std::uint32_t word, float (&values)[4]);
  static TUTTI_HD_INLINE std::uint32_t narrow(const float (&values)[4]) {
#if TUTTI_DEVICE_HAS_FP8
    std::uint32_t word;
    asm("{.reg .b16 a, b; cvt.rn.satfinite.e5m2x2.f32 a, %2, %1;"
        " cvt.rn.satfinite.e5m2x2.f32 b, %4, %3; mov.b32 %0, {a, b};}"
        : "=r"(word)
        : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
    return word;
#else
    return Format::narrow(values);
#endif
  }
};

// On a device through fp16, two at a time; on the host in one step.
template <typename Type>
TUTTI_HD_INLINE void widen_eight_bits(std::uint32_t word, float (&values)[4]) {
#if TUTTI_DEVICE_HAS_FP8
  std::uint32_t halves[2];
  Type::to_halves(word, halves);
  float low[2], high[2];
  Half::widen(halves[0], low);
  Half::widen(halves[1], high);
  values[0] = low[0], values[1] = low[1], values[2] = high[0], values[3] = high[1];
#else
  Type::Format::widen(word, values);
#endif
}
TUTTI_HD_INLINE void E4m3::widen(std::uint32_t word, float (&values)[4]) {
  widen_eight_bits<E4m3>(word, values);
}
TUTTI_HD_INLINE void E5m2::widen(std::uint32_t word, float (&values)[4]) {
  widen_eight_bits<E5m2>(word, values);
}

}  // namespace tutti::device
