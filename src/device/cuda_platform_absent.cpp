// SPDX-License-Identifier: Apache-2.0
// Of a build without CUDA.
#include "device/driver.hpp"
#include "device/platform.hpp"

namespace tutti::device {

Platform* cuda_platform(bool) {
  driver_is_loaded();  // so that device memory is known for what it is
  return nullptr;
}

std::string_view cuda_fault() { return {}; }

}  // namespace tutti::device
