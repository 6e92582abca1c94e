// SPDX-License-Identifier: Apache-2.0
// The harness of forked ranks itself: a rank that fails, dies, hangs or leaks is told from one that
// passes.
#include "fork_harness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

TEST(RunForked, TellsFailuresDeathsAndMessages) {
  const auto results = run_forked(4,
                                  [](const ForkedRank& self) {
                                    EXPECT_EQ(self.message, "hello");
                                    EXPECT_NE(self.rank, 1) << "rank one's own words";
                                    if (self.rank == 2) ::raise(SIGKILL);
                                    if (self.rank == 3) ::_exit(7);
                                  },
                                  {.after_fork = [] { return std::string("hello"); }});
  EXPECT_TRUE(results[0].passed) << results[0].report;
  EXPECT_FALSE(results[1].passed);
  EXPECT_THAT(results[1].report, HasSubstr("rank one's own words"));
  EXPECT_EQ(results[2].signal, SIGKILL);
  EXPECT_FALSE(results[3].passed);
}

TEST(RunForked, EndsARankThatHangs) {
  const auto results = run_forked(1,
                                  [](const ForkedRank&) {
                                    for (;;) ::pause();
                                  },
                                  {.timeout_ms = 1, .after_fork = {}});
  EXPECT_TRUE(results[0].timed_out);
  EXPECT_FALSE(results[0].passed);
}

#if defined(__SANITIZE_ADDRESS__)
// Nothing points to the block once its address is gone from the stack that later calls use again.
__attribute__((noinline)) void leak() {
  void* volatile block = std::malloc(1234);
  *static_cast<char*>(block) = 1;
  block = nullptr;
}

TEST(RunForked, ARankThatLeaksFails) {
  const auto results = run_forked(2, [](const ForkedRank& self) {
    if (self.rank == 1)
      for (int i = 0; i < 100; ++i) leak();
  });
  EXPECT_TRUE(results[0].passed) << results[0].report;
  EXPECT_FALSE(results[1].passed);
  EXPECT_THAT(results[1].report, HasSubstr("rank 1 leaks memory"));
}
#endif

}  // namespace
}  // namespace tutti::testing
