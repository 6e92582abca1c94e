// SPDX-License-Identifier: Apache-2.0
// The life of handles at the C boundary: abort while a call is under way, groups that fail or are
// dropped, finalize, use after fork, memory, forced settings.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>
#include <tutti/tutti.hpp>

#include "tests/comm/job.hpp"

namespace tutti::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(Abort, FreesAHandleThatACallStillUses) {
  // Rank 0's user thread calls until the abort of its other thread ends it, maybe with one call
  // just after; nobody may touch what was freed (the address sanitizer watches).
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    float data = 1;
    std::atomic<int> calls{0};
    const auto call_until_error = [&](tuttiComm_t own) {
      while (tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiMax, own, nullptr) == tuttiSuccess) {
        ++calls;
        calls.notify_all();
      }
      calls = 1 << 20;
      calls.notify_all();
    };
    if (rank == 1) return call_until_error(comm);
    std::thread user([&, own = comm] { call_until_error(own); });
    for (int seen = 0; seen < 100; seen = calls) calls.wait(seen);
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    comm = nullptr;
    user.join();
  });
}

TEST(Abort, EndsAnInitializationOfAGroup) {
  // Rank 1 never comes; the timeout is weeks away.
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.initTimeoutMs = INT_MAX;
  std::atomic<tuttiComm_t> told = nullptr;
  std::thread user([&] {
    tuttiComm_t comm = nullptr;
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiCommInitRankConfig(&comm, 2, id, 0, &config), tuttiSuccess);
    told = comm;
    told.notify_all();
    // An abort that comes before this has begun makes the group refuse the handle instead.
    EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr),
                AnyOf(HasSubstr("this rank was aborted while it joined"),
                      HasSubstr("before tuttiGroupEnd")));
  });
  told.wait(nullptr);
  EXPECT_EQ(tuttiCommAbort(told), tuttiSuccess);
  user.join();
  EXPECT_EQ(tuttiCommDestroy(told), tuttiInvalidArgument);
}

TEST(LastError, OfAPoisonIsNewerThanThatOfABadArgument) {
  tuttiComm_t comms[2];
  ASSERT_EQ(tuttiCommInitAll(comms, 2, nullptr), tuttiSuccess);
  const auto bad_call = [&] {
    EXPECT_EQ(tuttiCommSetAlgorithm(comms[0], "rings"), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comms[0]), HasSubstr("'rings'"));
  };
  bad_call();
  EXPECT_EQ(tuttiCommAbort(comms[1]), tuttiSuccess);
  tuttiResult_t state = tuttiSuccess;
  EXPECT_EQ(tuttiCommGetAsyncError(comms[0], &state), tuttiSuccess);
  EXPECT_EQ(state, tuttiRemoteError);
  EXPECT_THAT(tuttiGetLastError(comms[0]), HasSubstr("rank 1 (pid"));
  bad_call();  // the last one again
  EXPECT_EQ(tuttiCommAbort(comms[0]), tuttiSuccess);
}

TEST(Devices, WhereThereIsNoneIsSaid) {
  tuttiComm_t comm = nullptr;
  const int first = 0;
  if (tuttiCommInitAll(&comm, 1, &first) == tuttiSuccess) {
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    GTEST_SKIP() << "there is a GPU";
  }
  EXPECT_EQ(comm, nullptr);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("there is no CUDA device"));
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  int device = 0;
  EXPECT_EQ(tuttiCommCuDevice(comm, &device), tuttiSuccess);
  EXPECT_EQ(device, TUTTI_DEVICE_HOST);
  float data = 1;
  EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, comm, &data),
            tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("stream was not made by tuttiStreamCreate"));
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(Groups, ADroppedGroupRunsNothing) {
  float data = 1;
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  float out = -1;
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiAllReduce(&data, &out, 1, tuttiFloat, tuttiSum, comm, nullptr), tuttiSuccess);
  tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiSuccess);
  EXPECT_EQ(info.estimatedTime, 0) << "a rank alone waits for nobody";
  EXPECT_EQ(out, -1);
  EXPECT_EQ(tuttiAllReduce(&data, &out, 1, tuttiFloat, tuttiSum, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(out, 1) << "the group is closed, so the call ran";
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(Groups, ASimulationSaysWhatItCannotPrice) {
  tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiInvalidUsage) << "no group is open";
  EXPECT_EQ(tuttiGroupSimulateEnd(nullptr), tuttiInvalidArgument);
  tuttiSimInfo_t zero{};
  EXPECT_EQ(tuttiGroupSimulateEnd(&zero), tuttiInvalidArgument);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("an inner group"));
  EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess);
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("makes communicators"));
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage) << "it was closed, and its communicator forgotten";
}

