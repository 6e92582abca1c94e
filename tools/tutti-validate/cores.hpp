// SPDX-License-Identifier: Apache-2.0
// The cores of a job: its times hold only for as many.
#pragma once

#include <optional>

#include "tutti/tutti.h"

namespace tutti::validate {

// How many cores the ranks of a host have together, as the library counts them; nothing: the ranks
// are on several hosts. Collective, by all `ranks` of the communicator. Throws std::runtime_error.
[[nodiscard]] std::optional<int> cores_of(tuttiComm_t comm, int ranks);

}  // namespace tutti::validate
