// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: results across processes, and a rank killed by SIGKILL before, between and in
// the middle of operations ends every survivor's call with its rank, pid and host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/host.hpp"
#include "board/board_view.hpp"
#include "control/peer_watch.hpp"
#include "forked_job.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::ForkedRank;
using ::testing::HasSubstr;

std::int64_t pid_of(tuttiComm_t comm, bool mine) {
  std::int64_t pid = mine ? ::getpid() : 0;
  EXPECT_EQ(tuttiAllReduce(&pid, &pid, 1, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
  return pid;
}

// Calls until an error comes; it must name the victim, and say what it did last.
void expect_death(tuttiComm_t comm, int victim, std::int64_t pid, std::size_t count,
                  const std::string& last_words = "") {
  std::vector<float> data(count, 1.0f), out(count);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess)
    result = tuttiAllReduce(data.data(), out.data(), count, tuttiFloat, tuttiSum, comm, nullptr);
  EXPECT_EQ(result, tuttiRemoteError);
  const std::string who = "rank " + std::to_string(victim) + " (pid " + std::to_string(pid) +
                          " on " + host_name() + ")";
  EXPECT_THAT(tuttiGetLastError(comm), AllOf(HasSubstr(who), HasSubstr(last_words)));
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
        expect_death(comm, victim, pid, 1000, "; it had left all_reduce #2 count 1000");
      },
      with_unique_id());
  testing::expect_all_passed(results, {victim});
}

// Kills this process, from another thread, while its main thread is in some call after the fifth.
class KillerWithin {
 public:
  KillerWithin()
      : thread_([this] {
          for (int seen = 0; seen < 5; seen = calls_) calls_.wait(seen);
          ::kill(::getpid(), SIGKILL);
        }) {}
  ~KillerWithin() { thread_.join(); }
  void call_is_over() {
    ++calls_;
    calls_.notify_all();
  }

 private:
  std::atomic<int> calls_{0};
  std::thread thread_;
};

void die_within_an_operation(int ranks, const char* algorithm) {
  const int victim = ranks - 1;
  const auto results = testing::run_forked(
      ranks,
      [victim, algorithm](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        const std::int64_t pid = pid_of(comm, self.rank == victim);
        EXPECT_EQ(tuttiCommSetAlgorithm(comm, algorithm), tuttiSuccess) << tuttiGetLastError(comm);
        constexpr std::size_t kCount = 200'000;
        if (self.rank != victim) return expect_death(comm, victim, pid, kCount);
        KillerWithin killer;
        std::vector<float> data(kCount, 1.0f);
        while (tuttiAllReduce(data.data(), data.data(), kCount, tuttiFloat, tuttiSum, comm,
                              nullptr) == tuttiSuccess)
          killer.call_is_over();
      },
      with_unique_id());
  testing::expect_all_passed(results, {victim});
}

TEST_P(Processes, DeathInTheMiddleOfAnOperation) { die_within_an_operation(GetParam(), "auto"); }

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 3, 5, 8));