TEST(Groups, ABadCallEndsTheGroupWithItsError) {
  float data = 1, out = -1;
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiAllReduce(&data, &out, 1, tuttiFloat, tuttiSum, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiAllReduce(nullptr, &out, 1, tuttiFloat, tuttiSum, comm, nullptr),
            tuttiInvalidArgument);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
  EXPECT_EQ(out, -1);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(Groups, AFailedInitializationLeavesNoHandle) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t good = nullptr, bad = nullptr;
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiCommInitRank(&good, 2, id, 0), tuttiSuccess);
  EXPECT_NE(good, nullptr);
  EXPECT_EQ(tuttiCommInitRank(&bad, 2, id, 7), tuttiInvalidArgument);
  EXPECT_EQ(bad, nullptr);
  tuttiComm_t const moved = std::exchange(good, nullptr);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
  EXPECT_EQ(good, nullptr) << "the user's variable is not written after the call";
  int rank = -1;
  EXPECT_EQ(tuttiCommUserRank(moved, &rank), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("not a communicator, or was destroyed"));
  EXPECT_EQ(tuttiCommDestroy(moved), tuttiInvalidArgument);
}

TEST(Groups, AFailedInitializationEndsTheOthersWithItsCause) {
  // Rank 1's id is damaged. The others, who would wait for it for weeks, end with it.
  tuttiUniqueId id, damaged;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  damaged = id;
  damaged.internal[sizeof damaged.internal / 2] ^= 1;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.initTimeoutMs = INT_MAX;
  tuttiComm_t comms[3] = {};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiCommInitRankConfig(&comms[0], 3, id, 0, &config), tuttiSuccess);
  EXPECT_EQ(tuttiCommInitRankConfig(&comms[1], 3, damaged, 1, &config), tuttiSuccess);
  EXPECT_EQ(tuttiCommInitRankConfig(&comms[2], 3, id, 2, &config), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("the unique id is damaged"));
  for (tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiInvalidArgument);
}

// Calls of two threads on one communicator, neither of which can end before one was refused: the
// other rank comes only then. `refused` runs in the thread that was refused.
void of_two_threads_one_is_refused(const std::function<void(tuttiComm_t)>& refused) {
  std::atomic<int> refusals{0};
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    if (rank == 1) {
      refusals.wait(0);
      EXPECT_EQ(check_sum(comm, 1, 2, 1000, false), "");
      return;
    }
    const auto call = [&] {
      if (check_sum(comm, 0, 2, 1000, false).empty()) return;
      refused(comm);
      ++refusals;
      refusals.notify_all();
    };
    std::thread other(call);
    call();
    other.join();
    EXPECT_EQ(refusals, 1);
  });
}

TEST(Misuse, OfTwoThreadsInACallOneIsRefusedAndToldOfTheOther) {
  of_two_threads_one_is_refused([](tuttiComm_t) {
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("another thread is in all_reduce"));
  });
}

TEST(Misuse, DestroyIsRefusedWhileAnotherThreadIsInACall) {
  of_two_threads_one_is_refused([](tuttiComm_t comm) {
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("another thread is in all_reduce"));
    EXPECT_EQ(tuttiCommFinalize(comm), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("another thread is in all_reduce"));
  });
}

// The thread sanitizer has a thread of its own, so that nothing is certain there.
#if !defined(__SANITIZE_THREAD__)
void forget_the_group() {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.opTimeoutMs = 5000;
  std::vector<Communicator> comms = Communicator::init_all(2, config);
  float value = 1;
  EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comms[0].get(), nullptr),
            tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(comms[0].get()),
              HasSubstr("waits for rank 1, which belongs to the same thread: put the calls"));
  for (Communicator& comm : comms) comm.abort();
}

