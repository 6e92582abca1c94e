// SPDX-License-Identifier: Apache-2.0
// A call in place whose plan needs input and output apart (ScheduleShape::apart): it writes an
// output of its own, which goes to the program's when the plan is through. Each rank decides for
// itself; its peers see nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/call.hpp"
#include "comm/call_memory.hpp"

namespace tutti {

[[nodiscard]] bool is_in_place(const Call& call, Rank rank);

// One thread at a time.
class ApartOutput {
 public:
  // Gives `call` another output. Takes what is kept, if it is large enough. Throws bad_alloc.
  ApartOutput(Call& call, Rank rank, std::int32_t ranks, CallMemory& kept);
  // Copies the result to where the program wants it, and gives the memory back. Where a call fails
  // and this is not called, the memory goes.
  void finish();

 private:
  CallMemory& kept_;
  CallMemory memory_;
  std::byte* wanted_at_;
  std::uint64_t bytes_;
  std::uint64_t own_begin_ = 0, own_bytes_ = 0;  // of what is there already
};

}  // namespace tutti
