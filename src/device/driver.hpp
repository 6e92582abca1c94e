// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as the process has it: libcuda, if the program has loaded it. Asked without the
// CUDA runtime, so also in a build without CUDA and where the runtime cannot use this driver: the
// program may have device memory all the same. Any thread.
#pragma once

namespace tutti::device {

// Looks for it; once it is found, at no cost.
bool driver_is_loaded();

// Is it memory that only a device may touch? False until driver_is_loaded() has found a driver.
[[nodiscard]] bool driver_knows_for_device(const void* memory);

}  // namespace tutti::device
