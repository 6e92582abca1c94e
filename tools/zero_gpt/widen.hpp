// SPDX-License-Identifier: Apache-2.0
// 16-bit numbers as fp32, exactly. Pure; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::gpt {

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, rest = bits & 0x7FFFU;
  // The exponent's bias is 15, not 127; the product also makes subnormal numbers normal.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112F;
  const std::uint32_t value = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t not_finite = rest >= 0x7C00U ? 0x7F800000U : 0;
  return std::bit_cast<float>(sign | value | not_finite);
}

}  // namespace tutti::gpt
