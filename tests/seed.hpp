// SPDX-License-Identifier: Apache-2.0
// The seed of a random test: new in every run, and printed before the test uses it.
//
//   std::mt19937 random(draw_seed());
//
// The line is flushed at once: standard output is a pipe under ctest, and a test that is killed at
// its time limit loses what it has not written. The variable that the line names repeats a run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace tutti {

[[nodiscard]] inline std::uint32_t draw_seed(const char* variable = "TUTTI_TEST_SEED") {
  const char* const given = std::getenv(variable);
  const std::uint32_t seed = given != nullptr
                                 ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 0))
                                 : std::random_device{}();
  std::printf("%s=%u\n", variable, seed);
  std::fflush(stdout);
  return seed;
}

}  // namespace tutti
