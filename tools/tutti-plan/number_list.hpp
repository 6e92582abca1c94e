// SPDX-License-Identifier: Apache-2.0
// "1-9,16,33" as numbers: rank, slice and replica lists on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti {

// The numbers in the order given, each from 1 to `most`; kInvalidArgument in one line otherwise.
// `what` names the list in the message. At most 10,000 numbers.
[[nodiscard]] Result<std::vector<std::uint32_t>> parse_number_list(const std::string& what,
                                                                   const std::string& text,
                                                                   std::uint32_t most);

}  // namespace tutti
