// SPDX-License-Identifier: Apache-2.0
// The numbers of a communicator's operations, on host memory and on its device. The thread that
// holds the communicator's call.
#pragma once

#include <cstdint>

namespace tutti {

// The operations of a communicator: the last one issued, how many have completed, and into how many
// slices the last one was cut.
struct OperationCounts {
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;
  std::uint32_t last_slices = 0;
};

}  // namespace tutti
