// SPDX-License-Identifier: Apache-2.0
// Memory that a call takes beside the program's, and that its communicator keeps for the next one:
// the kernel clears the pages of fresh memory, which takes longer than a large call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace tutti {

struct CallMemory {
  std::unique_ptr<std::byte[]> data;  // aligned for any type
  std::uint64_t bytes = 0;

  // At least `bytes`: what is kept, if it is large enough. Throws bad_alloc.
  [[nodiscard]] static CallMemory take(CallMemory& kept, std::uint64_t bytes) {
    CallMemory memory = std::exchange(kept, {});
    if (memory.bytes >= bytes) return memory;
    memory = {};  // before the larger one is there
    return {std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes};
  }
};

}  // namespace tutti
