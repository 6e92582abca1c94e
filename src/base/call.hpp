// SPDX-License-Identifier: Apache-2.0
// A call of a collective: what the C boundary checked, and what every layer below it reads.
//
// Made once and passed by reference down to the executors; whoever keeps a reference says until
// when. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/collective.hpp"
#include "base/types.hpp"

namespace tutti {

// Multiplies this rank's input before it is summed; other ranks may have other scalars.
struct PreMulSum {
  DataType type = DataType::kFloat32;
  alignas(8) std::array<std::byte, 8> scalar{};  // an element of that type
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

  [[nodiscard]] const CollectiveInfo& info() const { return info_of(collective); }
  [[nodiscard]] bool has_input(Rank rank) const { return info().has(info().input, rank, root); }
  [[nodiscard]] bool has_output(Rank rank) const { return info().has(info().output, rank, root); }
  [[nodiscard]] std::uint64_t input_bytes(std::int32_t ranks) const {
    return info().elements(info().input, count, ranks) * element_bytes(type);
  }
  [[nodiscard]] std::uint64_t output_bytes(std::int32_t ranks) const {
    return info().elements(info().output, count, ranks) * element_bytes(type);
  }
  // Returns the bytes of the whole data, on which size classes, prices and algorithm bandwidth are
  // about.
  [[nodiscard]] std::uint64_t data_bytes(std::int32_t ranks) const {
    return count * info().blocks_among(ranks) * element_bytes(type);
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
  [[nodiscard]] std::uint64_t base_of(const void* buffer, const BufferRule& rule, Rank rank) const {
    return reinterpret_cast<std::uintptr_t>(buffer) -
           info().first_element(rule, count, rank) * element_bytes(type);
  }
};

}  // namespace tutti
