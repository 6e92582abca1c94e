// SPDX-License-Identifier: Apache-2.0
// Sums of 8- and 16-bit floats whose partial results travel as fp32 (TUTTI_FP32_PARTIALS): the call
// runs as one of fp32 in memory of its own, by the plan of that size, and its result is rounded
// once.
#pragma once

#include <cstdint>

#include "base/call.hpp"
#include "comm/call_memory.hpp"

namespace tutti {

// Would partial results of this call be rounded on their way?
[[nodiscard]] bool rounds_partials(const Call& call);

// One thread at a time.
class Fp32Partials {
 public:
  // Copies the input and makes `call` one of fp32 on the copy, in place there; a scalar is
  // multiplied into the copy. Takes what is kept, if it is large enough. Throws bad_alloc.
  Fp32Partials(Call& call, Rank rank, std::int32_t ranks, CallMemory& kept);
  // Rounds the result to where the program wants it, and gives the memory back. Where a call fails
  // and this is not called, the memory goes.
  void finish();

 private:
  void widen(const Call& call);
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(memory_.data.get()); }

  CallMemory& kept_;
  CallMemory memory_;
  float* result_ = nullptr;  // in it; null: this rank has none
  Call as_called_;
  Rank rank_;
  std::int32_t ranks_;
};

}  // namespace tutti
