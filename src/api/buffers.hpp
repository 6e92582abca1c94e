// SPDX-License-Identifier: Apache-2.0
// What all calls check of a buffer.
#pragma once

#include <tutti/tutti.h>

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

class Communicator;

// Does it lie in device memory, rather than the host's? kNotSupported where the rank has no device.
[[nodiscard]] Result<bool> is_in_device_memory(const char* function, const void* buffer,
                                               const Communicator& communicator);
// Of a call with one buffer in device memory and the other in host memory.
[[nodiscard]] Error mixed_memory(const char* function, bool recvbuff_on_device);
// kInvalidArgument without memory that is aligned to its type. `name`: of the buffer.
[[nodiscard]] Status check_buffer(const char* function, const char* name, const void* buffer,
                                  DataType type);

}  // namespace tutti
