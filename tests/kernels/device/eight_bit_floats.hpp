// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats as tables of doubles, made from the formats' definition; rounding by looking for
// the nearest entry. Shares no code and no method with src/kernels/device/small_float.hpp.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/types.hpp"

namespace tutti {

class EightBitFloats {
 public:
  explicit EightBitFloats(DataType type) {
    const bool e4m3 = type == DataType::kFloat8e4m3;
    const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const unsigned ones = 1u << mantissa_bits;
    for (unsigned bits = 0; bits < 128; ++bits) {
      const int exponent = static_cast<int>(bits >> mantissa_bits);
      const unsigned mantissa = bits % ones;
      double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                   : std::ldexp(ones + mantissa, exponent - bias - mantissa_bits);
      if (e4m3 && bits == 0x7f) value = std::numeric_limits<double>::quiet_NaN();
      if (!e4m3 && exponent == 31)
        value = mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
      values_[bits] = value;
    }
  }

  [[nodiscard]] double decode(std::uint64_t element) const {
    const double magnitude = values_[element & 0x7f];
    return (element & 0x80) != 0 ? -magnitude : magnitude;
  }

  // The nearest finite value, of two as near ones the even; NaN is 0x7f.
  [[nodiscard]] std::uint64_t encode(double value) const {
    if (std::isnan(value)) return 0x7f;
    const double magnitude = std::fabs(value);
    std::uint64_t best = 0;
    for (std::uint64_t bits = 1; bits < 128 && std::isfinite(values_[bits]); ++bits) {
      // Half way from the value below; beyond it this one is nearer.
      const double middle = (values_[bits - 1] + values_[bits]) / 2;
      if (magnitude > middle || (magnitude == middle && bits % 2 == 0)) best = bits;
    }
    return best | (std::signbit(value) ? 0x80u : 0u);
  }

 private:
  std::array<double, 128> values_{};
};

}  // namespace tutti
