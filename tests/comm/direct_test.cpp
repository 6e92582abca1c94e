// SPDX-License-Identifier: Apache-2.0
// Direct plans through the C API: ranks as threads, as processes and as both, results against exact
// sums around the borders of pieces and chunks, and jobs where the kernel or the user refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <random>

#include "base/collective.hpp"
#include "base/host.hpp"
#include "calls.hpp"
#include "forked_job.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using testing::ForkedRank;
using ::testing::HasSubstr;

constexpr const char* kDirect = "two_shot:access=remote";
constexpr const char* kStore = "two_shot:access=store";  // among threads
constexpr std::size_t kSizes[] = {1, 2, 3, 17, 1000, 16'383, 16'384, 32'769, 100'003, 400'001};

std::string last_protocol(tuttiComm_t comm) {
  tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
  return info.lastProtocol;
}

// Every size, in place on some ranks, then calls that change the algorithm every time.
void run_many(tuttiComm_t comm, int rank, int ranks, const char* direct = kDirect) {
  ASSERT_EQ(tuttiCommSetAlgorithm(comm, direct), tuttiSuccess) << tuttiGetLastError(comm);
  for (const std::size_t count : kSizes) {
    const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;
    ASSERT_EQ(check_sum(comm, rank, ranks, count, in_place), "") << count;
    EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local");
  }
  constexpr unsigned kSeed = 2711;
  std::mt19937 random(kSeed);  // the same sequence on every rank
  for (int call = 0; call < 200; ++call) {
    const char* const name = std::array{direct, "ring", "auto", direct}[random() % 4];
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, name), tuttiSuccess);
    const std::size_t count = random() % (std::size_t{1} << random() % 16) + 1;
    ASSERT_EQ(check_sum(comm, rank, ranks, count, random() % 2 == 0, call), "")
        << "call " << call << " " << name << " count " << count << " seed " << kSeed;
  }
}

// Broadcasts and scatters, which only read.
void run_rooted(tuttiComm_t comm, int rank, int ranks) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kScatter}) {
    const std::string plan = std::string(name_of(collective)) + ":one_shot:access=remote";
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess) << tuttiGetLastError(comm);
    for (const std::size_t count : {std::size_t{1}, std::size_t{16'384}, std::size_t{100'003}})
      for (const int root : {0, ranks - 1}) {
        const CallCase one{collective, count, root, count % 2 == 0, root};
        ASSERT_EQ(check_call(comm, rank, ranks, one), "") << plan << " " << count << " " << root;
        EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local");
      }
  }
}

// All-to-alls, in place on some ranks, whose results then pass through memory of their own, which
// the communicator keeps: for larger calls and smaller ones.
void run_exchanges(tuttiComm_t comm, int rank, int ranks) {
  ASSERT_EQ(tuttiCommSetAlgorithm(comm, "alltoall:two_shot:access=remote"), tuttiSuccess)
      << tuttiGetLastError(comm);
  for (const bool falling : {false, true})
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const std::size_t count = kSizes[falling ? std::size(kSizes) - 1 - i : i];
      const bool in_place = (static_cast<std::size_t>(rank) + count) % 3 != 0;
      const CallCase one{Collective::kAllToAll, count / static_cast<std::size_t>(ranks) + 1, 0,
                         in_place, static_cast<int>(count)};
      ASSERT_EQ(check_call(comm, rank, ranks, one), "") << count << " in place " << in_place;
      EXPECT_EQ(last_protocol(comm), ranks > 1 ? "direct" : "local");
    }
}

// Two in place in one group, of which the second reads what the first has written, so that each
// block is back where it was.
void run_exchanges_in_a_group(tuttiComm_t comm, int rank) {
  constexpr std::size_t kBlock = 5000;
  std::vector<std::int32_t> data(2 * kBlock);
  std::iota(data.begin(), data.end(), 100'000 * rank);
  const std::vector<std::int32_t> before = data;
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int call = 0; call < 2; ++call)
    ASSERT_EQ(tuttiAlltoAll(data.data(), data.data(), kBlock, tuttiInt32, comm, nullptr),
              tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
  EXPECT_EQ(data, before);
  EXPECT_EQ(last_protocol(comm), "direct");
}

class Direct : public ::testing::TestWithParam<int> {};

TEST_P(Direct, AmongThreads) {
  const int ranks = GetParam();
  for (const char* name : {kDirect, kStore})
    run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) { run_many(comm, rank, ranks, name); });
}

