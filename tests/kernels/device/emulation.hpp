// SPDX-License-Identifier: Apache-2.0
// A block's threads on the host.
#pragma once

#include "base/types.hpp"
#include "kernels/device/reduce_copy.hpp"

namespace tutti::device {

// What one thread of a block does for (type, op), copies apart as the launcher has it. False where
// there is no such type or operation.
bool emulate(DataType type, ReduceOp op, const HostThreads& threads, const DeviceReduceCopy& call);

}  // namespace tutti::device
