// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tutti::reference {
namespace {

// Enough bits that rounding one +, * or / of two doubles twice is rounding it once (2 * 53 + 2).
#if defined(__x86_64__)
using Quad = __float128;
#else
using Quad = long double;
static_assert(std::numeric_limits<long double>::digits >= 108);
#endif

struct Format {
  int exponent_bits;
  int mantissa_bits;  // stored
};

bool is_float8(DataType type) {
  return type == DataType::kFloat8e4m3 || type == DataType::kFloat8e5m2;
}

Format format_of(DataType type) {
  switch (type) {
    case DataType::kFloat8e4m3:
      return {4, 3};
    case DataType::kFloat8e5m2:
      return {5, 2};
    case DataType::kFloat16:
      return {5, 10};
    case DataType::kBfloat16:
      return {8, 7};
    case DataType::kFloat32:
      return {8, 23};
    default:
      return {11, 52};
  }
}

// By search among all finite values: the nearest, of two as near the even one. So what is too large
// becomes the largest.
std::uint64_t encode_float8(DataType type, double value) {
  using Table = std::array<double, 0x80>;
  const auto all_of = [](DataType of) {
    Table values{};
    for (std::uint64_t element = 0; element < values.size(); ++element)
      values[element] = decode(of, element);
    return values;
  };
  static const Table kE4m3 = all_of(DataType::kFloat8e4m3), kE5m2 = all_of(DataType::kFloat8e5m2);
  const Table& values = type == DataType::kFloat8e4m3 ? kE4m3 : kE5m2;
  if (std::isnan(value)) return 0x7f;
  // Beyond twice the largest no difference matters, and none would show in a double.
  const double magnitude = std::min(std::fabs(value), 2 * 57344.0);
  std::uint64_t best = 0;
  for (std::uint64_t element = 0; element < values.size() && std::isfinite(values[element]);
       ++element) {
    const double best_away = std::fabs(magnitude - values[best]);
    const double away = std::fabs(magnitude - values[element]);
    if (away < best_away || (away == best_away && element % 2 == 0)) best = element;
  }
  return best | (std::signbit(value) ? 0x80U : 0U);
}

std::uint64_t canonical_nan(Format format) {
  const std::uint64_t exponent = (std::uint64_t{1} << format.exponent_bits) - 1;
  return (exponent << format.mantissa_bits) | (std::uint64_t{1} << (format.mantissa_bits - 1));
}

// One operation in the accumulator's precision: fp32 results from doubles, doubles from quads.
template <typename Narrow, typename Wide>
Narrow operate(ReduceOp op, Narrow a, Narrow b) {
  const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<Narrow>(x + y);
    case ReduceOp::kProd:
      return static_cast<Narrow>(x * y);
    default:
      break;
  }
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Narrow>::quiet_NaN();
  const bool max = op == ReduceOp::kMax;
  if (a == 0 && b == 0) return std::signbit(a) == max ? b : a;
  return (a > b) == max ? a : b;
}

template <typename Narrow, typename Wide>
double reduce_float(DataType type, ReduceOp op, std::span<const std::uint64_t> sources,
                    std::uint32_t average_over) {
  auto value = static_cast<Narrow>(decode(type, sources[0]));
  for (std::size_t k = 1; k < sources.size(); ++k)
    value = operate<Narrow, Wide>(op, value, static_cast<Narrow>(decode(type, sources[k])));
  if (average_over > 1)
    value = static_cast<Narrow>(static_cast<Wide>(value) /
                                static_cast<Wide>(static_cast<Narrow>(average_over)));
  return static_cast<double>(value);
}

// `element` modulo 2^bits, as a number of the type.
__int128 wrap(DataType type, __int128 value) {
  const int bits = static_cast<int>(element_bytes(type)) * 8;
  const __int128 modulus = static_cast<__int128>(1) << bits;
  __int128 wrapped = value % modulus;
  if (wrapped < 0) wrapped += modulus;
  if (is_signed(type) && wrapped >= modulus / 2) wrapped -= modulus;
  return wrapped;
}

