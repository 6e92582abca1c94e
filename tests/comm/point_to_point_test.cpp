// SPDX-License-Identifier: Apache-2.0
// Sends and receives through the C API: right in any pattern, beside collectives, over any
// transport; and what is said where they do not match, or a peer is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "forked_job.hpp"
#include "hosts_job.hpp"
#include "job.hpp"
#include "meeting.hpp"
#include "tests/sanitizers.hpp"
#include "tests/seed.hpp"
#include "transfer_rounds.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tutti::testing::ForkedRank;

class PointToPoint : public ::testing::TestWithParam<int> {};

TEST_P(PointToPoint, AnyPatternInGroups) {
  const int ranks = GetParam();
  const unsigned seed = draw_seed();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    check_rounds(comm, rank, ranks, {.seed = seed, .rounds = kSanitized ? 8 : 30});
  });
}

TEST_P(PointToPoint, BesideCollectivesInOneGroup) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int32_t> sum(5000, rank + round), to(3000, 10 * rank + round), from(3000);
      const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      // Not in the same order on all ranks.
      if (rank % 2 == 0)
        tuttiAllReduce(sum.data(), sum.data(), sum.size(), tuttiInt32, tuttiSum, comm, nullptr);
      tuttiSend(to.data(), to.size(), tuttiInt32, next, comm, nullptr);
      tuttiRecv(from.data(), from.size(), tuttiInt32, previous, comm, nullptr);
      if (rank % 2 == 1)
        tuttiAllReduce(sum.data(), sum.data(), sum.size(), tuttiInt32, tuttiSum, comm, nullptr);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
      ASSERT_EQ(std::ranges::count(from, 10 * previous + round), 3000);
      ASSERT_EQ(std::ranges::count(sum, ranks * (ranks - 1) / 2 + ranks * round), 5000);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PointToPoint, ::testing::Range(1, 7));

// Ranks issue different numbers of them between the same two collectives.
TEST(PointToPointAlone, OneByOneBetweenCollectives) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    for (std::size_t count : {1UL, 7UL, 1000UL, 1'000'000UL}) {
      std::vector<std::int64_t> data(count);
      if (rank == 0) {
        for (int i = 0; i < 5; ++i) {
          std::iota(data.begin(), data.end(), i);
          ASSERT_EQ(tuttiSend(data.data(), count, tuttiInt64, 2, comm, nullptr), tuttiSuccess)
              << tuttiGetLastError(comm);
        }
      } else if (rank == 2) {
        for (int i = 0; i < 5; ++i) {
          ASSERT_EQ(tuttiRecv(data.data(), count, tuttiInt64, 0, comm, nullptr), tuttiSuccess)
              << tuttiGetLastError(comm);
          ASSERT_EQ(data.front(), i);
          ASSERT_EQ(data.back(), i + static_cast<std::int64_t>(count) - 1);
        }
      }
      ASSERT_EQ(check_sum(comm, rank, kRanks, count % 5000, false), "");
    }
    tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
    ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
    EXPECT_EQ(info.operations, rank == 1 ? 4U : 24U);
  });
}

// Sizes around those at which a message takes another form, many under way: one by one, in groups
// of few, and in groups of many.
TEST(PointToPointAlone, AllSizesInOrder) {
  constexpr std::array<std::size_t, 13> kSizes{1,      48,     49,     560,     561, 4'096, 63'232,
                                               63'233, 65'472, 65'473, 300'000, 7,   2};
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    for (const std::size_t in_a_group : {1UL, 5UL, 60UL}) {
      std::vector<std::vector<std::uint8_t>> data(60);
      for (std::size_t first = 0; first < data.size(); first += in_a_group) {
        if (in_a_group > 1) {
          ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
        }
        for (std::size_t i = first; i < first + in_a_group; ++i) {
          const auto value = static_cast<std::uint8_t>(i + in_a_group);
          data[i].assign(kSizes[i * 7 % kSizes.size()], rank == 0 ? value : 0);
          const tuttiResult_t result =
              rank == 0 ? tuttiSend(data[i].data(), data[i].size(), tuttiUint8, 1, comm, nullptr)
                        : tuttiRecv(data[i].data(), data[i].size(), tuttiUint8, 0, comm, nullptr);
          ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(comm);
        }
        if (in_a_group > 1) {
          ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
        }
      }
      for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(std::ranges::count(data[i], static_cast<std::uint8_t>(i + in_a_group)),
                  std::ssize(data[i]))
            << i;
    }
  });
}

