// SPDX-License-Identifier: Apache-2.0
// Elements of any type: half of a float's are any bits (so also NaN, infinity, subnormals), the
// others special or of moderate size, so that many results are ordinary numbers and ties.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/types.hpp"
#include "tests/kernels/reference.hpp"

namespace tutti {

inline constexpr DataType kEveryType[] = {
    DataType::kInt8,    DataType::kUint8,    DataType::kInt32,      DataType::kUint32,
    DataType::kInt64,   DataType::kUint64,   DataType::kFloat16,    DataType::kFloat32,
    DataType::kFloat64, DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2};
inline constexpr ReduceOp kEveryOp[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax,
                                        ReduceOp::kMin, ReduceOp::kAvg};

inline bool is_eight_bit_float(DataType type) {
  return type == DataType::kFloat8e4m3 || type == DataType::kFloat8e5m2;
}

inline std::uint64_t random_element(DataType type, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const bool wide_float = reference::is_float(type) && !is_eight_bit_float(type);
  if (!wide_float || bits % 2 == 0) return random();
  constexpr std::array<double, 8> kSpecial{0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, 0.5, 3.0};
  if (bits % 4 == 1) return reference::encode(type, kSpecial[bits / 4 % 8]);
  const auto mantissa = static_cast<double>(static_cast<std::int32_t>(bits >> 32));
  return reference::encode(type, std::ldexp(mantissa, static_cast<int>(bits / 4 % 12) - 36));
}

inline std::vector<std::byte> random_elements(DataType type, std::size_t count,
                                              std::mt19937_64& random) {
  const std::size_t width_bytes = element_bytes(type);
  std::vector<std::byte> bytes(count * width_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t element = random_element(type, random);
    std::memcpy(&bytes[i * width_bytes], &element, width_bytes);  // little-endian
  }
  return bytes;
}

}  // namespace tutti