TEST(Misuse, AForgottenGroupIsToldAtOnce) { forget_the_group(); }

// The parent has a thread of the library, which the child has not.
TEST(Misuse, AForgottenGroupIsToldAtOnceInAForkedChildToo) {
  static_cast<void>(UniqueId::create());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    forget_the_group();
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(Misuse, ARankThatAnotherThreadCouldDriveIsWaitedFor) {
  std::latch ended(1);
  std::thread other([&] { ended.wait(); });
  std::vector<Communicator> comms;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.opTimeoutMs = 300;
  comms = Communicator::init_all(2, config);
  float value = 1;
  EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comms[0].get(), nullptr),
            tuttiTimeout);
  ended.count_down();
  other.join();
}

TEST(Misuse, ASecondDestroyDoesNotHitTheNextCommunicator) {
  tuttiComm_t first = nullptr, next = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&first, 1, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(first), tuttiSuccess);
  ASSERT_EQ(tuttiCommInitAll(&next, 1, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(first), tuttiInvalidArgument);
  EXPECT_EQ(check_sum(next, 0, 1, 10, false), "");
  EXPECT_EQ(tuttiCommDestroy(next), tuttiSuccess);
}

TEST(Misuse, InitAllWritesNothingBeforeItHasCheckedTheCount) {
  int other = 0;
  auto* const untouched = reinterpret_cast<tuttiComm_t>(&other);
  tuttiComm_t comms[2] = {untouched, untouched};
  EXPECT_EQ(tuttiCommInitAll(comms, 65537, nullptr), tuttiInvalidArgument);
  EXPECT_THAT(comms, ::testing::Each(untouched));
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("ndev is 65537"));
}

// A communicator's threads run on after the program has closed the library.
TEST(Misuse, TheLibraryStaysMappedAfterDlclose) {
  Dl_info where{};
  link_map* map = nullptr;
  ASSERT_NE(::dladdr1(reinterpret_cast<void*>(&tuttiGetVersion), &where,
                      reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP),
            0);
  ElfW(Xword) flags = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_FLAGS_1) flags = entry->d_un.d_val;
  EXPECT_NE(flags & DF_1_NODELETE, 0u) << where.dli_fname;
}

// What a user does between a call in a group and its end must not reach freed memory.
class EndedInAGroup : public testing::TestWithParam<tuttiResult_t (*)(tuttiComm_t)> {};

TEST_P(EndedInAGroup, ACommunicatorMakesTheGroupFailAndRunNothing) {
  tuttiComm_t comms[2];
  ASSERT_EQ(tuttiCommInitAll(comms, 2, nullptr), tuttiSuccess);
  float data[2] = {1, 2};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(tuttiAllReduce(&data[i], &data[i], 1, tuttiFloat, tuttiSum, comms[i], nullptr),
              tuttiSuccess);
  EXPECT_EQ(GetParam()(comms[0]), tuttiSuccess);
  tuttiComm_t next = nullptr;
  std::thread([&] { EXPECT_EQ(tuttiCommInitAll(&next, 1, nullptr), tuttiSuccess); }).join();
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("destroyed before tuttiGroupEnd"));
  EXPECT_THAT(data, ::testing::ElementsAre(1, 2));
  EXPECT_EQ(tuttiCommDestroy(next), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(comms[1]), tuttiSuccess);
}

