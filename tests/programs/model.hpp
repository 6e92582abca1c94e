// SPDX-License-Identifier: Apache-2.0
// The reference model: what a program leaves in every buffer, step after step, from the words of
// tutti.h alone. No code of the library, no order but that of the steps, no concurrency.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "program.hpp"

namespace tutti::programs {

// The bits of a buffer's elements.
using Elements = std::vector<std::uint64_t>;

struct Contents {
  std::vector<std::vector<Elements>> buffers;                // by rank and buffer
  std::map<std::size_t, std::vector<Elements>> snapshots{};  // by step, then by rank
};

[[nodiscard]] Contents model(const Program& program);

}  // namespace tutti::programs