// What a group begins with and what makes it an ordinary one keep their order: another
// communicator, a collective, more than few, a group inside.
TEST(PointToPointAlone, InGroupsOfSeveralKinds) {
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiCommInitAll(comms, 2, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  for (const int more : {0, 1, 30}) {
    std::vector<std::int32_t> to(64), from(64), sums{1, 2};
    std::iota(to.begin(), to.end(), more);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    const auto pass = [&](std::size_t i) {
      tuttiSend(&to[i], 1, tuttiInt32, 1, comms[0], nullptr);
      tuttiRecv(&from[i], 1, tuttiInt32, 0, comms[1], nullptr);
    };
    for (std::size_t i = 0; i < 3; ++i) tuttiSend(&to[i], 1, tuttiInt32, 1, comms[0], nullptr);
    for (std::size_t i = 0; i < 3; ++i) tuttiRecv(&from[i], 1, tuttiInt32, 0, comms[1], nullptr);
    for (std::size_t i = 0; i < static_cast<std::size_t>(more); ++i) pass(3 + i);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    if (more > 0)
      for (std::size_t i = 0; i < 2; ++i)
        tuttiAllReduce(&sums[i], &sums[i], 1, tuttiInt32, tuttiSum, comms[i], nullptr);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    pass(63);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
    const auto moved = static_cast<std::ptrdiff_t>(3 + more);
    EXPECT_TRUE(std::equal(to.begin(), to.begin() + moved, from.begin()));
    EXPECT_EQ(from[63], to[63]);
    EXPECT_THAT(sums, more > 0 ? ElementsAre(3, 3) : ElementsAre(1, 2));
  }
  for (tuttiComm_t comm : comms) tuttiCommAbort(comm);
}

// As many small messages as there is room for go without their receives, and no more.
TEST(PointToPointAlone, SmallSendsGoAhead) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::vector<std::int64_t> data(1000);
    for (int round = 0; round < 20; ++round) {
      if (rank == 0) {
        std::iota(data.begin(), data.end(), round);
        for (const std::int64_t& one : data)
          ASSERT_EQ(tuttiSend(&one, 1, tuttiInt64, 1, comm, nullptr), tuttiSuccess);
        continue;
      }
      for (std::int64_t& one : data)
        ASSERT_EQ(tuttiRecv(&one, 1, tuttiInt64, 0, comm, nullptr), tuttiSuccess);
      for (std::size_t i = 0; i < data.size(); ++i)
        ASSERT_EQ(data[i], round + static_cast<std::int64_t>(i));
    }
  });
}

// One thread drives both ranks, and what they send each other is larger than the slots.
TEST(PointToPointAlone, BetweenRanksOfOneThread) {
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiCommInitAll(comms, 2, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  std::vector<float> a(1 << 20, 1), b(1 << 20, 2), at_a(1 << 20), at_b(1 << 20);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  tuttiSend(a.data(), a.size(), tuttiFloat, 1, comms[0], nullptr);
  tuttiRecv(at_a.data(), at_a.size(), tuttiFloat, 1, comms[0], nullptr);
  tuttiSend(b.data(), b.size(), tuttiFloat, 0, comms[1], nullptr);
  tuttiRecv(at_b.data(), at_b.size(), tuttiFloat, 0, comms[1], nullptr);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  EXPECT_EQ(at_a, b);
  EXPECT_EQ(at_b, a);
#if !defined(__SANITIZE_THREAD__)  // which has a thread of its own, so that nothing is certain
  // Without a group nobody could ever receive.
  EXPECT_EQ(tuttiRecv(at_a.data(), 1, tuttiFloat, 1, comms[0], nullptr), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(comms[0]), HasSubstr("between tuttiGroupStart()"));
#endif
  for (tuttiComm_t comm : comms) tuttiCommAbort(comm);
}

TEST(PointToPointAlone, WhatWasSentArrivesAlsoAfterItsSenderHasLeft) {
  std::atomic<bool> gone{false};
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::vector<std::int32_t> data(1000, rank == 0 ? 7 : 0);
    if (rank == 0) {
      ASSERT_EQ(tuttiSend(data.data(), data.size(), tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
      gone = true;
      gone.notify_all();
      return;
    }
    gone.wait(false);
    ASSERT_EQ(tuttiRecv(data.data(), data.size(), tuttiInt32, 0, comm, nullptr), tuttiSuccess)
        << tuttiGetLastError(comm);
    EXPECT_EQ(std::ranges::count(data, 7), 1000);
    EXPECT_EQ(tuttiRecv(data.data(), 5, tuttiInt32, 0, comm, nullptr), tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm),
                AllOf(HasSubstr("rank 0 (pid"), HasSubstr("left the communicator without calling "
                                                          "send of 5 int32 to rank 1")));
  });
}