// Sends and receives are kept in another way.
TEST_P(EndedInAGroup, ACommunicatorOfSendsMakesTheGroupFailAndRunNothing) {
  tuttiComm_t comm = nullptr, next = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  float from = 1, to = 2;
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiSend(&from, 1, tuttiFloat, 0, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiRecv(&to, 1, tuttiFloat, 0, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(GetParam()(comm), tuttiSuccess);
  EXPECT_EQ(tuttiSend(&from, 1, tuttiFloat, 0, comm, nullptr), tuttiInvalidArgument);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument) << "the call's error";
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiSend(&from, 1, tuttiFloat, 0, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiRecv(&to, 1, tuttiFloat, 0, comm, nullptr), tuttiSuccess);
  EXPECT_EQ(GetParam()(comm), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("destroyed before tuttiGroupEnd"));
  EXPECT_EQ(to, 2);
  // The group has forgotten them.
  ASSERT_EQ(tuttiCommInitAll(&next, 1, nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(next), tuttiSuccess);
}

TEST_P(EndedInAGroup, AnInitializationMakesTheGroupFail) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comms[2] = {};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(tuttiCommInitRank(&comms[i], 2, id, i), tuttiSuccess);
  EXPECT_EQ(GetParam()(comms[0]), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_EQ(tuttiCommDestroy(comms[1]), tuttiInvalidArgument);
}

TEST_P(EndedInAGroup, ANewCommunicatorOfAnOldOneMakesTheGroupFail) {
  tuttiComm_t comm = nullptr, part = nullptr, other = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &part, nullptr), tuttiSuccess);
  EXPECT_EQ(GetParam()(part), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("nothing of the group has run"));
  // Whoever has the handle next has a communicator of his own.
  ASSERT_EQ(tuttiCommInitAll(&other, 1, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

INSTANTIATE_TEST_SUITE_P(By, EndedInAGroup, testing::Values(tuttiCommDestroy, tuttiCommAbort));

TEST(Groups, CommunicatorsMayBeMovedBeforeTheEnd) {
  Group group;
  std::vector<Communicator> all = Communicator::init_all(2);
  Communicator moved = std::move(all[0]);
  group.end();
  EXPECT_EQ(moved.rank(), 0);
  EXPECT_EQ(all[1].rank(), 1);
}

TEST(Config, ValuesOutOfRangeAreRefusedByName) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  const auto expect_refused = [&](const char* name, int tuttiConfig_t::*field, int value) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.*field = value;
    EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument) << name;
    EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr(std::string(name) + " is"));
  };
  expect_refused("blocking", &tuttiConfig_t::blocking, 7);
  expect_refused("cgaClusterSize", &tuttiConfig_t::cgaClusterSize, 9);
  expect_refused("minCTAs", &tuttiConfig_t::minCTAs, -3);
  expect_refused("maxCTAs", &tuttiConfig_t::maxCTAs, 0);
  expect_refused("splitShare", &tuttiConfig_t::splitShare, 9);
  expect_refused("trafficClass", &tuttiConfig_t::trafficClass, -1);
  expect_refused("CTAPolicy", &tuttiConfig_t::CTAPolicy, 4);
  expect_refused("opTimeoutMs", &tuttiConfig_t::opTimeoutMs, 0);
  expect_refused("initTimeoutMs", &tuttiConfig_t::initTimeoutMs, -1);
  EXPECT_EQ(tuttiCommInitRank(&comm, 65537, id, 0), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("at most 65536"));
}

TEST(LogFile, ThatCannotBeOpenedIsSaidOnce) {
  const std::string command = "env TUTTI_DEBUG_FILE=/nonexistent/log " +
                              ::testing::internal::GetArgvs()[0] +
                              " --gtest_also_run_disabled_tests "
                              "--gtest_filter=ForcedChild.DISABLED_AllReduces 2>&1 >/dev/null | "
                              "grep -c 'cannot open the log file /nonexistent/log' | grep -qx 1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(Finalize, NothingRunsAfterIt) {
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
  float data = 1;
  EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, comm, nullptr),
            tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("tuttiCommFinalize"));
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(Finalize, APeerThatStillCallsIsTold) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    float data = 1;
    if (rank == 1) {
      EXPECT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
      tuttiResult_t state = tuttiSuccess;
      while (state == tuttiSuccess) {
        ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
        std::this_thread::yield();
      }
      EXPECT_EQ(tuttiCommFinalize(comm), tuttiRemoteError) << "the poison's code";
      return;
    }
    EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, comm, nullptr),
              tuttiRemoteError);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid"));
  });
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// A child that inherits a communicator may not use it, and its end is not the parent's. (Forking
// with threads deadlocks inside the sanitizers' own locks.)
TEST(Fork, AnInheritedCommunicatorIsRefusedAndHarmless) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    EXPECT_EQ(check_sum(comm, rank, 2, 100, false), "");
    if (rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        float data = 1;
        const bool refused = tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, comm, nullptr) ==
                             tuttiInvalidUsage;
        ::_exit(refused && tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(check_sum(comm, rank, 2, 100, false), "");
  });
}
#endif

