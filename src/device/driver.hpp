// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as the process has it: libcuda, if the program has loaded it. Asked without the
// CUDA runtime, so also in a build without CUDA and where the runtime cannot use this driver: the
// program may have device memory all the same. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tutti::device {

// Looks for it; once it is found, at no cost.
bool driver_is_loaded();
namespace driver_detail {
extern std::atomic<bool> was_found;
}
// Has it found one before? One load.
[[nodiscard]] inline bool driver_was_found() {
  return driver_detail::was_found.load(std::memory_order_acquire);
}

// Is it memory that only a device may touch? False until driver_is_loaded() has found a driver.
[[nodiscard]] bool driver_knows_for_device(const void* memory);

// How memory of a device was allocated, as far as it decides which other devices reach it: those
// with peer access to the device, or those to which the program gave access to this memory.
enum class Allocation : std::uint8_t {
  kUsual,    // cudaMalloc
  kPool,     // cudaMallocAsync, cudaMallocFromPoolAsync
  kMapping,  // cuMemMap
};
struct Access {
  Allocation allocation = Allocation::kUsual;
  bool granted = false;  // may the device read and write it? Not known of kUsual
};
// Asks for memory of another device. kUsual also where the driver does not answer.
[[nodiscard]] Access driver_access(int device, const void* memory);
// Returns words for memory of `owner` that `device` does not reach, and how to give it access.
[[nodiscard]] std::string describe_unreachable(Allocation allocation, int owner, int device);

}  // namespace tutti::device
