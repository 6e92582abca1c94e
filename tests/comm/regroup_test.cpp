// SPDX-License-Identifier: Apache-2.0
// Split, shrink and revoke through the C API: ranks as threads and as processes, in groups, after
// deaths, with ranks that disagree.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <tutti/tutti.h>

#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "forked_job.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

constexpr unsigned kSeed = 20261121;

using testing::ForkedRank;
using ::testing::HasSubstr;

int rank_in(tuttiComm_t comm) {
  int rank = -1;
  EXPECT_EQ(tuttiCommUserRank(comm, &rank), tuttiSuccess);
  return rank;
}

int ranks_in(tuttiComm_t comm) {
  int ranks = -1;
  EXPECT_EQ(tuttiCommCount(comm, &ranks), tuttiSuccess);
  return ranks;
}

// An all-reduce on `comm`, where this rank must be `rank` of `ranks`; then its end.
void expect_works(tuttiComm_t comm, int rank, int ranks) {
  ASSERT_NE(comm, nullptr) << tuttiGetLastError(nullptr);
  EXPECT_EQ(rank_in(comm), rank);
  EXPECT_EQ(ranks_in(comm), ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{10'000}})
    EXPECT_EQ(check_sum(comm, rank, ranks, count, false), "");
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

// Odd and even ranks apart, in reverse order; the last rank in none.
void split_by_parity(tuttiComm_t comm, int rank, int ranks) {
  const bool last = rank == ranks - 1;
  tuttiComm_t half = nullptr;
  ASSERT_EQ(tuttiCommSplit(comm, last ? TUTTI_SPLIT_NOCOLOR : rank % 2, -rank, &half, nullptr),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  if (last) {
    EXPECT_EQ(half, nullptr);
  } else {
    const int members = (ranks - 1 - rank % 2 + 1) / 2;
    expect_works(half, members - 1 - rank / 2, members);
  }
  EXPECT_EQ(check_sum(comm, rank, ranks, 1000, false), "") << "the parent goes on";
}

class Split : public ::testing::TestWithParam<int> {};

TEST_P(Split, AmongThreads) {
  run_job(GetParam(), {}, [](int rank, tuttiComm_t& comm) {
    split_by_parity(comm, rank, GetParam());
    split_by_parity(comm, rank, GetParam());
  });
}

TEST_P(Split, AmongProcesses) {
  run_processes(GetParam(), [](tuttiComm_t& comm, const ForkedRank& self) {
    split_by_parity(comm, self.rank, self.ranks);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Split, ::testing::Values(1, 2, 3, 6));

TEST(SplitGroups, OneThreadSplitsAllItsRanks) {
  constexpr std::size_t kRanks = 5;
  std::array<tuttiComm_t, kRanks> comms{}, parts{};
  ASSERT_EQ(tuttiCommInitAll(comms.data(), kRanks, nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(tuttiCommSplit(comms[rank], rank == 4 ? TUTTI_SPLIT_NOCOLOR : rank < 2, 0,
                             &parts[rank], nullptr),
              tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  EXPECT_EQ(parts[4], nullptr);
  std::array<float, kRanks> values{1, 2, 4, 8, 16};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(
        tuttiAllReduce(&values[rank], &values[rank], 1, tuttiFloat, tuttiSum, parts[rank], nullptr),
        tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  EXPECT_THAT(values, ::testing::ElementsAre(3, 3, 12, 12, 16));
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  for (const tuttiComm_t part : parts) EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
}

TEST(SplitErrors, AreSaid) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    tuttiComm_t part = comm;
    EXPECT_EQ(tuttiCommSplit(comm, -7, 0, &part, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(part, nullptr);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("color is -7"));
    EXPECT_EQ(tuttiCommSplit(comm, 0, 0, nullptr, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiCommSplit(nullptr, 0, 0, &part, nullptr), tuttiInvalidArgument);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.minCTAs = -1;
    EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &part, &config), tuttiInvalidArgument);
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

TEST(SplitErrors, ARankThatDiesInsteadIsNamed) {
  run_processes(3,
                [](tuttiComm_t& comm, const ForkedRank& self) {
                  if (self.rank == 1) ::raise(SIGKILL);
                  tuttiComm_t part = nullptr;
                  EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &part, nullptr), tuttiRemoteError);
                  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid"));
                },
                {1});
}

// An abort is no revoke: its rank has left, so nobody waits for it.
TEST(SplitErrors, ARankThatAbortedIsNamed) {
  std::atomic<bool> aborted{false};
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 0) {
      EXPECT_EQ(tuttiCommAbort(std::exchange(comm, nullptr)), tuttiSuccess);
      aborted = true;
      aborted.notify_all();
      return;
    }
    aborted.wait(false);
    tuttiComm_t part = nullptr;
    EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &part, nullptr), tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
  });
}

// Rank `poor` cannot take part and says why; the others are told so and do not wait for it.
void regroup_without_descriptors(int poor, const std::function<tuttiResult_t(tuttiComm_t)>& call,
                                 bool parent_goes_on) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the check of virtual tables needs a descriptor itself";
#endif
  run_processes(3, [&](tuttiComm_t& comm, const ForkedRank& self) {
    EXPECT_EQ(check_sum(comm, self.rank, 3, 10, false), "");
    if (self.rank == poor) exhaust_descriptors();
    const tuttiResult_t result = call(comm);
    if (self.rank == poor)
      EXPECT_EQ(result, tuttiSystemError);
    else
      EXPECT_NE(result, tuttiSuccess);
    EXPECT_THAT(tuttiGetLastError(comm),
                HasSubstr(self.rank == poor ? std::string("open files")
                                            : fmt::format("rank {} (pid", poor)));
    EXPECT_EQ(check_sum(comm, self.rank, 3, 10, false).empty(), parent_goes_on);
  });
}

TEST(SplitErrors, ARankWithoutDescriptorsIsNamed) {
  regroup_without_descriptors(
      1,
      [](tuttiComm_t comm) {
        tuttiComm_t part = nullptr;
        return tuttiCommSplit(comm, 0, 0, &part, nullptr);
      },
      false);
}

class ShrinkErrorsOf : public ::testing::TestWithParam<int> {};

TEST_P(ShrinkErrorsOf, ARankWithoutDescriptors) {
  regroup_without_descriptors(
      GetParam(),
      [](tuttiComm_t comm) {
        tuttiComm_t rest = nullptr;
        return tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_DEFAULT);
      },
      true);
}

// Rank 0 decides.
INSTANTIATE_TEST_SUITE_P(Ranks, ShrinkErrorsOf, ::testing::Values(0, 1));

TEST(Shrink, OfAHealthyCommunicator) {
  for (const bool revoke_first : {false, true})
    run_job(5, {}, [&](int rank, tuttiComm_t& comm) {
      if (rank == 0 || rank == 3) return;  // a rank that leaves is no survivor either
      int excluded[] = {3, 0};
      tuttiComm_t rest = nullptr;
      EXPECT_EQ(tuttiCommShrink(comm, excluded, 2, &rest, nullptr,
                                revoke_first ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      expect_works(rest, rank == 4 ? 2 : rank - 1, 3);
    });
}

// Survivors notice the death in an operation, and shrink; nobody names the dead.
void shrink_after_deaths(const std::vector<int>& killed, int ranks) {
  run_processes(
      ranks,
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        int survivors = 0, own = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const bool dies = std::ranges::find(killed, rank) != killed.end();
          if (rank == self.rank) own = survivors;
          survivors += dies ? 0 : 1;
          if (rank == self.rank && dies) ::raise(SIGKILL);
        }
        std::string error;
        while (error.empty()) error = check_sum(comm, self.rank, ranks, 1000, false);
        tuttiComm_t rest = nullptr;
        EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_DEFAULT),
                  tuttiRemoteError);
        EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT),
                  tuttiSuccess)
            << tuttiGetLastError(comm);
        expect_works(rest, own, survivors);
      },
      killed);
}

