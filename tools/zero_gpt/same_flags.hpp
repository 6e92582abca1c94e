// SPDX-License-Identifier: Apache-2.0
// Processes that a launcher or a user started one by one may have been given other flags: training
// would go on, on a mixture. Collective.
#pragma once

#include "tutti/tutti.hpp"
#include "zero_gpt/options.hpp"
#include "zero_gpt/text.hpp"

namespace tutti::gpt {

// Throws std::invalid_argument, on all ranks, with the first flag that is not the same on all. (The
// engine compares its own.)
void check_same_flags(Communicator& comm, const Options& options, const Text& text);

}  // namespace tutti::gpt
