// SPDX-License-Identifier: Apache-2.0
// The words every part of Tutti shares: ranks, tags, data types, reduction operations.
// Plain values; any thread; knows nothing of schedules, memory or transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

using Rank = std::int32_t;  // position in a communicator, 0 <= rank < ranks
using Tag = std::uint16_t;  // distinguishes the connections of one ordered pair of ranks

inline constexpr Rank kNoRank = -1;
inline constexpr std::size_t kCacheLineBytes = 64;

// Values equal those of tuttiDataType_t and ncclDataType_t, so that the C boundary is a cast
// after a range check.
enum class DataType : std::uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
inline constexpr int kDataTypeCount = 12;

// The first five have NCCL's values; the others are MPI's operations on integers, and tuttiRedOp_t
// numbers them otherwise.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
  kBitAnd = 5,
  kBitOr = 6,
  kBitXor = 7,
  kLogicalAnd = 8,
  kLogicalOr = 9,
  kLogicalXor = 10,
  // The program's function (UserOp), commutative or not.
  kUser = 11,
  kUserInOrder = 12,
};
inline constexpr int kReduceOpCount = 11;       // those with kernels and command-line names
inline constexpr int kReduceOpNamesCount = 13;  // with the program's

// True for bitwise and logical operations, which floats do not have.
[[nodiscard]] constexpr bool takes_integers_only(ReduceOp op) {
  return op >= ReduceOp::kBitAnd && op <= ReduceOp::kLogicalXor;
}
[[nodiscard]] constexpr bool is_integer(DataType type) { return type <= DataType::kUint64; }

// Bytes of one element.
[[nodiscard]] std::size_t element_bytes(DataType type);
// The field's names as nccl-tests spells them: "float", "bfloat16", "sum".
[[nodiscard]] std::string_view name_of(DataType type);
[[nodiscard]] std::string_view name_of(ReduceOp op);
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name);
[[nodiscard]] std::optional<ReduceOp> parse_reduce_op(std::string_view name);

// Linear cost of a message (Hockney): time_ns = alpha_ns + bytes * beta_ns_per_byte. Meanwhile each
// end's core is busy for overhead_ns + bytes * overhead_ns_per_byte (LogGOPS's o and O), where a
// core does the link's work.
struct LinkCost {
  double alpha_ns = 0;
  double beta_ns_per_byte = 0;
  double overhead_ns = 0;
  double overhead_ns_per_byte = 0;
  bool operator==(const LinkCost&) const = default;
};

}  // namespace tutti
