// SPDX-License-Identifier: Apache-2.0
// Sizes as nccl-tests writes them: 8, 1K, 64M, 1G, binary. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::sim {

// "8,1K,64M"; or a range 8-512M, in steps of a factor 2. From 1 byte to 2^50, at most 10,000.
// kInvalidArgument in one line.
[[nodiscard]] Result<std::vector<std::uint64_t>> parse_sizes(const std::string& text);

// "64K", "1.5M": four digits.
[[nodiscard]] std::string short_size(double bytes);

}  // namespace tutti::sim