TEST_P(Direct, AmongProcesses) {
  if (!has_cross_memory_attach()) GTEST_SKIP() << "the kernel refuses cross-memory attach";
  const auto results = testing::run_forked(
      GetParam(),
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        run_many(comm, self.rank, self.ranks);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

TEST_P(Direct, RootedAndExchangesAmongProcesses) {
  if (!has_cross_memory_attach()) GTEST_SKIP() << "the kernel refuses cross-memory attach";
  const auto results = testing::run_forked(
      GetParam(),
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        run_rooted(comm, self.rank, self.ranks);
        run_exchanges(comm, self.rank, self.ranks);
        if (self.ranks == 2) run_exchanges_in_a_group(comm, self.rank);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Direct, ::testing::Values(1, 2, 3, 5, 8));

// One thread drives two ranks of each process: loads and cross-memory attach in one operation.
TEST(DirectGroups, OfTwoRanksInEachProcess) {
  if (!has_cross_memory_attach()) GTEST_SKIP() << "the kernel refuses cross-memory attach";
  const auto results = testing::run_forked(
      2,
      [](const ForkedRank& self) {
        const std::array<tuttiComm_t, 2> comms = join_two(self);
        for (const tuttiComm_t comm : comms)
          EXPECT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiSuccess);
        for (const std::size_t count : kSizes) {
          std::array<std::vector<std::int32_t>, 4> data;
          EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
          for (std::size_t i = 0; i < 4; ++i) {  // two operations of each rank
            data[i].assign(count, 2 * self.rank + static_cast<int>(i % 2) + static_cast<int>(i));
            EXPECT_EQ(tuttiAllReduce(data[i].data(), data[i].data(), count, tuttiInt32, tuttiSum,
                                     comms[i % 2], nullptr),
                      tuttiSuccess);
          }
          EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comms[0]);
          for (std::size_t i = 0; i < 4; ++i)
            EXPECT_THAT(data[i], ::testing::Each(i < 2 ? 6 + 2 : 6 + 10)) << count;
        }
        for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

TEST(DirectTypes, AverageAndHalves) {
  if (!has_cross_memory_attach()) GTEST_SKIP() << "the kernel refuses cross-memory attach";
  const auto results = testing::run_forked(
      3,
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        ASSERT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiSuccess);
        constexpr std::size_t kCount = 50'001;
        std::vector<double> in(kCount, 3.0 * self.rank), out(kCount);
        EXPECT_EQ(
            tuttiAllReduce(in.data(), out.data(), kCount, tuttiDouble, tuttiAvg, comm, nullptr),
            tuttiSuccess);
        EXPECT_THAT(out, ::testing::Each(3.0));
        // bfloat16 1, 2 and 4: 0x3f80, 0x4000, 0x4080; their sum 7 is 0x40e0.
        const std::uint16_t mine = std::array<std::uint16_t, 3>{
            0x3f80, 0x4000, 0x4080}[static_cast<std::size_t>(self.rank)];
        std::vector<std::uint16_t> halves(kCount, mine);
        EXPECT_EQ(tuttiAllReduce(halves.data(), halves.data(), kCount, tuttiBfloat16, tuttiSum,
                                 comm, nullptr),
                  tuttiSuccess);
        EXPECT_THAT(halves, ::testing::Each(0x40e0));
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

// The kernel would write for them too, but nobody could hold it back once a call has failed.
TEST(DirectRefused, StoresIntoOtherProcessesOutsideOfWindows) {
  const auto results = testing::run_forked(
      2,
      [](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        EXPECT_EQ(tuttiCommSetAlgorithm(comm, kStore), tuttiNotSupported);
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("tuttiCommWindowRegister"));
        EXPECT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

// A job in which `refuse` keeps ranks from reading each other: the form is refused in one line, on
// all ranks alike, and auto goes without it.
void expect_refusal(const std::function<void(int rank)>& refuse, const char* reason) {
  const auto results = testing::run_forked(
      3,
      [&](const ForkedRank& self) {
        refuse(self.rank);
        const tuttiComm_t comm = join(self);
        EXPECT_EQ(tuttiCommSetAlgorithm(comm, kDirect), tuttiNotSupported);
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("works in other ranks' memory"));
        EXPECT_THAT(tuttiGetLastError(comm), HasSubstr(reason));
        for (const std::size_t count : {std::size_t{1}, std::size_t{400'001}}) {
          EXPECT_EQ(check_sum(comm, self.rank, self.ranks, count, false), "");
          EXPECT_NE(last_protocol(comm), "direct");
        }
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results);
}

TEST(DirectRefused, ByTheUserOnOneRank) {
  expect_refusal(
      [](int rank) {
        if (rank == 1) ::setenv("TUTTI_CMA", "off", 1);
      },
      "rank 1 has TUTTI_CMA=off");
}

// A process that is not dumpable is read by none that lacks CAP_SYS_PTRACE.
TEST(DirectRefused, ByTheKernel) {
  expect_refusal(
      [](int rank) {
        __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
        const std::array<__user_cap_data_struct, 2> none{};
        ASSERT_EQ(::syscall(SYS_capset, &header, none.data()), 0);
        ASSERT_EQ(::prctl(PR_SET_DUMPABLE, rank == 1 ? 0 : 1), 0);
      },
      "rank 0 may not read the memory of rank 1");
}

}  // namespace
}  // namespace tutti::test
