// SPDX-License-Identifier: Apache-2.0
// Random programs: a function of the seed.
#pragma once

#include <cstdint>

#include "program.hpp"

namespace tutti::programs {

struct Limits {
  int most_ranks = 5;
  int most_steps = 30;               // that are drawn, beside those that order them
  std::uint32_t most_count = 20000;  // elements of a block; most blocks are much smaller
};

[[nodiscard]] Program generate(std::uint32_t seed, const Limits& limits = {});

}  // namespace tutti::programs
