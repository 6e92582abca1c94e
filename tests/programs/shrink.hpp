// SPDX-License-Identifier: Apache-2.0
// From a program that fails to a small one that fails too: fewer steps, then simpler ones.
#pragma once

#include <functional>
#include <string>

#include "program.hpp"

namespace tutti::programs {

// What is wrong with a program; empty: nothing.
using Check = std::function<std::string(const Program&)>;

struct ShrinkOptions {
  int most_runs = 400;  // of `check`
  // How often a program that may be smaller runs until it counts as right: a race fails now and
  // then.
  int tries = 1;
};

struct Shrunk {
  Program program;
  std::string failure;  // of that program
  int runs = 0;
};

// `program` fails with `failure`. Every program that is tried is legal: what orders its steps is
// put in again (Order).
[[nodiscard]] Shrunk shrink(const Program& program, const std::string& failure, const Check& check,
                            const ShrinkOptions& options = {});

}  // namespace tutti::programs