struct Differing {
  const char* name;
  std::size_t count;
  tuttiDataType_t type;
  const char* text;
};
class Mismatched : public ::testing::TestWithParam<Differing> {};

TEST_P(Mismatched, EveryRankHearsBothSides) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    std::vector<double> data(200'000);
    tuttiResult_t result = tuttiSuccess;
    if (rank == 0)
      result = tuttiSend(data.data(), GetParam().count, GetParam().type, 1, comm, nullptr);
    if (rank == 1) result = tuttiRecv(data.data(), 1000, tuttiFloat, 0, comm, nullptr);
    // A small send may be over before its receive begins.
    if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
    EXPECT_EQ(result, tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm),
                AllOf(HasSubstr("calls do not match"), HasSubstr("recv of 1000 float from rank 0"),
                      HasSubstr(GetParam().text)));
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, Mismatched,
    ::testing::Values(Differing{"fewer", 999, tuttiFloat, "send of 999 float to rank 1"},
                      Differing{"more", 200'000, tuttiFloat, "send of 200000 float to rank 1"},
                      Differing{"type", 1000, tuttiInt32, "send of 1000 int32 to rank 1"}),
    [](const auto& test) { return test.param.name; });

// The same behind calls that matched, in a group with others that do.
TEST_P(Mismatched, IsFoundInAGroupBehindOthers) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    const int peer = 1 - rank;
    std::vector<double> to(200'000, rank), from(200'000);
    tuttiResult_t result = tuttiSuccess;
    for (int round = 0; round < 10 && result == tuttiSuccess; ++round) {
      const bool last = round == 9;
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      tuttiRecv(from.data(), 1, tuttiDouble, peer, comm, nullptr);
      tuttiSend(to.data(), 1, tuttiDouble, peer, comm, nullptr);
      if (rank == 0)
        tuttiSend(to.data(), last ? GetParam().count : 1000, last ? GetParam().type : tuttiFloat, 1,
                  comm, nullptr);
      else
        tuttiRecv(from.data() + 1, 1000, tuttiFloat, 0, comm, nullptr);
      result = tuttiGroupEnd();
      if (!last) {
        ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(nullptr);
      }
    }
    if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
    EXPECT_EQ(result, tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr),
                AllOf(HasSubstr("calls do not match"), HasSubstr("recv of 1000 float from rank 0"),
                      HasSubstr(GetParam().text)));
  });
}

// Nothing of the group has been sent, and nobody waits: the communicator works on.
TEST(PointToPointAlone, ToItselfAlone) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::int32_t data[4] = {};
    EXPECT_EQ(tuttiSend(data, 4, tuttiInt32, rank, comm, nullptr), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("needs a recv of the same count and type in the "
                                                   "same group"));
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    tuttiSend(data, 4, tuttiInt32, rank, comm, nullptr);
    tuttiRecv(data, 3, tuttiInt32, rank, comm, nullptr);
    EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("calls do not match"));
    EXPECT_EQ(check_sum(comm, rank, 2, 100, false), "");
  });
}

