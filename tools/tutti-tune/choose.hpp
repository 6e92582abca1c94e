// SPDX-License-Identifier: Apache-2.0
// `tutti-tune choose`: the table of choices that rank 0 of a job would make at its start, for a job
// that need not exist.
#pragma once

#include <cstdint>
#include <cstdio>

#include "base/result.hpp"

namespace tutti::tune {

struct ChooseOptions {
  std::int32_t ranks = 0;
  std::int32_t ranks_per_host = 0;  // the last host may have fewer; 0: all on one
  std::int32_t cores = 0;           // of all hosts together; 0: one a rank
  double wire_alpha_ns = 10'000;    // between hosts
  double wire_GBps = 12.5;
};

// Prints which plan each size class takes, and what making the table took of time and memory.
[[nodiscard]] Status choose(const ChooseOptions& options, std::FILE* out);

}  // namespace tutti::tune
