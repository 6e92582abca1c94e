// SPDX-License-Identifier: Apache-2.0
// Sum, product, minimum, maximum and the average's division of single values, with the bits that
// the host's kernels give (src/kernels/kernel_template.hpp): one rounded operation, no contraction
// (hence the intrinsics, which the compiler never fuses), integers wrap, minimum and maximum as in
// IEEE 754-2019 (NaN wins, -0 < +0).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/small_float.hpp"

namespace tutti::device {

template <typename T>
using UnsignedOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

TUTTI_HD_INLINE float add(float a, float b) {
#if TUTTI_ON_DEVICE
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
TUTTI_HD_INLINE double add(double a, double b) {
#if TUTTI_ON_DEVICE
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
TUTTI_HD_INLINE float multiply(float a, float b) {
#if TUTTI_ON_DEVICE
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TUTTI_HD_INLINE double multiply(double a, double b) {
#if TUTTI_ON_DEVICE
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

struct Sum {
  template <typename T>
  static TUTTI_HD_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return add(a, b);
    } else {
      using U = UnsignedOf<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    }
  }
};

struct Product {
  template <typename T>
  static TUTTI_HD_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return multiply(a, b);
    } else {
      using U = UnsignedOf<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    }
  }
};

// Both selections keep an operand where the two are equal or unordered. OR then makes -0 of two
// zeros and keeps a NaN a NaN; elsewhere both are the same.
struct Minimum {
  template <typename T>
  static TUTTI_HD_INLINE T apply(T a, T b) {
    const T one = b < a ? b : a;
    if constexpr (std::is_floating_point_v<T>) {
      using U = UnsignedOf<T>;
      const T other = a < b ? a : b;
      return bit_cast<T>(bit_cast<U>(one) | bit_cast<U>(other));
    } else {
      return one;
    }
  }
};

// The same with the signs turned round: zeros give +0.
struct Maximum {
  template <typename T>
  static TUTTI_HD_INLINE T apply(T a, T b) {
    const T one = a < b ? b : a;
    if constexpr (std::is_floating_point_v<T>) {
      using U = UnsignedOf<T>;
      constexpr U kSign = U{1} << (sizeof(T) * 8 - 1);
      const T other = b < a ? a : b;
      return bit_cast<T>(((bit_cast<U>(one) ^ kSign) | (bit_cast<U>(other) ^ kSign)) ^ kSign);
    } else {
      return one;
    }
  }
};

template <typename Op>
inline constexpr bool kSelects = std::is_same_v<Op, Minimum> || std::is_same_v<Op, Maximum>;

TUTTI_HD_INLINE double fused_multiply_add(double a, double b, double c) {
#if TUTTI_ON_DEVICE
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

// value / divisor, rounded once, without the branches of an fp32 division. A power of two's
// reciprocal is exact, so the product is the quotient. Otherwise the quotient is taken in fp64, by
// the product with the reciprocal and one correction: its error is below 2^-52 of it, while the
// quotient of two numbers of 24 bits is either a tie of fp32, which fp64 holds, or at least 2^-48
// of itself away from one (among subnormals too).
TUTTI_HD_INLINE float divide(float value, std::uint32_t divisor) {
  const auto by = static_cast<float>(divisor);
  const double exact = value, exact_by = by;
  const double reciprocal = 1.0 / exact_by;
  if ((divisor & (divisor - 1)) == 0) return multiply(value, static_cast<float>(reciprocal));
  const double quotient = multiply(exact, reciprocal);
  const double rest = fused_multiply_add(-quotient, exact_by, exact);
  const double corrected = fused_multiply_add(rest, reciprocal, quotient);
  // The remainder of an infinity is NaN, that of -0 is +0.
  const double magnitude = exact < 0 ? -exact : exact;
  const bool corrects = magnitude > 0 && magnitude < __builtin_huge_val();
  return static_cast<float>(corrects ? corrected : exact);
}
TUTTI_HD_INLINE double divide(double value, std::uint32_t divisor) {
#if TUTTI_ON_DEVICE
  return __ddiv_rn(value, static_cast<double>(divisor));
#else
  return value / static_cast<double>(divisor);
#endif
}
// Integers towards zero.
template <typename T>
TUTTI_HD_INLINE std::enable_if_t<std::is_integral_v<T>, T> divide(T value, std::uint32_t divisor) {
  using U = UnsignedOf<T>;
  if constexpr (std::is_signed_v<T>) {
    const U magnitude = value < 0 ? U{0} - static_cast<U>(value) : static_cast<U>(value);
    const U quotient = magnitude / divisor;
    return static_cast<T>(value < 0 ? U{0} - quotient : quotient);
  } else {
    return value / divisor;
  }
}

// Every NaN that is written is the quiet one without payload: processors disagree on payloads.
TUTTI_HD_INLINE float canonical(float value) {
  return value == value ? value : bit_cast<float>(0x7fc00000u);
}
TUTTI_HD_INLINE double canonical(double value) {
  return value == value ? value : bit_cast<double>(std::uint64_t{0x7ff80000} << 32);
}

}  // namespace tutti::device
