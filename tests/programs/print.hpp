// SPDX-License-Identifier: Apache-2.0
// A program as C++ to paste into pasted_programs_test.cpp.
#pragma once

#include <string>

#include "program.hpp"

namespace tutti::programs {

// The initializer: "{.ranks = 2, ...}". Fields with their default value are left out.
[[nodiscard]] std::string print(const Program& program);
// A whole test around it, with what was found as a comment.
[[nodiscard]] std::string print_test(const Program& program, const std::string& failure);

}  // namespace tutti::programs
