// SPDX-License-Identifier: Apache-2.0
// Device memory for tests; a build without CUDA has none and no test reaches it.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::device {

class DeviceMemory {
 public:
  explicit DeviceMemory(const std::vector<std::byte>& contents);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() { return data_; }
  // After all that was enqueued before.
  [[nodiscard]] std::vector<std::byte> contents() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::device
