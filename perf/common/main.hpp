// SPDX-License-Identifier: Apache-2.0
// The whole of a perf tool's main(): options, processes, threads, report.
#pragma once

#include "common/bench.hpp"

namespace tutti::perf {

// Exit status: 0 all correct and fast enough, 1 wrong results, too slow or failed, 2 wrong usage.
[[nodiscard]] int run_tool(const Tool& tool, int argc, char** argv);

}  // namespace tutti::perf
