// Ranks as processes: results across processes, and a rank killed by SIGKILL before, between and in
// the middle of operations ends every survivor's call with its rank, pid and host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/host.hpp"
#include "fork_harness.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using testing::ForkedRank;
using ::testing::HasSubstr;

// The id is made in the parent after all children exist.
testing::ForkOptions with_unique_id() {
  testing::ForkOptions options;
  options.after_fork = [] {
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    return std::string(id.internal, sizeof id.internal);
  };
  return options;
}

tuttiComm_t join(const ForkedRank& self) {
  tuttiUniqueId id{};
  EXPECT_EQ(self.message.size(), sizeof id.internal);
  std::memcpy(id.internal, self.message.data(), std::min(self.message.size(), sizeof id.internal));
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRank(&comm, self.ranks, id, self.rank), tuttiSuccess)
      << tuttiGetLastError(nullptr);
  return comm;
}

std::int64_t pid_of(tuttiComm_t comm, bool mine) {
  std::int64_t pid = mine ? ::getpid() : 0;
  EXPECT_EQ(tuttiAllReduce(&pid, &pid, 1, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
  return pid;
}

// Calls until an error comes; it must name the victim.
void expect_death(tuttiComm_t comm, int victim, std::int64_t pid, std::size_t count) {
  std::vector<float> data(count, 1.0f), out(count);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess)
    result = tuttiAllReduce(data.data(), out.data(), count, tuttiFloat, tuttiSum, comm, nullptr);
  EXPECT_EQ(result, tuttiRemoteError);
  const std::string who = "rank " + std::to_string(victim) + " (pid " + std::to_string(pid) +
                          " on " + host_name() + ")";
  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr(who));
  EXPECT_EQ(tuttiAllReduce(data.data(), out.data(), count, tuttiFloat, tuttiSum, comm, nullptr),
            tuttiRemoteError);
  EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
}

class Processes : public ::testing::TestWithParam<int> {};

TEST_P(Processes, SumExactly) {
  const auto results = testing::run_forked(
      GetParam(),
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        for (const std::size_t count : {1ul, 100ul, 5000ul, 100'003ul})
          EXPECT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "");
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

TEST_P(Processes, DeathBetweenOperations) {
  const int victim = GetParam() / 2;
  const auto results = testing::run_forked(
      GetParam(),
      [victim](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        const std::int64_t pid = pid_of(comm, self.rank == victim);
        if (self.rank == victim) {
          // Once this one is complete, everybody knows the pid.
          std::vector<float> data(1000, 1.0f);
          EXPECT_EQ(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum,
                                   comm, nullptr),
                    tuttiSuccess);
          ::kill(::getpid(), SIGKILL);
        }
        expect_death(comm, victim, pid, 1000);
      },
      with_unique_id());
  testing::expect_all_passed(results, {victim});
}

TEST_P(Processes, DeathInTheMiddleOfAnOperation) {
  const int victim = GetParam() - 1;
  const auto results = testing::run_forked(
      GetParam(),
      [victim](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        const std::int64_t pid = pid_of(comm, self.rank == victim);
        std::atomic<int> calls{0};
        std::thread killer;
        if (self.rank == victim)
          killer = std::thread([&] {
            for (int seen = 0; seen < 5; seen = calls) calls.wait(seen);
            ::kill(::getpid(), SIGKILL);
          });
        if (self.rank != victim) return expect_death(comm, victim, pid, 200'000);
        std::vector<float> data(200'000, 1.0f);
        for (;;) {
          if (tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum, comm,
                             nullptr) != tuttiSuccess)
            break;
          ++calls;
          calls.notify_all();
        }
        killer.join();
      },
      with_unique_id());
  testing::expect_all_passed(results, {victim});
}

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 3, 5));

// A rank that dies before it has connected to anyone, in its first operation.
TEST(Death, BeforeTheFirstOperation) {
  const auto results = testing::run_forked(
      3,
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        if (self.rank == 0) ::kill(::getpid(), SIGKILL);
        std::vector<float> data(10, 1.0f);
        EXPECT_EQ(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum, comm,
                                 nullptr),
                  tuttiRemoteError);
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results, {0});
}

// A rank that says goodbye and exits is no death: the others' last calls stay good.
TEST(Death, AFinishedRankIsNotADeath) {
  const auto results = testing::run_forked(
      4,
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        EXPECT_EQ(check_sum(comm, self.rank, self.ranks, 50'000, false), "");
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

}  // namespace
}  // namespace tutti::test
