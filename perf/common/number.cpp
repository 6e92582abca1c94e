// SPDX-License-Identifier: Apache-2.0
#include "common/number.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace tutti::perf {
namespace {

constexpr std::array<std::string_view, tuttiNumTypes> kTypeNames{
    "int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
    "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kOpCount> kOpNames{"sum", "prod", "max",
                                                          "min", "avg",  "mulsum"};

}  // namespace

std::size_t element_bytes(tuttiDataType_t type) {
  return with_format(type, [](auto format) { return sizeof(typename decltype(format)::Bits); });
}

std::string_view type_name(tuttiDataType_t type) {
  return kTypeNames[static_cast<std::size_t>(type)];
}

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

std::optional<tuttiDataType_t> parse_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypeNames.size(); ++i)
    if (same_name(kTypeNames[i], name)) return static_cast<tuttiDataType_t>(i);
  return std::nullopt;
}

std::string_view op_name(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

std::optional<Op> parse_op(std::string_view name) {
  for (std::size_t i = 0; i < kOpNames.size(); ++i)
    if (same_name(kOpNames[i], name)) return static_cast<Op>(i);
  return std::nullopt;
}

std::string element_text(tuttiDataType_t type, const void* element) {
  return with_format(type, [element](auto format) {
    using Format = decltype(format);
    typename Format::Bits bits{};
    std::memcpy(&bits, element, sizeof(bits));
    const auto hex = fmt::format("0x{:0{}x}", bits, 2 * sizeof(bits));
    if constexpr (Format::kIsFloat)
      return fmt::format("{} ({})", decode<Format>(bits), hex);
    else
      return fmt::format("{} ({})", static_cast<typename Format::Value>(bits), hex);
  });
}

}  // namespace tutti::perf
