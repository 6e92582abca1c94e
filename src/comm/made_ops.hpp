// SPDX-License-Identifier: Apache-2.0
// Reduction operations that a program makes for one communicator: pre-multiplied sums. A call with
// one is a sum whose input was scaled before.
//
// The user's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

// Multiplies this rank's input; other ranks may have other scalars.
struct PreMulSum {
  DataType type = DataType::kFloat32;
  alignas(8) std::array<std::byte, 8> scalar{};  // an element of that type
};

class MadeOps {
 public:
  // Returns a number that none has had before, from 0 on.
  [[nodiscard]] int add(const PreMulSum& op) {
    ops_.emplace(next_, op);
    return next_++;
  }
  // False if there is none with this number.
  [[nodiscard]] bool remove(int number) { return ops_.erase(number) != 0; }
  // Null if there is none; valid until it is removed.
  [[nodiscard]] const PreMulSum* find(int number) const {
    const auto found = ops_.find(number);
    return found == ops_.end() ? nullptr : &found->second;
  }

 private:
  std::map<int, PreMulSum> ops_;
  int next_ = 0;
};

// Returns each of `count` elements times the scalar, rounded once to the type. Throws bad_alloc.
[[nodiscard]] std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                                      std::uint64_t count);

}  // namespace tutti
