// SPDX-License-Identifier: Apache-2.0
// A picture of the state that a rank holds, by stage and number of ranks: both axes in logarithms,
// a line for each stage, and the memory of a rank as a dashed line. SVG that needs nothing else.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "gpt_shape.hpp"
#include "model_state.hpp"

namespace tutti::zero_memory {

// Ranks 1, 2, 4, ... up to the first power of two that reaches `most_ranks`.
[[nodiscard]] std::string memory_svg(const Model& model, const Accounting& accounting,
                                     std::uint64_t most_ranks, std::uint64_t memory_bytes);

}  // namespace tutti::zero_memory