std::uint64_t reduce_integer(DataType type, ReduceOp op, std::span<const std::uint64_t> sources,
                             std::uint32_t average_over) {
  __int128 value = wrap(type, sources[0]);
  for (std::size_t k = 1; k < sources.size(); ++k) {
    const __int128 next = wrap(type, sources[k]);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        value = wrap(type, value + next);
        break;
      // |value|, |next| <= 2^64: an unsigned 64-bit square can pass 2^127, so wrap by halves.
      case ReduceOp::kProd: {
        const __int128 low = next & 0xffffffff, high = next >> 32;
        value =
            wrap(type, value * low + wrap(type, wrap(type, value * high) * (__int128{1} << 32)));
        break;
      }
      case ReduceOp::kMax:
        value = value > next ? value : next;
        break;
      case ReduceOp::kMin:
        value = value < next ? value : next;
        break;
      case ReduceOp::kBitAnd:
        value = value & next;
        break;
      case ReduceOp::kBitOr:
        value = value | next;
        break;
      case ReduceOp::kBitXor:
        value = value ^ next;
        break;
      case ReduceOp::kLogicalAnd:
        value = value != 0 && next != 0;
        break;
      case ReduceOp::kLogicalOr:
        value = value != 0 || next != 0;
        break;
      case ReduceOp::kLogicalXor:
        value = (value != 0) != (next != 0);
        break;
      case ReduceOp::kUser:
      case ReduceOp::kUserInOrder:
        break;  // have no kernel
    }
  }
  if (average_over > 1) value = value / average_over;
  const int unused_bits = 64 - static_cast<int>(element_bytes(type)) * 8;
  return static_cast<std::uint64_t>(value) << unused_bits >> unused_bits;
}

}  // namespace

bool is_float(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64 || is_float8(type);
}

bool is_signed(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt32 || type == DataType::kInt64;
}

double decode(DataType type, std::uint64_t element) {
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t mantissa = element & ((std::uint64_t{1} << format.mantissa_bits) - 1);
  const int all_ones = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(element >> format.mantissa_bits) & all_ones;
  const bool negative = (element >> (format.exponent_bits + format.mantissa_bits) & 1) != 0;
  double magnitude = 0;
  // e4m3 spends the greatest exponent on numbers, but for the greatest mantissa.
  const bool special =
      type == DataType::kFloat8e4m3 ? (element & 0x7f) == 0x7f : exponent == all_ones;
  if (special)
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - bias - format.mantissa_bits);
  else
    magnitude =
        std::ldexp(static_cast<double>(mantissa | (std::uint64_t{1} << format.mantissa_bits)),
                   exponent - bias - format.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

std::uint64_t encode(DataType type, double value) {
  if (is_float8(type)) return encode_float8(type, value);
  const Format format = format_of(type);
  if (std::isnan(value)) return canonical_nan(format);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const std::uint64_t sign = static_cast<std::uint64_t>(std::signbit(value))
                             << (format.exponent_bits + format.mantissa_bits);
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent_bits) - 1)
                                 << format.mantissa_bits;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);             // magnitude in [2^(exponent-1), 2^exponent)
  exponent = std::max(exponent - 1, 1 - bias);  // subnormals share the least exponent
  const double units = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const auto rounded = static_cast<std::uint64_t>(std::nearbyint(units));  // ties to even
  // The hidden bit, where there is one, and a rounding up to the next power of two carry into the
  // exponent by themselves.
  const std::uint64_t element =
      (static_cast<std::uint64_t>(exponent + bias - 1) << format.mantissa_bits) + rounded;
  return sign | std::min(element, infinity);
}

std::uint64_t reduce(DataType type, ReduceOp op, std::span<const std::uint64_t> sources,
                     std::uint32_t average_over) {
  if (sources.size() == 1 && average_over <= 1) return sources[0];
  if (!is_float(type)) return reduce_integer(type, op, sources, average_over);
  if (type == DataType::kFloat64)
    return encode(type, reduce_float<double, Quad>(type, op, sources, average_over));
  return encode(type, reduce_float<float, double>(type, op, sources, average_over));
}

}  // namespace tutti::reference
