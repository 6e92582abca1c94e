// SPDX-License-Identifier: Apache-2.0
// The element types of the perf tools as bits: sizes, names, encoding and decoding of every
// floating format, exactly.
//
// Everything here works on integers, so that no host type for half, bfloat16 or f8 is needed and
// no rounding happens unseen. Pure functions, any thread. Knows nothing of buffers or ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/tutti.h"

namespace tutti::perf {

// A binary floating format: sign, exponent field, stored mantissa. `Bits` is its storage.
template <typename Bits_, int kExponentBits_, int kMantissaBits_, Bits_ kMaxFinite_>
struct FloatFormat {
  using Bits = Bits_;
  static constexpr bool kIsFloat = true;
  static constexpr int kMantissaBits = kMantissaBits_;
  static constexpr int kExponentBits = kExponentBits_;
  static constexpr int kPrecision = kMantissaBits_ + 1;  // integers up to 2^kPrecision are exact
  static constexpr int kBias = (1 << (kExponentBits_ - 1)) - 1;
  static constexpr Bits kMaxFinite = kMaxFinite_;
  static constexpr Bits kSignBit = static_cast<Bits>(Bits{1} << (kExponentBits_ + kMantissaBits_));
};

using Float64 = FloatFormat<std::uint64_t, 11, 52, 0x7fefffffffffffffULL>;
using Float32 = FloatFormat<std::uint32_t, 8, 23, 0x7f7fffffU>;
using Float16 = FloatFormat<std::uint16_t, 5, 10, 0x7bffU>;
using Bfloat16Format = FloatFormat<std::uint16_t, 8, 7, 0x7f7fU>;
using Float8e4m3 = FloatFormat<std::uint8_t, 4, 3, 0x7eU>;  // OCP: no infinity, largest 448
using Float8e5m2 = FloatFormat<std::uint8_t, 5, 2, 0x7bU>;

template <typename T>
struct Integer {
  using Value = T;
  using Bits = std::make_unsigned_t<T>;
  static constexpr bool kIsFloat = false;
  static constexpr bool kIsSigned = std::is_signed_v<T>;
};

// Calls visit(Format{}) with the format of `type`; visit.template operator()<Format>() style is
// avoided so that plain generic lambdas serve.
template <typename Visit>
decltype(auto) with_format(tuttiDataType_t type, Visit&& visit) {
  switch (type) {
    case tuttiInt8:
      return visit(Integer<std::int8_t>{});
    case tuttiUint8:
      return visit(Integer<std::uint8_t>{});
    case tuttiInt32:
      return visit(Integer<std::int32_t>{});
    case tuttiUint32:
      return visit(Integer<std::uint32_t>{});
    case tuttiInt64:
      return visit(Integer<std::int64_t>{});
    case tuttiUint64:
      return visit(Integer<std::uint64_t>{});
    case tuttiFloat16:
      return visit(Float16{});
    case tuttiFloat64:
      return visit(Float64{});
    case tuttiBfloat16:
      return visit(Bfloat16Format{});
    case tuttiFloat8e4m3:
      return visit(Float8e4m3{});
    case tuttiFloat8e5m2:
      return visit(Float8e5m2{});
    default:
      return visit(Float32{});
  }
}

// (-1)^negative * magnitude * 2^exponent, which must be representable.
template <typename Format>
[[nodiscard]] constexpr typename Format::Bits encode_exact(bool negative, std::uint64_t magnitude,
                                                           int exponent) {
  using Bits = typename Format::Bits;
  if (magnitude == 0) return 0;  // never a negative zero: sums of opposites give +0
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1;
  int field = top + exponent + Format::kBias;
  int left = Format::kMantissaBits - top;
  if (field < 1) {  // subnormal
    left -= 1 - field;
    field = 0;
  }
  const std::uint64_t mantissa = left >= 0 ? magnitude << left : magnitude >> -left;
  const std::uint64_t mask = (std::uint64_t{1} << Format::kMantissaBits) - 1;
  const std::uint64_t bits =
      (static_cast<std::uint64_t>(field) << Format::kMantissaBits) | (mantissa & mask);
  return static_cast<Bits>(bits | (negative ? std::uint64_t{Format::kSignBit} : 0));
}

// Exact, also subnormals; infinities and NaNs keep their meaning.
template <typename Format>
[[nodiscard]] double decode(typename Format::Bits bits) {
  const std::uint64_t raw = bits;
  const std::uint64_t mantissa = raw & ((std::uint64_t{1} << Format::kMantissaBits) - 1);
  const int field =
      static_cast<int>(raw >> Format::kMantissaBits) & ((1 << Format::kExponentBits) - 1);
  const double sign = (raw & Format::kSignBit) != 0 ? -1.0 : 1.0;
  if ((raw & (Format::kSignBit - 1)) > Format::kMaxFinite) {
    const bool infinite = mantissa == 0 && field == (1 << Format::kExponentBits) - 1;
    return infinite ? sign * std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  const std::uint64_t hidden = field > 0 ? std::uint64_t{1} << Format::kMantissaBits : 0;
  const int exponent = (field > 0 ? field : 1) - Format::kBias - Format::kMantissaBits;
  return sign * std::ldexp(static_cast<double>(mantissa | hidden), exponent);
}

// The nearest value of the format, ties to even; |value| must not exceed the largest finite value.
template <typename Format>
[[nodiscard]] typename Format::Bits encode_nearest(double value) {
  if constexpr (std::is_same_v<Format, Float64>) return std::bit_cast<std::uint64_t>(value);
  if (value == 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int smallest = 1 - Format::kBias - Format::kMantissaBits;  // of subnormals
  const int unit = std::max(exponent - Format::kPrecision, smallest);
  // Exact scaling by a power of two, then one rounding (the default mode is to nearest even).
  const double scaled = std::nearbyint(std::ldexp(std::fabs(value), -unit));
  return encode_exact<Format>(value < 0, static_cast<std::uint64_t>(scaled), unit);
}

// ---- Names and sizes, in the order of tuttiDataType_t and tuttiRedOp_t

[[nodiscard]] std::size_t element_bytes(tuttiDataType_t type);
// As nccl-tests spells them: "float", "half", "f8e4m3".
[[nodiscard]] std::string_view type_name(tuttiDataType_t type);
// Returns whether both differ at most in upper and lower case, as names on the command line are
// read.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b);
[[nodiscard]] std::optional<tuttiDataType_t> parse_type(std::string_view name);

// kMulSum is what nccl-tests calls pre-multiplied sum; it is not a tuttiRedOp_t of its own.
enum class Op { kSum = 0, kProd, kMax, kMin, kAvg, kMulSum };
inline constexpr int kOpCount = 6;
[[nodiscard]] std::string_view op_name(Op op);
[[nodiscard]] std::optional<Op> parse_op(std::string_view name);

// The element at `element` for people: decimal value and the bits in hex.
[[nodiscard]] std::string element_text(tuttiDataType_t type, const void* element);

}  // namespace tutti::perf