// Also where the others' part could have been done at once.
TEST(PointToPointAlone, ToItselfWronglySendsNothing) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::int32_t to[2] = {rank, rank}, from[2] = {};
    const auto exchange = [&](bool with_itself) {
      EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
      tuttiSend(to, 2, tuttiInt32, 1 - rank, comm, nullptr);
      if (with_itself) tuttiSend(to, 2, tuttiInt32, rank, comm, nullptr);
      tuttiRecv(from, 2, tuttiInt32, 1 - rank, comm, nullptr);
      return tuttiGroupEnd();
    };
    ASSERT_EQ(exchange(false), tuttiSuccess) << tuttiGetLastError(nullptr);
    EXPECT_EQ(exchange(rank == 0), rank == 0 ? tuttiInvalidUsage : tuttiRemoteError);
  });
}

// A rank's own block beside what others get and give.
TEST(PointToPointAlone, ToItselfBesideOthers) {
  run_job(3, {}, [&](int rank, tuttiComm_t& comm) {
    for (int round = 0; round < 200; ++round) {
      std::int32_t to[3] = {}, from[3] = {};
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      for (int peer = 0; peer < 3; ++peer) {
        to[peer] = 100 * rank + 10 * peer + round;
        tuttiRecv(&from[peer], 1, tuttiInt32, peer, comm, nullptr);
        tuttiSend(&to[peer], 1, tuttiInt32, peer, comm, nullptr);
      }
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
      for (int peer = 0; peer < 3; ++peer) ASSERT_EQ(from[peer], 100 * peer + 10 * rank + round);
    }
  });
}

// Others have a part in the group, and wait for this rank's.
TEST(PointToPointAlone, ToItselfWronglyBesideOthersEndsTheJob) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::vector<float> data(4 << 20);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    if (rank == 0) tuttiSend(data.data(), 4, tuttiFloat, 0, comm, nullptr);
    if (rank == 0) tuttiRecv(data.data(), data.size(), tuttiFloat, 1, comm, nullptr);
    if (rank == 1) tuttiSend(data.data(), data.size(), tuttiFloat, 0, comm, nullptr);
    EXPECT_EQ(tuttiGroupEnd(), rank == 0 ? tuttiInvalidUsage : tuttiRemoteError);
    // The group's error is the thread's; the communicator's is that it is lost.
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr(rank == 0 ? "needs a recv" : "rank 0 (pid"));
  });
}

