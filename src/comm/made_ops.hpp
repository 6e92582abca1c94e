// SPDX-License-Identifier: Apache-2.0
// Reduction operations that a program makes for one communicator: pre-multiplied sums. A call with
// one is a sum whose input is scaled when the operation starts.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/call.hpp"

namespace tutti {

class MadeOps {
 public:
  // Returns a number from 0 on that none has had before in any communicator of the process.
  [[nodiscard]] int add(const PreMulSum& op);
  // False if there is none with this number.
  [[nodiscard]] bool remove(int number);
  [[nodiscard]] std::optional<PreMulSum> find(int number) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, PreMulSum> ops_;  // guarded by mutex_
};

// Returns each of `count` elements times the scalar, rounded once to the type. Throws bad_alloc.
[[nodiscard]] std::shared_ptr<const std::byte> scaled(const PreMulSum& op, const void* input,
                                                      std::uint64_t count);

}  // namespace tutti