TEST(Shrink, AfterADeath) { shrink_after_deaths({2}, 4); }
TEST(Shrink, AfterTheDeathOfTheLowestRank) { shrink_after_deaths({0}, 4); }
TEST(Shrink, ToOneRank) { shrink_after_deaths({0, 1}, 3); }

// Rank 0, who would decide, dies instead of coming; the others wait for it at first.
TEST(Shrink, TheNextRankDecidesWhereTheFirstDies) {
  const Meeting summed;
  run_processes(4,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  EXPECT_EQ(check_sum(comm, self.rank, 4, 10, false), "");
                  ASSERT_TRUE(summed.wait_for(4));
                  if (self.rank == 0) ::raise(SIGKILL);
                  tuttiComm_t rest = nullptr;
                  EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT),
                            tuttiSuccess)
                      << tuttiGetLastError(comm);
                  expect_works(rest, self.rank - 1, 3);
                },
                {0});
}

// Rank 0, who decides, dies at any moment of a shrink: some may have its answer, some not. They
// call again, on the same communicator, until all that live are in a new one.
class ShrinkRounds : public ::testing::TestWithParam<unsigned> {};

TEST_P(ShrinkRounds, TheDecidingRankDiesAtAnyMoment) {
  std::mt19937 random(kSeed + GetParam());
  const std::int64_t moment_ns = static_cast<std::int64_t>(random() % 3'000'000);
  const Meeting summed;
  run_processes(
      4,
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        EXPECT_EQ(check_sum(comm, self.rank, 4, 10, false), "");
        ASSERT_TRUE(summed.wait_for(4));
        std::thread killer;
        if (self.rank == 0)
          killer = std::thread([at_ns = now_ns() + moment_ns] {
            while (now_ns() < at_ns) ::sched_yield();
            ::raise(SIGKILL);
          });
        int tries = 0, ranks = 0;
        for (; ranks != 3 && tries < 10; ++tries) {
          tuttiComm_t rest = nullptr;
          if (tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT) != tuttiSuccess)
            continue;
          ranks = ranks_in(rest);
          if (ranks == 3) {
            expect_works(rest, self.rank - 1, 3);
          } else {
            while (check_sum(rest, rank_in(rest), ranks, 10, false).empty()) {
            }
            EXPECT_EQ(tuttiCommAbort(rest), tuttiSuccess);
          }
        }
        EXPECT_EQ(ranks, 3) << tries << " tries: " << tuttiGetLastError(comm);
      },
      {0});
}

