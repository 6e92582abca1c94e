// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat on ranks without an input or an output, where each rank decides for
// itself: every collective, root and place, plans of several lanes and with scratch, and calls that
// wait or fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <barrier>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "calls.hpp"
#include "forked_job.hpp"
#include "job.hpp"
#include "repeating_member.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using enum Collective;

constexpr Rank kTwo = 2;
constexpr std::uint64_t kCount = 3;

// Never looked at.
template <class Memory>
Memory* nowhere() {
  return reinterpret_cast<Memory*>(1);
}

// A call of a rank of two, with the whole data in `from` and `to`; in place where they are one.
Call call_of(Collective collective, Rank rank, Rank root, std::vector<float>& from,
             std::vector<float>& to) {
  const CollectiveInfo& info = info_of(collective);
  Call call{.collective = collective,
            .input = nowhere<const void>(),
            .output = nowhere<void>(),
            .count = kCount,
            .root = root};
  if (CollectiveInfo::has(info.input, rank, root))
    call.input = from.data() + info.first_element(info.input, kCount, rank);
  if (CollectiveInfo::has(info.output, rank, root))
    call.output = to.data() + info.first_element(info.output, kCount, rank);
  return call;
}

Call broadcast_of(Member& member, Rank root) {
  return {.collective = kBroadcast,
          .input = member.in.data(),
          .output = member.out.data(),
          .count = member.in.size(),
          .root = root};
}

TEST(RepeatsRooted, EveryRankRepeatsEveryCollective) {
  with_two([](Rank rank, Member& member, std::barrier<>&) {
    for (const Collective collective :
         {kBroadcast, kReduce, kGather, kScatter, kAllGather, kReduceScatter, kAllToAll, kBarrier})
      for (const Rank root : {0, 1})
        for (const bool in_place : {false, true}) {
          std::vector<float> from(kTwo * kCount, static_cast<float>(rank + 1)), to(from.size());
          const Call call = call_of(collective, rank, root, from, in_place ? from : to);
          for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
          EXPECT_EQ(member.again(call), Outcome::kEnded)
              << name_of(collective) << ", root " << root << ", rank " << rank;
        }
  });
}

TEST(RepeatsRooted, BuffersThatARankHasAreLookedAt) {
  with_two([](Rank rank, Member& member, std::barrier<>&) {
    Call call = broadcast_of(member, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
    auto* const odd =
        reinterpret_cast<std::byte*>(rank == 0 ? member.in.data() : member.out.data());
    for (void* const bad : {static_cast<void*>(odd + 1), static_cast<void*>(nullptr)}) {
      Call refused = call;
      if (rank == 0)
        refused.input = bad;
      else
        refused.output = bad;
      EXPECT_EQ(member.again(refused), Outcome::kElsewhere);
    }
    EXPECT_EQ(member.again(call), Outcome::kEnded);
  });
}

TEST(RepeatsRooted, AnotherRootIsAnotherCall) {
  with_two([](Rank rank, Member& member, std::barrier<>&) {
    for (int i = 0; i < 40; ++i)
      for (const Rank root : {0, 1}) {
        member.in.assign(4, static_cast<float>(100 * rank + i));
        const Call call = broadcast_of(member, root);
        if (i < 3)
          ASSERT_TRUE(member.ordinary(call));
        else
          ASSERT_EQ(member.again(call), Outcome::kEnded);
        EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(100 * root + i)));
      }
  });
}

// Also through the C API, where the bitwise operations have numbers of their own.
TEST(RepeatsRooted, BarriersAndBitwiseOperationsRepeat) {
  run_job(3, {}, [](int rank, tuttiComm_t& comm) {
    for (int i = 0; i < 10; ++i) {
      const auto mine = static_cast<std::uint32_t>(1 << rank | i << 4);
      std::uint32_t any = 0, both = 0;
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&mine, &any, 1, tuttiUint32, tuttiBitOr, comm, nullptr),
                tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&mine, &both, 1, tuttiUint32, tuttiBitAnd, comm, nullptr),
                tuttiSuccess);
      EXPECT_EQ(any, static_cast<std::uint32_t>(7 | i << 4));
      EXPECT_EQ(both, static_cast<std::uint32_t>(i << 4));
    }
  });
}

TEST(RepeatsRooted, PlansOfSeveralLanesAndWithScratchGiveTheSame) {
  constexpr int kRanks = 5;
  for (const char* const plans :
       {"broadcast:tree@flagged;reduce:tree@flagged;gather:butterfly@flagged;"
        "scatter:butterfly@flagged",
        "broadcast:tree@slots:replicas=2;reduce:rabenseifner@slots;gather:butterfly@slots;"
        "scatter:butterfly@slots",
        "broadcast:rabenseifner@flagged;reduce:rabenseifner@flagged"})
    run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, plans), tuttiSuccess) << tuttiGetLastError(comm);
      for (int i = 0; i < 12; ++i)
        for (const Collective collective : {kBroadcast, kReduce, kGather, kScatter})
          for (const int root : {0, 3})
            for (const std::size_t count : {1, 9}) {
              const CallCase one{.collective = collective,
                                 .count = count,
                                 .root = root,
                                 .in_place = i % 2 == 1,
                                 .salt = i};
              ASSERT_EQ(check_call(comm, rank, kRanks, one), "") << name_of(collective) << plans;
            }
    });
}

