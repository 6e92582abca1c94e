// SPDX-License-Identifier: Apache-2.0
// Enqueues calls with device memory, of one communicator or of a group.
#pragma once

#include <span>

#include "comm/run_operations.hpp"

namespace tutti {

// Those of one communicator in the order given, those of ranks that share a device together.
// Returns when all are launched. Returns the first error; its communicator is poisoned, unless all
// ranks find that error alike. The others' calls run.
[[nodiscard]] Status run_on_devices(std::span<HeldCall> calls);

}  // namespace tutti