INSTANTIATE_TEST_SUITE_P(Rounds, ShrinkRounds, ::testing::Range(0u, 12u));

TEST(Shrink, Again) {
  run_job(4, {}, [](int rank, tuttiComm_t& comm) {
    if (rank == 3) return;
    int last[] = {3};
    tuttiComm_t three = nullptr, two = nullptr;
    ASSERT_EQ(tuttiCommShrink(comm, last, 1, &three, nullptr, 0), tuttiSuccess)
        << tuttiGetLastError(comm);
    if (rank < 2) {
      int next[] = {2};
      ASSERT_EQ(tuttiCommShrink(three, next, 1, &two, nullptr, 0), tuttiSuccess)
          << tuttiGetLastError(three);
      EXPECT_EQ(check_sum(two, rank, 2, 100, false), "");
    }
    EXPECT_EQ(tuttiCommDestroy(two), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(three), tuttiSuccess);
  });
}

TEST(ShrinkErrors, ListsThatDifferFailOnAll) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    int last[] = {2};
    tuttiComm_t rest = nullptr;
    if (rank == 2) return;
    const tuttiResult_t result = tuttiCommShrink(comm, last, rank == 0 ? 1 : 0, &rest, nullptr, 0);
    // Rank 2, whom rank 1 wants, leaves: only the lists are wrong.
    EXPECT_EQ(result, tuttiInvalidUsage) << tuttiGetLastError(comm);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("same list"));
    EXPECT_EQ(rest, nullptr);
  });
}

TEST(ShrinkErrors, AnExcludedRankThatCallsIsToldSo) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    int last[] = {2};
    tuttiComm_t rest = nullptr;
    const tuttiResult_t result = tuttiCommShrink(comm, last, rank == 2 ? 0 : 1, &rest, nullptr, 0);
    EXPECT_EQ(result, rank == 2 ? tuttiInvalidUsage : tuttiSuccess) << tuttiGetLastError(comm);
    if (rank == 2)
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid"));
    else
      expect_works(rest, rank, 2);
  });
}