TEST(PointToPointAlone, ArgumentsAreChecked) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    alignas(8) std::byte data[16] = {};
    const auto told = [&] { return std::string(tuttiGetLastError(comm)); };
    EXPECT_EQ(tuttiSend(data, 1, tuttiInt32, 2, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("peer 2 is out of range: the communicator has 2 ranks"));
    EXPECT_EQ(tuttiRecv(data, 1, tuttiInt32, -1, comm, nullptr), tuttiInvalidArgument);
    EXPECT_EQ(tuttiRecv(nullptr, 1, tuttiInt32, 1 - rank, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("tuttiRecv: recvbuff is NULL"));
    EXPECT_EQ(tuttiSend(nullptr, 1, tuttiInt32, 1 - rank, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("tuttiSend: sendbuff is NULL"));
    EXPECT_EQ(tuttiSend(data + 1, 1, tuttiInt32, 1 - rank, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("not aligned to the 4 bytes"));
    EXPECT_EQ(tuttiSend(data, SIZE_MAX / 4, tuttiInt32, 1 - rank, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiSend(data, 1, static_cast<tuttiDataType_t>(15), 1 - rank, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiSend(nullptr, 0, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

TEST(PointToPointAlone, WithoutAMatchTimesOutAndNamesThePair) {
  std::atomic<bool> failed{false};
  run_job(3, {.op_timeout_ms = 50}, [&](int rank, tuttiComm_t& comm) {
    std::vector<float> data(100);
    if (rank != 0) {
      failed.wait(false);
      return;
    }
    EXPECT_EQ(tuttiRecv(data.data(), 100, tuttiFloat, 1, comm, nullptr), tuttiTimeout);
    EXPECT_THAT(tuttiGetLastError(comm),
                AllOf(HasSubstr("rank 1 (pid"), HasSubstr("did not come"),
                      HasSubstr("recv of 100 float from rank 1"), HasSubstr("rank 0")));
    failed = true;
    failed.notify_all();
  });
}

TEST(PointToPointAlone, ALargeSendWithoutAMatchTimesOutToo) {
  std::atomic<bool> failed{false};
  run_job(2, {.op_timeout_ms = 50}, [&](int rank, tuttiComm_t& comm) {
    std::vector<float> data(4 << 20);
    if (rank != 0) {
      failed.wait(false);
      return;
    }
    EXPECT_EQ(tuttiSend(data.data(), data.size(), tuttiFloat, 1, comm, nullptr), tuttiTimeout);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("send of 4194304 float to rank 1"));
    failed = true;
    failed.notify_all();
  });
}

// Each waits for the next one's message: nobody is to blame but the program.
TEST(PointToPointAlone, ACircleOfReceivesTimesOut) {
  run_job(3, {.op_timeout_ms = 50}, [&](int rank, tuttiComm_t& comm) {
    float data = 0;
    EXPECT_EQ(tuttiRecv(&data, 1, tuttiFloat, (rank + 1) % 3, comm, nullptr), tuttiTimeout);
  });
}

TEST(PointToPointAlone, AnAbortEndsIt) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    float data = 0;
    if (rank == 1) {
      abort(comm);
      comm = nullptr;
      return;
    }
    EXPECT_EQ(tuttiRecv(&data, 1, tuttiFloat, 1, comm, nullptr), tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid"));
  });
}

// In a receive from the dead, in a send to it, and in a receive from one that waits for the dead.
TEST(PointToPointDeath, EverySurvivorNamesTheDead) {
  for (int kill_after = 0; kill_after < 4 && !::testing::Test::HasFailure(); ++kill_after)
    run_processes(
        4,
        [&](tuttiComm_t& comm, const ForkedRank& self) {
          std::vector<float> data(1 << 20);
          for (int i = 0; i < kill_after; ++i) {
            ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
            tuttiSend(data.data(), 1000, tuttiFloat, (self.rank + 1) % 4, comm, nullptr);
            tuttiRecv(data.data() + 1000, 1000, tuttiFloat, (self.rank + 3) % 4, comm, nullptr);
            ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
          }
          // Nobody is in one of these calls any more.
          ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
          if (self.rank == 2) ::raise(SIGKILL);
          const tuttiResult_t result =
              self.rank == 0   ? tuttiRecv(data.data(), 10, tuttiFloat, 2, comm, nullptr)
              : self.rank == 1 ? tuttiSend(data.data(), data.size(), tuttiFloat, 2, comm, nullptr)
                               : tuttiRecv(data.data(), 10, tuttiFloat, 0, comm, nullptr);
          EXPECT_EQ(result, tuttiRemoteError);
          EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
        },
        {2});
}

// A rank that has not called yet does not hide the death of another one.
TEST(PointToPointDeath, IsToldWhileAnotherPeerIsAwaited) {
  const Meeting told;
  run_processes(3,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  float data[3] = {};
                  if (self.rank == 2) {
                    // It comes, so the other one is in its group.
                    static_cast<void>(tuttiRecv(data, 1, tuttiFloat, 0, comm, nullptr));
                    ::raise(SIGKILL);
                  }
                  if (self.rank == 0) {
                    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
                    tuttiRecv(&data[0], 1, tuttiFloat, 1, comm, nullptr);
                    tuttiSend(&data[1], 1, tuttiFloat, 2, comm, nullptr);
                    tuttiRecv(&data[2], 1, tuttiFloat, 2, comm, nullptr);
                    EXPECT_EQ(tuttiGroupEnd(), tuttiRemoteError);
                    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
                  }
                  EXPECT_TRUE(told.wait_for(2));
                },
                {2});
}

// Of five processes, 3 and 4 and the neighbours watch rank 2, and have left.
TEST(PointToPointDeath, IsNoticedByWhoWaitsWhenAllWhoWatchHaveLeft) {
  const Meeting left;
  run_processes(5,
                [&](tuttiComm_t& comm, const ForkedRank& self) {
                  if (self.rank == 0) {
                    float data = 0;
                    EXPECT_EQ(tuttiRecv(&data, 1, tuttiFloat, 2, comm, nullptr), tuttiRemoteError);
                    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 2 (pid"));
                    return;
                  }
                  if (self.rank == 2) {
                    EXPECT_TRUE(left.wait_for(4));
                    ::raise(SIGKILL);
                  }
                  EXPECT_EQ(tuttiCommDestroy(std::exchange(comm, nullptr)), tuttiSuccess);
                  EXPECT_TRUE(left.wait_for(1));
                },
                {2});
}

class PointToPointHosts : public ::testing::TestWithParam<const char*> {};

TEST_P(PointToPointHosts, AnyPatternInGroups) {
  const unsigned seed = draw_seed();
  run_hosts(
      {.ranks = 5, .ranks_per_host = 2, .transport = GetParam()}, [](int) {},
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        check_rounds(comm, self.rank, self.ranks, {.seed = seed, .rounds = kSanitized ? 6 : 20});
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
      });
}

TEST_P(PointToPointHosts, TheDeadIsNamed) {
  run_hosts(
      {.ranks = 3, .ranks_per_host = 1, .transport = GetParam()}, [](int) {},
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        std::vector<float> data(1 << 20);
        if (self.rank == 1) ::raise(SIGKILL);
        const tuttiResult_t result =
            self.rank == 0 ? tuttiRecv(data.data(), 10, tuttiFloat, 1, comm, nullptr)
                           : tuttiSend(data.data(), data.size(), tuttiFloat, 1, comm, nullptr);
        EXPECT_EQ(result, tuttiRemoteError);
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 ("));
      },
      {1});
}

// Its bytes come before its goodbye, also where both are on one host and a wire is forced.
class PointToPointGoodbye : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// On rank 1, of what rank 0 has sent before it left.
void expect_bytes_then_goodbye(tuttiComm_t comm, std::vector<float>& data) {
  ASSERT_EQ(tuttiRecv(data.data(), 5000, tuttiFloat, 0, comm, nullptr), tuttiSuccess)
      << tuttiGetLastError(comm);
  EXPECT_EQ(std::ranges::count(data, 3.0F), 5000);
  EXPECT_EQ(tuttiRecv(data.data(), 8, tuttiFloat, 0, comm, nullptr), tuttiRemoteError);
  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("without calling send of 8 float to rank 1"));
}

TEST_P(PointToPointGoodbye, WhatWasSentArrivesAlsoAfterItsSenderHasLeft) {
  const auto [transport, per_host] = GetParam();
  const Meeting ready;
  run_hosts(
      {.ranks = 2, .ranks_per_host = per_host, .transport = transport}, [](int) {},
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        std::vector<float> data(5000, self.rank == 0 ? 3.0F : 0.0F);
        ASSERT_TRUE(ready.wait_for(2));
        if (self.rank == 0) {
          // The other one sleeps in its receive by then, most likely, and wakes up to both.
          for (int i = 0; i < 20'000; ++i) ::sched_yield();
          ASSERT_EQ(tuttiSend(data.data(), 5000, tuttiFloat, 1, comm, nullptr), tuttiSuccess);
          ASSERT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
          return;
        }
        expect_bytes_then_goodbye(comm, data);
      });
}

// The other one may still be at the end of its join, where it begins to watch who leaves.
TEST_P(PointToPointGoodbye, ARankThatLeavesRightAfterJoiningHasNotDied) {
  const auto [transport, per_host] = GetParam();
  run_hosts(
      {.ranks = 2, .ranks_per_host = per_host, .transport = transport}, [](int) {},
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        std::vector<float> data(5000, self.rank == 0 ? 3.0F : 0.0F);
        if (self.rank == 0) {
          ASSERT_EQ(tuttiSend(data.data(), 5000, tuttiFloat, 1, comm, nullptr), tuttiSuccess);
          return;
        }
        expect_bytes_then_goodbye(comm, data);
      });
}

INSTANTIATE_TEST_SUITE_P(Wires, PointToPointGoodbye,
                         ::testing::Combine(::testing::Values("auto", "tcp"),
                                            ::testing::Values(1, 2)));

INSTANTIATE_TEST_SUITE_P(Wires, PointToPointHosts, ::testing::Values("auto", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tutti::test
