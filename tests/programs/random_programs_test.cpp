// SPDX-License-Identifier: Apache-2.0
// Random programs through the library against the model. What fails is made small and printed as a
// test; PROGRAMS_SEED repeats a run and PROGRAMS_COUNT sets how many programs each test runs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "execute.hpp"
#include "generate.hpp"
#include "print.hpp"
#include "shrink.hpp"
#include "tests/sanitizers.hpp"
#include "tests/seed.hpp"

namespace tutti::programs {
namespace {

int programs_to_run(int usual) {
  const char* const given = std::getenv("PROGRAMS_COUNT");
  return given != nullptr ? std::atoi(given) : usual;
}

void report(std::uint32_t seed, const Program& program, const std::string& failure) {
  // A rank that waits for one that does not come costs the timeout at every try.
  const Check check_soon = [](const Program& candidate) {
    return check(candidate, {.op_timeout_ms = 5'000});
  };
  const Shrunk small = shrink(program, failure, check_soon, {.most_runs = 200, .tries = 3});
  ADD_FAILURE() << "program " << seed << ": " << failure << "\nafter " << small.runs
                << " tries to make it smaller:\n"
                << print_test(small.program, small.failure);
}

void run_programs(int count, const Limits& limits) {
  std::mt19937 seeds(draw_seed("PROGRAMS_SEED"));
  std::size_t calls = 0, steps = 0;
  int ran = 0;
  for (; ran < count && !::testing::Test::HasFailure(); ++ran) {
    const auto seed = static_cast<std::uint32_t>(seeds());
    const Program program = generate(seed, limits);
    steps += program.steps.size();
    for (const Step& step : program.steps) calls += is_call(step.kind);
    if (const std::string failure = check(program); !failure.empty())
      report(seed, program, failure);
  }
  std::printf("%d programs, %zu steps, %zu calls of communicators\n", ran, steps, calls);
}

// The transport is read once in a process, so each test is a process of its own (ctest).
TEST(RandomPrograms, GiveWhatTheModelGives) {
  run_programs(programs_to_run(test::kSanitized ? 100 : 1500), {});
}

TEST(RandomPrograms, OfManyStepsGiveWhatTheModelGives) {
  run_programs(programs_to_run(test::kSanitized ? 10 : 80), {.most_steps = 150});
}

TEST(RandomPrograms, GiveOverTcpWhatTheModelGives) {
  ASSERT_EQ(::setenv("TUTTI_TRANSPORT", "tcp", 1), 0);
  run_programs(programs_to_run(test::kSanitized ? 40 : 450), {});
}

}  // namespace
}  // namespace tutti::programs
