// SPDX-License-Identifier: Apache-2.0
#include "api/buffers.hpp"

#include <fmt/core.h>

#include <cstdint>

#include "api/config.hpp"
#include "comm/communicator.hpp"
#include "device/driver.hpp"

namespace tutti {

Result<bool> is_in_device_memory(const char* function, const void* buffer,
                                 const Communicator& communicator) {
  const RankOnDevice* const device = communicator.on_device();
  if (device != nullptr) return device->holds(buffer);
  if (!device::driver_knows_for_device(buffer)) return false;
  return make_error(
      Code::kNotSupported,
      fmt::format("{}: device memory, but rank {} has no CUDA device; use CUDA before the rank "
                  "joins; tutti-info says whether this build can use a device",
                  function, communicator.rank()));
}

Error mixed_memory(const char* function, bool recvbuff_on_device) {
  return bad_argument(
             function,
             fmt::format("sendbuff is {} memory and recvbuff is {} memory; use the same for both",
                         recvbuff_on_device ? "host" : "device",
                         recvbuff_on_device ? "device" : "host"))
      .value();
}

Status check_buffer(const char* function, const char* name, const void* buffer, DataType type) {
  if (buffer == nullptr) return bad_argument(function, fmt::format("{} is NULL", name));
  const std::size_t bytes_each = element_bytes(type);
  if (reinterpret_cast<std::uintptr_t>(buffer) % bytes_each == 0) return {};
  return bad_argument(function, fmt::format("{} is not aligned to the {} bytes of its data type",
                                            name, bytes_each));
}

}  // namespace tutti
