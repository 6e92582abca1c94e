// SPDX-License-Identifier: Apache-2.0
// Real processes: ids arrive, deaths are named, nobody is left behind.
#include "common/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

namespace tutti::perf {
namespace {

using testing::HasSubstr;

LaunchOptions options_of(int processes) {
  LaunchOptions options;
  options.program = "tool";
  options.processes = processes;
  options.ranks_per_process = 2;
  options.grace_ms = 100;
  return options;
}

tuttiUniqueId example_id() {
  tuttiUniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal); ++i) id.internal[i] = static_cast<char>(i * 3);
  return id;
}

// The process's end closes its pipe; a body that must not end waits here until it is killed.
[[noreturn]] void wait_to_be_killed() {
  for (;;) ::pause();
}

TEST(Launch, OneProcessRunsInTheCaller) {
  const pid_t self = ::getpid();
  EXPECT_EQ(launch(options_of(1),
                   [&](Job& job) {
                     EXPECT_EQ(::getpid(), self);
                     EXPECT_EQ(job.pids(), std::vector<pid_t>{self});
                     const tuttiUniqueId id = job.share(example_id);
                     return std::memcmp(&id, example_id().internal, sizeof(id)) == 0 ? 7 : 1;
                   }),
            7);
}

TEST(Launch, ALaunchedProcessRunsInTheCallerAndMakesItsId) {
  const pid_t self = ::getpid();
  LaunchOptions options = options_of(3);
  options.launched_process = 1;
  EXPECT_EQ(launch(options,
                   [&](Job& job) {
                     EXPECT_EQ(::getpid(), self);
                     EXPECT_EQ(job.process(), 1);
                     EXPECT_EQ(job.processes(), 3);
                     EXPECT_EQ(job.pids(), (std::vector<pid_t>{0, self, 0}));
                     const tuttiUniqueId id = job.share(example_id);
                     return std::memcmp(&id, example_id().internal, sizeof(id)) == 0 ? 7 : 1;
                   }),
            7);
}

TEST(Launch, EveryProcessGetsTheIdAndAllPids) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(options_of(5),
                   [](Job& job) {
                     const tuttiUniqueId id = job.share([&job] {
                       if (job.process() != 0) std::_Exit(9);  // only process 0 makes it
                       return example_id();
                     });
                     const tuttiUniqueId want = example_id();
                     const bool mine =
                         job.pids()[static_cast<std::size_t>(job.process())] == ::getpid();
                     const bool good = std::memcmp(&id, &want, sizeof(id)) == 0 && mine &&
                                       job.processes() == 5 && job.start_ns() > 0;
                     return good ? 0 : 3;
                   }),
            0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Launch, AKilledProcessIsNamedAndTheOthersAreEnded) {
  testing::internal::CaptureStderr();
  EXPECT_NE(launch(options_of(3),
                   [](Job& job) -> int {
                     if (job.process() == 1) ::kill(::getpid(), SIGKILL);
                     wait_to_be_killed();
                   }),
            0);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("tool: ranks 2-3 (pid "));
  EXPECT_THAT(text, HasSubstr("was killed by signal 9 (Killed)\n"));
  EXPECT_THAT(text, HasSubstr("ranks 0-1 (pid "));
  EXPECT_THAT(text, HasSubstr("ranks 4-5 (pid "));
  EXPECT_THAT(text, HasSubstr("did not end after another process had ended; it is killed"));
}

TEST(Launch, AFailedProcessFailsTheCommand) {
  testing::internal::CaptureStderr();
  EXPECT_NE(launch(options_of(2), [](Job& job) { return job.process() == 1 ? 5 : 0; }), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("ended with status 5"));
}

TEST(Launch, TheFirstFailureIsKnownToAllAndToldByItsBodyAlone) {
  testing::internal::CaptureStderr();
  EXPECT_NE(launch(options_of(4),
                   [](Job& job) -> int {
                     if (job.process() == 2) {
                       const bool first =
                           job.claim_failure("the cause") && !job.claim_failure("what came of it");
                       return first ? 6 : 0;
                     }
                     while (job.first_failure().empty()) ::sched_yield();
                     const bool second = job.claim_failure("what came of it");
                     return !second && job.first_failure() == "the cause" ? 6 : 0;
                   }),
            0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::string huge(2 * kMaxFailureText, 'x');
  EXPECT_EQ(launch(options_of(1),
                   [&](Job& job) {
                     EXPECT_EQ(job.first_failure(), "");
                     EXPECT_TRUE(job.claim_failure(huge));
                     EXPECT_EQ(job.first_failure(), huge.substr(0, kMaxFailureText));
                     return 0;
                   }),
            0);
}

TEST(Launch, ASignalIsToldAlsoAfterAFailure) {
  testing::internal::CaptureStderr();
  EXPECT_NE(launch(options_of(2),
                   [](Job& job) -> int {
                     if (job.process() == 0) return job.claim_failure("the cause") ? 6 : 0;
                     while (job.first_failure().empty()) ::sched_yield();
                     ::kill(::getpid(), SIGKILL);
                     wait_to_be_killed();
                   }),
            0);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("was killed by signal 9 (Killed)\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("ended with status")));
}

TEST(Launch, NobodyWaitsForAnIdThatCannotCome) {
  testing::internal::CaptureStderr();
  EXPECT_NE(
      launch(options_of(3),
             [](Job& job) -> int {
               if (job.process() == 0) return 4;
               try {
                 static_cast<void>(job.share(example_id));
               } catch (const std::runtime_error& error) {
                 std::_Exit(std::strstr(error.what(), "process 0 ended") != nullptr ? 40 : 41);
               }
               return 0;
             }),
      0);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("ranks 0-1 "));
  EXPECT_THAT(text, HasSubstr("ended with status 40"));
  EXPECT_THAT(text, testing::Not(HasSubstr("status 41")));
}

}  // namespace
}  // namespace tutti::perf
