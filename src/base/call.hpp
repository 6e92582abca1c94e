// SPDX-License-Identifier: Apache-2.0
// A call of a collective: what the C boundary checked, and what every layer below it reads.
//
// Made once and passed by reference down to the executors; whoever keeps a reference says until
// when. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/block_sizes.hpp"
#include "base/collective.hpp"
#include "base/part_of.hpp"
#include "base/types.hpp"

namespace tutti {

// Multiplies this rank's input before it is summed; other ranks may have other scalars.
struct PreMulSum {
  DataType type = DataType::kFloat32;
  alignas(8) std::array<std::byte, 8> scalar{};  // an element of that type
};

// The program's own reduction, in the thread that runs the call.
struct UserOp {
  // inout[i] = in[i] op inout[i], where `in` is from the ranks before.
  void (*reduce)(const UserOp& op, const void* in, void* inout, std::size_t count, DataType type);
  void (*function)();  // the program's, of the type that `reduce` knows
  void* context = nullptr;
  bool commutative = true;  // else in the order of ranks
};

struct Call {
  Collective collective;        // no default: leaving it out does not compile with -Werror
  const void* input = nullptr;  // not read where the rank has none (CollectiveInfo::input)
  void* output = nullptr;       // the same; in place where equal elements have equal addresses
  std::uint64_t count = 0;      // elements of the data, or of one block (CollectiveInfo::blocks)
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  bool on_device = false;  // the buffers lie in device memory
  void* stream = nullptr;  // of those
  std::optional<PreMulSum> pre_multiplied = {};
  std::optional<UserOp> user_op = {};  // `op` is kUser or kUserInOrder
  // Of a send or receive that another call made: that call, which all of its parts name alike.
  Whole whole = Whole::kItself;
  std::uint64_t made_by = 0;
  std::uint64_t part_number = 0;  // that call's (PartOf::number); 0: it gets one when this begins
  // Of blocks that differ by rank; `count` is then the largest's. Null: all have `count`.
  std::shared_ptr<const BlockSizes> sizes = nullptr;

  [[nodiscard]] const CollectiveInfo& info() const { return info_of(collective); }
  [[nodiscard]] bool has_input(Rank rank) const { return info().has(info().input, rank, root); }
  [[nodiscard]] bool has_output(Rank rank) const { return info().has(info().output, rank, root); }
  [[nodiscard]] std::uint64_t input_bytes(Rank rank, std::int32_t ranks) const {
    return elements_of(info().input, rank, ranks) * element_bytes(type);
  }
  [[nodiscard]] std::uint64_t output_bytes(Rank rank, std::int32_t ranks) const {
    return elements_of(info().output, rank, ranks) * element_bytes(type);
  }
  // Returns the elements of the whole data.
  [[nodiscard]] std::uint64_t elements(std::int32_t ranks) const {
    return sizes != nullptr ? sizes->total() : count * info().blocks_among(ranks);
  }
  // Returns the bytes of the whole data, which size classes, prices and algorithm bandwidth are
  // about.
  [[nodiscard]] std::uint64_t data_bytes(std::int32_t ranks) const {
    return elements(ranks) * element_bytes(type);
  }
  // Returns the address at which the data's first element lies, or would lie: a rank's own block is
  // a part of the data, so an element has one number in all buffers. Addresses, since before a
  // block there is no object.
  [[nodiscard]] std::uint64_t input_base(Rank rank) const {
    return base_of(input, info().input, rank);
  }
  [[nodiscard]] std::uint64_t output_base(Rank rank) const {
    return base_of(output, info().output, rank);
  }

 private:
  [[nodiscard]] std::uint64_t elements_of(const BufferRule& rule, Rank rank,
                                          std::int32_t ranks) const {
    if (sizes == nullptr) return info().elements(rule, count, ranks);
    return rule.extent == Extent::kWhole ? sizes->span() : sizes->of(rank);
  }
  [[nodiscard]] std::uint64_t base_of(const void* buffer, const BufferRule& rule, Rank rank) const {
    const bool own_block = sizes != nullptr && rule.extent == Extent::kOwnBlock;
    const std::uint64_t first =
        own_block ? sizes->begin(rank) : info().first_element(rule, count, rank);
    return reinterpret_cast<std::uintptr_t>(buffer) - first * element_bytes(type);
  }
};

}  // namespace tutti
