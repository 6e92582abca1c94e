// SPDX-License-Identifier: Apache-2.0
// What sends and receives, and the collectives that are made of them, check alike.
#pragma once

#include <tutti/tutti.h>

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

class Communicator;

// Errors: kInvalidArgument without memory that is aligned to its type, kNotSupported for device
// memory. `name`: of the buffer.
[[nodiscard]] Status check_host_buffer(const char* function, const char* name, const void* buffer,
                                       DataType type, const Communicator& communicator);

}  // namespace tutti