TEST(Memory, IsZeroAndKnown) {
  void* memory = nullptr;
  ASSERT_EQ(tuttiMemAlloc(&memory, 10'000), tuttiSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(static_cast<char*>(memory)[i], 0);
  EXPECT_EQ(tuttiMemFree(static_cast<char*>(memory) + 1), tuttiInvalidArgument);
  EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  EXPECT_EQ(tuttiMemFree(memory), tuttiInvalidArgument);
  EXPECT_EQ(tuttiMemFree(nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiMemAlloc(&memory, 0), tuttiSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(tuttiMemAlloc(&memory, SIZE_MAX / 2), tuttiSystemError);
}

// Every forced setting runs or is refused by name; none poisons the communicator. The environment
// is read once a process, so each set is a process of its own: this program with another filter.
class Forced : public testing::TestWithParam<const char*> {};

TEST_P(Forced, RunsOrIsRefusedByName) {
  const std::string command = std::string("env ") + GetParam() + " " +
                              ::testing::internal::GetArgvs()[0] +
                              " --gtest_also_run_disabled_tests "
                              "--gtest_filter=ForcedChild.DISABLED_AllReduces >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Forced,
    testing::Values("TUTTI_PROTO=flagged", "TUTTI_PROTO=slots", "TUTTI_REPLICAS=3",
                    "TUTTI_REPLICAS=8 TUTTI_PROTO=slots", "TUTTI_SLOTS=3", "TUTTI_SLOTS=64",
                    "TUTTI_SLOT_BYTES=1000 TUTTI_PROTO=slots", "TUTTI_SLICES=7",
                    "TUTTI_ARENA_BYTES=64K TUTTI_PROTO=slots", "TUTTI_ALGO=tree TUTTI_REPLICAS=2",
                    "TUTTI_ISA=scalar", "TUTTI_SPIN=0", "TUTTI_NT_BYTES=1", "TUTTI_CMA=off"));

// What TUTTI_ALGO alone is to blame for names it.
class BadAlgorithm : public testing::TestWithParam<const char*> {};

TEST_P(BadAlgorithm, IsRefusedByTheVariablesName) {
  const std::string command = std::string("env TUTTI_ALGO=") + GetParam() + " " +
                              ::testing::internal::GetArgvs()[0] +
                              " --gtest_also_run_disabled_tests "
                              "--gtest_filter=ForcedChild.DISABLED_IsRefused >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

INSTANTIATE_TEST_SUITE_P(Settings, BadAlgorithm,
                         testing::Values("rng", "ring@bogus", "hierarchical:groups=2x4",
                                         "all_gather:tree"));

TEST(ForcedChild, DISABLED_IsRefused) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  EXPECT_NE(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  EXPECT_THAT(tuttiGetLastError(nullptr), ::testing::StartsWith("TUTTI_ALGO: "));
  EXPECT_THAT(tuttiGetLastError(nullptr), ::testing::Not(HasSubstr("TUTTI_ALGO: TUTTI_ALGO")));
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = "rings";
  EXPECT_NE(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiSuccess);
  EXPECT_THAT(tuttiGetLastError(nullptr),
              ::testing::StartsWith("the configuration's algorithm: unknown algorithm 'rings'"));
}

TEST(ForcedChild, DISABLED_AllReduces) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [](int rank, tuttiComm_t& comm) {
    for (const std::size_t count : {1ul, 1000ul, 40'000ul}) {
      std::vector<std::int32_t> in(count, rank + 1), out(count);
      const tuttiResult_t result =
          tuttiAllReduce(in.data(), out.data(), count, tuttiInt32, tuttiSum, comm, nullptr);
      tuttiResult_t state = tuttiSuccess;
      EXPECT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
      EXPECT_EQ(state, tuttiSuccess) << tuttiGetLastError(comm);
      if (result == tuttiSuccess) {
        EXPECT_THAT(out, ::testing::Each(6));
      } else {
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("forced settings"));
      }
    }
  });
}

}  // namespace
}  // namespace tutti::test
