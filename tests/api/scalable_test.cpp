// SPDX-License-Identifier: Apache-2.0
// tuttiCommInitRankScalable: ranks that meet at the roots of several ids, as threads and as
// processes that made the ids, and the arguments it refuses. How roots divide the ranks and what is
// told when one of them fails: tests/control/several_roots_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/fork_harness.hpp"
#include "tests/comm/job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<tuttiUniqueId> make_ids(int count) {
  std::vector<tuttiUniqueId> ids(static_cast<std::size_t>(count));
  for (tuttiUniqueId& id : ids)
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
  return ids;
}

// The ids that some of the processes make, for all of them.
struct SharedIds {
  std::atomic<int> made = 0;
  std::array<tuttiUniqueId, 3> ids;

  struct Unmap {
    void operator()(SharedIds* shared) const { ::munmap(shared, sizeof *shared); }
  };
  static std::unique_ptr<SharedIds, Unmap> make() {
    return std::unique_ptr<SharedIds, Unmap>(new (::mmap(
        nullptr, sizeof(SharedIds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                                                 SharedIds);
  }
};

class Scalable : public ::testing::TestWithParam<int> {};

TEST_P(Scalable, ThreadsMeetByEveryNumberOfIds) {
  const int ranks = GetParam();
  for (int count = 1; count <= std::min(ranks, 3); ++count) {
    std::vector<tuttiUniqueId> ids = make_ids(count);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        tuttiComm_t comm = nullptr;
        ASSERT_EQ(tuttiCommInitRankScalable(&comm, ranks, rank, count, ids.data(), nullptr),
                  tuttiSuccess)
            << tuttiGetLastError(nullptr);
        EXPECT_EQ(check_sum(comm, rank, ranks, 1000, false), "");
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Scalable, OneThreadBeginsAllRanksAndDoesNotWait) {
  const int ranks = GetParam();
  std::vector<tuttiUniqueId> ids = make_ids(std::min(ranks, 3));
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_EQ(tuttiCommInitRankScalable(&comms[static_cast<std::size_t>(rank)], ranks, rank,
                                        static_cast<int>(ids.size()), ids.data(), &config),
              tuttiInProgress);
  std::vector<float> data(comms.size(), 1);
  for (const tuttiComm_t comm : comms) {
    tuttiResult_t state = tuttiInProgress;
    while (state == tuttiInProgress) {
      ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
      std::this_thread::yield();
    }
    ASSERT_EQ(state, tuttiSuccess) << tuttiGetLastError(comm);
  }
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (std::size_t i = 0; i < comms.size(); ++i)
    EXPECT_EQ(tuttiAllReduce(&data[i], &data[i], 1, tuttiFloat, tuttiSum, comms[i], nullptr),
              tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  EXPECT_EQ(data, std::vector<float>(comms.size(), static_cast<float>(ranks)));
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Scalable, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

// A child that has made an id ends without its static destructors, which the thread sanitizer takes
// for a thread that is lost; tests/control has this with threads that are waited for.
#if !defined(__SANITIZE_THREAD__)
TEST(ScalableProcesses, MeetByIdsThatSomeOfThemMade) {
  constexpr int kRanks = 6;
  for (const int count : {2, 3}) {
    const auto shared = SharedIds::make();
    const auto results = testing::run_forked(
        kRanks,
        [&](const testing::ForkedRank& self) {
          // Every other rank makes one: not all are met by their own parts.
          if (const int mine = self.rank / 2; self.rank % 2 == 1 && mine < count) {
            shared->ids[static_cast<std::size_t>(mine)] = make_ids(1)[0];
            ++shared->made;
          }
          while (shared->made < count) std::this_thread::yield();
          tuttiComm_t comm = nullptr;
          ASSERT_EQ(tuttiCommInitRankScalable(&comm, kRanks, self.rank, count, shared->ids.data(),
                                              nullptr),
                    tuttiSuccess)
              << tuttiGetLastError(nullptr);
          EXPECT_EQ(check_sum(comm, self.rank, kRanks, 10'000, false), "");
          EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
        },
        {});
    testing::expect_all_passed(results);
  }
}

// Rank 3 makes the second id, and ends before anybody joins; of the others none waits for long.
TEST(ScalableProcesses, AreToldWhereARootIsGone) {
  constexpr int kRanks = 4;
  const auto shared = SharedIds::make();
  const auto results = testing::run_forked(
      kRanks,
      [&](const testing::ForkedRank& self) {
        if (self.rank == 0 || self.rank == 3) {
          shared->ids[self.rank == 0 ? 0 : 1] = make_ids(1)[0];
          ++shared->made;
        }
        if (self.rank == 3) {
          while (shared->made < 2) std::this_thread::yield();
          ++shared->made;
          return;
        }
        while (shared->made < 3) std::this_thread::yield();
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.initTimeoutMs = 10'000;
        tuttiComm_t comm = nullptr;
        EXPECT_NE(
            tuttiCommInitRankScalable(&comm, kRanks, self.rank, 2, shared->ids.data(), &config),
            tuttiSuccess);
        EXPECT_EQ(comm, nullptr);
        // Where rank 3's process ends in the middle, the root is there and goes.
        EXPECT_THAT(tuttiGetLastError(nullptr),
                    ::testing::AnyOf(AllOf(HasSubstr("the root of unique id 2 of 2"),
                                           HasSubstr("no process listens at unix:")),
                                     HasSubstr("the process that made the unique id")));
      },
      {});
  testing::expect_all_passed(results);
}

#endif

TEST(ScalableArguments, ThatCannotBeAreRefused) {
  std::vector<tuttiUniqueId> ids = make_ids(3), twice = ids;
  twice[1] = ids[0];
  tuttiComm_t comm = nullptr;
  const auto refused = [&](int ranks, int count, tuttiUniqueId* list) {
    EXPECT_EQ(tuttiCommInitRankScalable(&comm, ranks, 0, count, list, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(comm, nullptr);
    return std::string(tuttiGetLastError(nullptr));
  };
  for (const auto& [count, list] : {std::pair{0, ids.data()}, {-1, ids.data()}, {2, nullptr}})
    EXPECT_THAT(refused(2, count, list), HasSubstr("commIds is NULL or nId is not positive"));
  EXPECT_THAT(refused(2, 3, ids.data()),
              AllOf(HasSubstr("tuttiCommInitRankScalable"),
                    HasSubstr("the number of unique ids is 3, and that of ranks 2")));
  EXPECT_THAT(refused(3, 3, twice.data()), HasSubstr("unique ids 1 and 2 of 3 are the same"));
  ids[1].internal[sizeof ids[1].internal / 2] ^= 1;
  EXPECT_THAT(refused(3, 3, ids.data()), HasSubstr("unique id 2 of 3: the unique id is damaged"));
}

}  // namespace
}  // namespace tutti::test
