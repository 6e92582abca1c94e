// SPDX-License-Identifier: Apache-2.0
// Reduction operations that a program makes for one communicator: pre-multiplied sums, and
// functions of its own. A call with one of the first is a sum whose input is scaled when the
// operation starts.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "base/call.hpp"

namespace tutti {

using MadeOp = std::variant<PreMulSum, UserOp>;

class MadeOps {
 public:
  // Returns a number from 0 on that none has had before in any communicator of the process.
  [[nodiscard]] int add(const MadeOp& op);
  // False if there is none with this number.
  [[nodiscard]] bool remove(int number);
  [[nodiscard]] std::optional<MadeOp> find(int number) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, MadeOp> ops_;  // guarded by mutex_
};

// Multiplies each of `count` elements in place.
void scale(const PreMulSum& op, void* data, std::uint64_t count);
// Returns each of `count` elements times the scalar, rounded once to the type. Throws bad_alloc.
[[nodiscard]] std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                                      std::uint64_t count);
// The same of blocks; the result has them one behind the other.
[[nodiscard]] std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                                      const BlockSizes& sizes);

}  // namespace tutti