TEST(ShrinkErrors, BadListsAreRefusedByName) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    struct Case {
      std::vector<int> list;
      int flags;
      const char* why;
    };
    const Case cases[] = {{{5}, 0, "rank 5 is out of range: the communicator has 2 ranks"},
                          {{-1}, 0, "rank -1 is out of range"},
                          {{1 - rank, 1 - rank}, 0, "twice"},
                          {{rank}, 0, "excludes itself"},
                          {{1 - rank}, 9, "shrinkFlags is 9"}};
    for (Case bad : cases) {
      tuttiComm_t rest = nullptr;
      EXPECT_EQ(tuttiCommShrink(comm, bad.list.data(), static_cast<int>(bad.list.size()), &rest,
                                nullptr, bad.flags),
                tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr(bad.why));
    }
    tuttiComm_t rest = nullptr;
    EXPECT_EQ(tuttiCommShrink(comm, nullptr, 1, &rest, nullptr, 0), tuttiInvalidArgument);
    EXPECT_EQ(tuttiCommRevoke(comm, 3), tuttiInvalidArgument);
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

TEST(ShrinkErrors, ARankThatLivesAndDoesNotComeIsNamed) {
  std::atomic<int> back{0};
  run_job(3, {.op_timeout_ms = 200}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 2) {
      while (back.load() < 2) back.wait(back.load());
      return;
    }
    tuttiComm_t rest = nullptr;
    EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, 0), tuttiTimeout);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
    ++back;
    back.notify_all();
  });
}

TEST(Revoke, EndsOperationsAndLeavesSplitAndShrink) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    if (rank == 0) {
      EXPECT_EQ(tuttiCommRevoke(comm, 0), tuttiSuccess);
    } else {
      EXPECT_THAT(check_sum(comm, rank, 3, 10, false), HasSubstr("rank 0 (pid"));
    }
    float value = 0;
    EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comm, nullptr),
              tuttiRemoteError);
    tuttiComm_t part = nullptr;
    EXPECT_EQ(tuttiCommSplit(comm, rank == 0 ? 0 : 1, 0, &part, nullptr), tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_works(part, rank == 0 ? 0 : rank - 1, rank == 0 ? 1 : 2);
    tuttiComm_t rest = nullptr;
    EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, 0), tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_works(rest, rank, 3);
  });
}

// Another thread is in an operation, or about to be, for which no peer comes.
TEST(Revoke, EndsTheOperationOfAnotherThread) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    if (rank == 1) return;
    std::thread operation([&] {
      float value = 1;
      EXPECT_NE(tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comm, nullptr),
                tuttiSuccess);
    });
    EXPECT_EQ(tuttiCommRevoke(comm, 0), tuttiSuccess);
    operation.join();
  });
}

// Rank 1 dies while rank 0 waits for rank 2, which does not call: it knows of the death already.
// The poison says "death", and leaves rank 0 in its call; the revoke ends that.
void revoke_after_a_death(const std::function<void(tuttiComm_t, int rank)>& recover) {
  const SharedWord waits;
  run_processes(3,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  EXPECT_EQ(tuttiCommSetAlgorithm(comm, "ring"), tuttiSuccess);
                  EXPECT_EQ(check_sum(comm, self.rank, 3, 10, false), "");
                  if (self.rank == 0) {
                    std::thread watcher([&] {
                      while (tuttiCommSetAlgorithm(comm, "ring") != tuttiInvalidUsage)
                        ::sched_yield();
                      *waits = 1;
                    });
                    // Until the watcher is in no call of its own.
                    std::string told;
                    do told = check_sum(comm, 0, 3, 10, false);
                    while (told.find("another thread is in") != told.npos);
                    EXPECT_THAT(told, HasSubstr("rank 1 (pid"));
                    watcher.join();
                  } else {
                    while (*waits == 0) ::sched_yield();
                    if (self.rank == 1) ::raise(SIGKILL);
                    tuttiResult_t state = tuttiSuccess;
                    while (state == tuttiSuccess)
                      ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
                  }
                  recover(comm, self.rank);
                },
                {1});
}

TEST(Revoke, EndsTheCallsOfOthersAfterADeath) {
  revoke_after_a_death([](tuttiComm_t comm, int rank) {
    if (rank == 2) {
      EXPECT_EQ(tuttiCommRevoke(comm, 0), tuttiSuccess);
    }
  });
}

TEST(Revoke, ByAShrinkEndsTheCallsOfOthersAfterADeath) {
  revoke_after_a_death([](tuttiComm_t comm, int rank) {
    tuttiComm_t rest = nullptr;
    EXPECT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT), tuttiSuccess)
        << tuttiGetLastError(comm);
    expect_works(rest, rank / 2, 2);
  });
}

}  // namespace
}  // namespace tutti::test