// The death of rank 1 leaves running what rank 0 has to do with rank 2 alone. Rank 2 hears of it
// between its calls, and the next one is refused: rank 0 must not wait for what comes no more.
void refused_while_another_waits(tuttiResult_t (*call)(tuttiComm_t comm)) {
  const Meeting told;
  const auto results = testing::run_forked(
      3,
      [&](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        const std::int64_t pid = pid_of(comm, self.rank == 1);
        tuttiStream_t stream = nullptr;
        EXPECT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
        int got = 0;
        if (self.rank == 0) {  // what reaches rank 1 says that rank 0 waits for rank 2
          EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
          EXPECT_EQ(tuttiRecv(&got, 1, tuttiInt32, 2, comm, stream), tuttiSuccess);
          EXPECT_EQ(tuttiSend(&self.rank, 1, tuttiInt32, 1, comm, stream), tuttiSuccess);
          EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess);
        }
        if (self.rank == 1) {
          EXPECT_EQ(tuttiRecv(&got, 1, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
          ::kill(::getpid(), SIGKILL);
        }
        tuttiResult_t state = tuttiSuccess;
        while (self.rank == 2 && state == tuttiSuccess)
          ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
        const tuttiResult_t result = self.rank == 0 ? tuttiStreamSynchronize(stream) : call(comm);
        EXPECT_EQ(result, tuttiRemoteError);
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid " + std::to_string(pid)));
        // Nor is it the end of rank 2 that rank 0 was waiting for.
        ASSERT_TRUE(told.wait_for(2));
        EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
        EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results, {1});
}

TEST(Death, ARefusedCallOnAStreamKeepsNobodyWaiting) {
  refused_while_another_waits([](tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    EXPECT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    int value = 0;
    const tuttiResult_t refused = tuttiSend(&value, 1, tuttiInt32, 0, comm, stream);
    EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    return refused;
  });
}

TEST(Death, ARefusedSplitKeepsNobodyWaiting) {
  refused_while_another_waits([](tuttiComm_t comm) {
    tuttiComm_t part = nullptr;
    return tuttiCommSplit(comm, 0, 0, &part, nullptr);
  });
}

// A rank that dies before it has connected to anyone, in its first operation.
TEST(Death, BeforeTheFirstOperation) {
  const Meeting joined;
  const auto results = testing::run_forked(
      3,
      [&](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        ASSERT_TRUE(joined.wait_for(3));
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

TEST(Death, InTheMiddleOfATree) { die_within_an_operation(5, "tree"); }
TEST(Death, InTheMiddleOfARing) { die_within_an_operation(5, "ring"); }
TEST(Death, InTheMiddleOfADirectOperation) {
  for (const int ranks : {2, 5}) die_within_an_operation(ranks, "two_shot:access=remote");
}

// Ranks 2 * process and 2 * process + 1, joined and driven by the process's one thread.
struct TwoRanks {
  std::array<tuttiComm_t, 2> comms;
  std::array<std::vector<float>, 2> data;

  explicit TwoRanks(const ForkedRank& self) : comms(join_two(self)) {}
  tuttiResult_t all_reduce(float value, std::size_t count) {
    EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (std::size_t i = 0; i < 2; ++i) {
      data[i].assign(count, value);
      // A communicator that has failed may say so here or at the end.
      static_cast<void>(tuttiAllReduce(data[i].data(), data[i].data(), count, tuttiFloat, tuttiMax,
                                       comms[i], nullptr));
    }
    return tuttiGroupEnd();
  }
};

// Both of the dead process's ranks end; either may be the one that is named.
TEST(Death, OfAProcessThatDrivesTwoRanksInAGroup) {
  constexpr int kProcesses = 3;
  constexpr int kVictim = 1;
  constexpr std::size_t kCount = 100'000;
  const auto results = testing::run_forked(
      kProcesses,
      [](const ForkedRank& self) {
        TwoRanks ranks(self);
        const bool doomed = self.rank == kVictim;
        // As exact floats, so that both ranks of a process give the same: pids are below 2^22.
        EXPECT_EQ(ranks.all_reduce(doomed ? static_cast<float>(::getpid()) : 0, 1), tuttiSuccess);
        const std::string pid = std::to_string(static_cast<std::int64_t>(ranks.data[0][0]));
        if (doomed) {
          KillerWithin killer;
          while (ranks.all_reduce(1, kCount) == tuttiSuccess) killer.call_is_over();
          return;
        }
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess) result = ranks.all_reduce(1, kCount);
        EXPECT_EQ(result, tuttiRemoteError);
        for (const tuttiComm_t comm : ranks.comms) {
          const std::string where = " (pid " + pid + " on " + host_name() + ")";
          EXPECT_THAT(tuttiGetLastError(comm),
                      AnyOf(HasSubstr("rank 2" + where), HasSubstr("rank 3" + where)));
          EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
        }
      },
      with_unique_id());
  testing::expect_all_passed(results, {kVictim});
}

// A rank that is stopped for a while is slow, not dead.
TEST(Death, AStoppedRankThatGoesOnIsNone) {
  const auto results = testing::run_forked(
      2,
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        const auto pid = static_cast<std::int32_t>(pid_of(comm, self.rank == 1));
        if (self.rank == 1) {
          ::raise(SIGSTOP);
        } else {
          std::thread([pid] {
            while (!control::is_stopped(pid)) ::sched_yield();
            ::kill(pid, SIGCONT);
          }).detach();
        }
        for (int i = 0; i < 10; ++i) EXPECT_EQ(check_sum(comm, self.rank, 2, 1000, false), "");
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

// Its process lives, and its pid; the rank is gone.
TEST(Death, OfARankThatReplacesItselfByAnotherProgram) {
  const SharedWord pid;
  const Meeting told;
  run_processes(3,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  if (self.rank == 1) {
                    *pid = ::getpid();
                    ::execl("/bin/sleep", "sleep", "1000", nullptr);
                  }
                  tuttiResult_t state = tuttiSuccess;
                  while (state == tuttiSuccess)
                    ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
                  EXPECT_THAT(check_sum(comm, self.rank, 3, 10, false), HasSubstr("rank 1 (pid"));
                  EXPECT_TRUE(told.wait_for(2));
                  if (self.rank == 0) {
                    EXPECT_EQ(::kill(*pid, SIGKILL), 0);
                  }
                },
                {1});
}

// A rank that says goodbye and exits is no death: the others' last calls stay good.
// Whether some board of this process says that `waiter` waits for `peer`.
bool board_says_it_waits(Rank waiter, Rank peer) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto board = control::read_board(std::stoi(entry.path().filename()), "");
    if (!board) continue;
    const control::RankView* const rank = board->find(waiter);
    if (rank != nullptr && rank->wait && rank->wait->peer == peer) return true;
  }
  return false;
}

// Rank 0 does not come to the second call. Rank 1 waits for it there, and rank 2, which is done
// with that, for its neighbour rank 1 in the third.
TEST(Timeout, IsBlamedOnTheRankThatHoldsUpAnEarlierCall) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  std::latch told(2);
  const auto run = [&](int rank) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = "reduce:one_shot@slots;all_reduce:ring@flagged";
    config.opTimeoutMs = rank == 2 ? 500 : 600'000;
    tuttiComm_t comm = nullptr;
    ASSERT_EQ(tuttiCommInitRankConfig(&comm, 3, id, rank, &config), tuttiSuccess)
        << tuttiGetLastError(nullptr);
    float value[3] = {};
    const auto all_reduce = [&] {
      return tuttiAllReduce(value, value, 3, tuttiFloat, tuttiSum, comm, nullptr);
    };
    EXPECT_EQ(all_reduce(), tuttiSuccess);
    if (rank == 0) {
      told.wait();
    } else {
      tuttiResult_t result = tuttiReduce(value, value, 3, tuttiFloat, tuttiSum, 1, comm, nullptr);
      if (rank == 2) {
        EXPECT_EQ(result, tuttiSuccess) << tuttiGetLastError(comm);
        while (!board_says_it_waits(1, 0)) ::sched_yield();
        result = all_reduce();
      }
      EXPECT_EQ(result, tuttiTimeout);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
      told.count_down();
    }
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  };
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.emplace_back(run, rank);
}

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