// The one that comes late waits until the other's page says whom that waits for: the root of a
// broadcast for credits, all others for messages.
TEST(RepeatsRooted, WhoWaitsForLongGoesOnWhereItWas) {
  with_two([](Rank rank, Member& member, std::barrier<>&) {
    constexpr int kCalls = 100;  // more than there are short cells
    for (const Rank late : {0, 1}) {
      const Call call = broadcast_of(member, 0);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
      const Board& board = member.communicator->members().board();
      while (rank == late && board.waits_for(1 - rank) != rank) std::this_thread::yield();
      for (int i = 0; i < kCalls; ++i) {
        if (rank == 0) member.in.assign(4, static_cast<float>(i));
        ASSERT_EQ(member.again(call), Outcome::kEnded);
        EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(i)));
      }
      ASSERT_TRUE(member.ordinary());  // both are through
    }
  });
}

// Of short messages so many as a connection has short cells, of others some; whichever come.
TEST(RepeatsRooted, WhoSendsOneWayRunsAhead) {
  with_two([](Rank rank, Member& member, std::barrier<>& together) {
    ASSERT_TRUE(member.communicator->set_algorithm("one_shot@flagged"));
    for (const std::size_t count : {2, 28, 124, 125, 200, 2}) {
      const std::size_t calls = count <= 124 ? kShortCellsPerPair : 8;
      member.in.assign(count, 0);
      member.out.assign(count, 0);
      const Call call = broadcast_of(member, 0);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
      together.arrive_and_wait();  // all have been read
      for (std::size_t i = 0; rank == 0 && i < calls; ++i) {
        member.in.assign(count, static_cast<float>(i));
        ASSERT_EQ(member.again(call), Outcome::kEnded) << count << ' ' << i;
      }
      together.arrive_and_wait();
      for (std::size_t i = 0; rank == 1 && i < calls; ++i) {
        ASSERT_EQ(member.again(call), Outcome::kEnded) << count << ' ' << i;
        EXPECT_EQ(member.out, std::vector<float>(count, static_cast<float>(i)));
      }
    }
  });
}

// The one looks into short cells, the other has sent in others: nothing comes, and the pages tell,
// however far ahead the root is.
TEST(RepeatsRooted, CallsOfUnlikeLengthAreToldWhereverTheirMessagesLie) {
  for (const std::size_t of_root : {4, 200})
    with_two([&](Rank rank, Member& member, std::barrier<>&) {
      ASSERT_TRUE(member.communicator->set_algorithm("one_shot@flagged"));
      const std::size_t count = rank == 0 ? of_root : 204 - of_root;
      member.in.assign(count, 1);
      member.out.assign(count, 0);
      const Call call = broadcast_of(member, 0);
      for (int i = 0; i < 100 && member.message.empty(); ++i)
        if (member.again(call) == Outcome::kElsewhere)
          if (const Status status = member.ordinary(call); !status)
            member.message = status.error().message;
      EXPECT_THAT(member.message, HasSubstr("broadcast #4 count 4 float root 0"));
      EXPECT_THAT(member.message, HasSubstr("broadcast #4 count 200 float root 0"));
    });
}

TEST(RepeatsRooted, WhoReceivesAnotherCallNamesBoth) {
  with_two([](Rank rank, Member& member, std::barrier<>&) {
    const Call call = broadcast_of(member, 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
    if (rank == 0) {
      // It learns of it when it has no more credits.
      Outcome outcome = Outcome::kEnded;
      while (outcome == Outcome::kEnded) outcome = member.again(call);
      if (outcome == Outcome::kElsewhere) {
        const Status status = member.ordinary(call);
        ASSERT_FALSE(status);
        member.message = status.error().message;
      }
    } else {
      Call other = call;
      other.collective = kReduce;
      other.root = 1;
      for (int i = 0; i < 3 && member.message.empty(); ++i)
        if (const Status status = member.ordinary(other); !status)
          member.message = status.error().message;
    }
    EXPECT_THAT(member.message, HasSubstr("broadcast #7 count 4 float root 0"));
    EXPECT_THAT(member.message, HasSubstr("reduce #7 count 4 float sum root 1"));
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);  // which says why
  });
}

TEST(RepeatsRooted, AnAbortOfAnotherThreadEndsACallThatRepeats) {
  with_two([](Rank rank, Member& member, std::barrier<>& together) {
    const Call call = broadcast_of(member, 1);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(call));
    if (rank == 0) {
      const Board& board = member.communicator->members().board();
      std::jthread aborts([&] {
        while (board.waits_for(0) != 1) std::this_thread::yield();
        member.communicator->abort();
      });
      EXPECT_EQ(member.again(call), Outcome::kFailed);
      EXPECT_THAT(member.message, HasSubstr("abort"));
    }
    together.arrive_and_wait();
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    EXPECT_FALSE(member.ordinary(call));
  });
}

// In the midst of calls that repeat: one that waits for the dead rank's message, and one that runs
// out of its credits.
TEST(RepeatsRooted, ADeathIsToldWhicheverWayTheCallsGo) {
  for (const int root : {0, 1})
    run_processes(2,
                  [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
                    float value = 1;
                    tuttiResult_t result = tuttiSuccess;
                    for (int i = 0; result == tuttiSuccess; ++i) {
                      if (self.rank == 1 && i == 50) std::raise(SIGKILL);
                      result = tuttiBroadcast(&value, &value, 1, tuttiFloat, root, comm, nullptr);
                    }
                    EXPECT_EQ(result, tuttiRemoteError);
                    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid"));
                  },
                  {1});
}

}  // namespace
}  // namespace tutti::test
