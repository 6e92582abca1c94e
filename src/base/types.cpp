// SPDX-License-Identifier: Apache-2.0
#include "base/types.hpp"

#include <array>

namespace tutti {
namespace {

struct TypeRow {
  std::string_view name;
  std::uint8_t bytes;
};

// Indexed by DataType; the only list of type names and sizes.
constexpr std::array<TypeRow, kDataTypeCount> kTypes{{{"int8", 1},
                                                      {"uint8", 1},
                                                      {"int32", 4},
                                                      {"uint32", 4},
                                                      {"int64", 8},
                                                      {"uint64", 8},
                                                      {"half", 2},
                                                      {"float", 4},
                                                      {"double", 8},
                                                      {"bfloat16", 2},
                                                      {"f8e4m3", 1},
                                                      {"f8e5m2", 1}}};
constexpr std::array<std::string_view, kReduceOpNamesCount> kOps{
    "sum",     "prod",        "max",        "min",         "avg",  "bit_and",      "bit_or",
    "bit_xor", "logical_and", "logical_or", "logical_xor", "user", "user_in_order"};

}  // namespace

std::size_t element_bytes(DataType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }
std::string_view name_of(DataType type) { return kTypes[static_cast<std::size_t>(type)].name; }
std::string_view name_of(ReduceOp op) { return kOps[static_cast<std::size_t>(op)]; }

std::optional<DataType> parse_data_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  return std::nullopt;
}

std::optional<ReduceOp> parse_reduce_op(std::string_view name) {
  for (std::size_t i = 0; i < kReduceOpCount; ++i)
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  return std::nullopt;
}

}  // namespace tutti
