// SPDX-License-Identifier: Apache-2.0
// A flag of bytes, read as the perf tools read -b and -e.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::perf {

[[nodiscard]] CLI::Validator as_bytes();

}  // namespace tutti::perf
