// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace tutti::programs {
namespace {

struct Type {
  const char* name;
  std::size_t bytes;
  enum { kUnsigned, kSigned, kFloat } kind;
  int exponent_bits, mantissa_bits;  // of floats
  double bound;                      // of filled values: three sums of five ranks stay exact
};

constexpr std::array<Type, tuttiNumTypes> kTypes{{
    {"tuttiInt8", 1, Type::kSigned, 0, 0, 0},
    {"tuttiUint8", 1, Type::kUnsigned, 0, 0, 0},
    {"tuttiInt32", 4, Type::kSigned, 0, 0, 0},
    {"tuttiUint32", 4, Type::kUnsigned, 0, 0, 0},
    {"tuttiInt64", 8, Type::kSigned, 0, 0, 0},
    {"tuttiUint64", 8, Type::kUnsigned, 0, 0, 0},
    {"tuttiFloat16", 2, Type::kFloat, 5, 10, 3},
    {"tuttiFloat32", 4, Type::kFloat, 8, 23, 7},
    {"tuttiFloat64", 8, Type::kFloat, 11, 52, 7},
    {"tuttiBfloat16", 2, Type::kFloat, 8, 7, 3},
    {"tuttiFloat8e4m3", 1, Type::kFloat, 4, 3, 2},
    {"tuttiFloat8e5m2", 1, Type::kFloat, 5, 2, 1},
}};

const Type& row(tuttiDataType_t type) { return kTypes[static_cast<std::size_t>(type)]; }

std::uint64_t low(std::uint64_t bits, std::size_t bytes) {
  return bytes == 8 ? bits : bits & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

std::int64_t sign_extended(std::uint64_t bits, std::size_t bytes) {
  const int unused = 64 - 8 * static_cast<int>(bytes);
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

bool less(const Type& type, std::uint64_t a, std::uint64_t b) {
  return type.kind == Type::kSigned ? sign_extended(a, type.bytes) < sign_extended(b, type.bytes)
                                    : a < b;
}

std::uint64_t combine(const Type& type, tuttiRedOp_t op, std::uint64_t a, std::uint64_t b) {
  switch (op) {
    case tuttiSum:
    case tuttiAvg:
      return low(a + b, type.bytes);
    case tuttiProd:
      return low(a * b, type.bytes);
    case tuttiMax:
      return less(type, a, b) ? b : a;
    case tuttiMin:
      return less(type, a, b) ? a : b;
    case tuttiBitAnd:
      return a & b;
    case tuttiBitOr:
      return a | b;
    case tuttiBitXor:
      return a ^ b;
    case tuttiLogicalAnd:
      return a != 0 && b != 0;
    case tuttiLogicalOr:
      return a != 0 || b != 0;
    case tuttiLogicalXor:
      return (a != 0) != (b != 0);
    default:
      return 0;
  }
}

double combine(tuttiRedOp_t op, double a, double b) {
  switch (op) {
    case tuttiProd:
      return a * b;
    case tuttiMax:
      return std::max(a, b);
    case tuttiMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

std::uint64_t reduce_floats(tuttiDataType_t type, tuttiRedOp_t op,
                            std::span<const std::uint64_t> elements) {
  double value = decode(type, elements[0]);
  for (const std::uint64_t element : elements.subspan(1))
    value = combine(op, value, decode(type, element));
  if (op == tuttiAvg) value /= static_cast<double>(elements.size());
  return encode(type, value);
}

}  // namespace

std::size_t bytes_of(tuttiDataType_t type) { return row(type).bytes; }
bool is_float(tuttiDataType_t type) { return row(type).kind == Type::kFloat; }
bool is_signed(tuttiDataType_t type) { return row(type).kind == Type::kSigned; }
const char* name_of(tuttiDataType_t type) { return row(type).name; }
double fill_bound(tuttiDataType_t type) { return row(type).bound; }

double exact_limit(tuttiDataType_t type) { return std::ldexp(1.0, row(type).mantissa_bits + 1); }

const char* name_of(tuttiRedOp_t op) {
  switch (op) {
    case tuttiProd:
      return "tuttiProd";
    case tuttiMax:
      return "tuttiMax";
    case tuttiMin:
      return "tuttiMin";
    case tuttiAvg:
      return "tuttiAvg";
    case tuttiBitAnd:
      return "tuttiBitAnd";
    case tuttiBitOr:
      return "tuttiBitOr";
    case tuttiBitXor:
      return "tuttiBitXor";
    case tuttiLogicalAnd:
      return "tuttiLogicalAnd";
    case tuttiLogicalOr:
      return "tuttiLogicalOr";
    case tuttiLogicalXor:
      return "tuttiLogicalXor";
    default:
      return "tuttiSum";
  }
}

bool has_operation(tuttiDataType_t type, tuttiRedOp_t op) {
  return op < tuttiNumOps || !is_float(type);
}

std::uint64_t encode(tuttiDataType_t type, double value) {
  const auto [name, bytes, kind, exponent_bits, mantissa_bits, bound] = row(type);
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (8 * bytes - 1) : 0;
  if (value == 0) return sign;
  int exponent = 0;  // |value| = fraction * 2^exponent, 0.5 <= fraction < 1
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(2 * fraction - 1, mantissa_bits));
  const auto biased = static_cast<std::uint64_t>(exponent - 1 + bias);
  return sign | biased << mantissa_bits | mantissa;
}

double decode(tuttiDataType_t type, std::uint64_t bits) {
  const auto [name, bytes, kind, exponent_bits, mantissa_bits, bound] = row(type);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  const auto biased =
      static_cast<int>(bits >> mantissa_bits & ((std::uint64_t{1} << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction =
      std::ldexp(static_cast<double>(mantissa), -mantissa_bits) + (biased == 0 ? 0 : 1);
  const double value = std::ldexp(fraction, (biased == 0 ? 1 : biased) - bias);
  return (bits >> (8 * bytes - 1) & 1) != 0 ? -value : value;
}

std::uint64_t reduce(tuttiDataType_t type, tuttiRedOp_t op,
                     std::span<const std::uint64_t> elements) {
  if (is_float(type)) return reduce_floats(type, op, elements);
  const Type& row_of_type = row(type);
  std::uint64_t value = elements[0];
  for (const std::uint64_t element : elements.subspan(1))
    value = combine(row_of_type, op, value, element);
  if (op != tuttiAvg) return value;
  const std::uint64_t ranks = elements.size();
  if (!is_signed(type)) return value / ranks;
  const std::int64_t wide = sign_extended(value, row_of_type.bytes);
  return low(static_cast<std::uint64_t>(wide / static_cast<std::int64_t>(ranks)),
             row_of_type.bytes);
}

std::uint64_t plus_one(tuttiDataType_t type, std::uint64_t bits) {
  if (is_float(type)) return encode(type, decode(type, bits) + 1);
  return low(bits + 1, bytes_of(type));
}

std::uint32_t mix(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  // The last steps of MurmurHash3.
  std::uint32_t hash = a * 0x9e3779b1u ^ b * 0x85ebca6bu ^ (c + 1) * 0xc2b2ae35u;
  hash = (hash ^ hash >> 16) * 0x85ebca6bu;
  hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
  return hash ^ hash >> 16;
}

std::uint64_t fill_value(tuttiDataType_t type, std::uint32_t salt, int rank, std::size_t i) {
  const std::uint32_t drawn =
      mix(salt, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(i));
  if (!is_float(type)) return low(std::uint64_t{drawn} * 0x100000001u, bytes_of(type));
  const auto size = static_cast<std::uint32_t>(fill_bound(type));
  const double value = 1 + drawn / 2 % size;
  return encode(type, drawn % 2 == 0 ? value : -value);
}

std::uint64_t load(const std::byte* at, std::size_t bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) bits |= std::uint64_t(at[i]) << (8 * i);
  return bits;
}

void store(std::byte* at, std::size_t bytes, std::uint64_t bits) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(bits >> (8 * i));
}

std::string text_of(tuttiDataType_t type, std::uint64_t bits) {
  if (is_float(type)) return fmt::format("{} ({:#x})", decode(type, bits), bits);
  if (is_signed(type)) return fmt::format("{} ({:#x})", sign_extended(bits, bytes_of(type)), bits);
  return fmt::format("{} ({:#x})", bits, bits);
}

}  // namespace tutti::programs
