// SPDX-License-Identifier: Apache-2.0
// Jobs whose messages travel over TCP: on one host because it is forced, and between hosts (that
// TUTTI_HOST_ID tells apart, on the loopback), with shared memory inside each. What is right there,
// what is counted, and what is said when a rank of another host does not do its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "hosts_job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

void run_tcp(const Hosts& hosts, const HostsBody& body, const std::vector<int>& killed = {}) {
  run_hosts(
      hosts, [](int /*host*/) { set("TUTTI_IB_HCA", "=none"); }, body, killed);
}

class Wire : public ::testing::TestWithParam<int> {};

TEST_P(Wire, EveryAlgorithmIsRightWhereTcpIsForced) {
  const int ranks = GetParam();
  run_tcp({.ranks = ranks, .ranks_per_host = ranks, .transport = "tcp"},
          [](tuttiComm_t& comm, const testing::ForkedRank& self) {
            EXPECT_STREQ(info_of(comm).transport, "tcp");
            check_all_algorithms(comm, self);
            check_all_collectives(comm, self);
          });
}

TEST_P(Wire, EveryAlgorithmIsRightBetweenHosts) {
  run_tcp({.ranks = GetParam()}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    EXPECT_STREQ(info_of(comm).transport, self.ranks > 2 ? "shm+tcp" : "shm");
    check_all_algorithms(comm, self);
    check_all_collectives(comm, self);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Wire, ::testing::Values(2, 3, 4, 5, 8));

// TCP needs no registration; it takes one all the same.
TEST(WireLending, LargeMessagesAreSentFromWhereTheyLie) {
  run_tcp({.ranks = 2, .ranks_per_host = 1}, [](tuttiComm_t& comm, const testing::ForkedRank&) {
    std::vector<float> in(1 << 20), out(1 << 20);
    for (const bool registered : {false, true}) {
      void* handle = nullptr;
      if (registered) {
        ASSERT_EQ(tuttiCommRegister(comm, in.data(), in.size() * sizeof(float), &handle),
                  tuttiSuccess)
            << tuttiGetLastError(comm);
      }
      const Sent sent = sum_ring(comm, 2, in, out);
      EXPECT_EQ(sent.payload_bytes, in.size() * sizeof(float));
      EXPECT_EQ(sent.lent_bytes, sent.payload_bytes);
      if (registered) {
        EXPECT_EQ(tuttiCommDeregister(comm, handle), tuttiSuccess);
        EXPECT_EQ(tuttiCommDeregister(comm, handle), tuttiInvalidArgument);
        EXPECT_THAT(tuttiGetLastError(comm),
                    HasSubstr("handle does not come from tuttiCommRegister"));
      }
    }
  });
}

TEST(WireFaults, AKilledRankOfAnotherHostIsNamed) {
  const Meeting summed, ended;
  run_tcp({},
          [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
            ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
            ASSERT_TRUE(summed.wait_for(self.ranks));
            if (self.rank == 3) ::raise(SIGKILL);
            const std::string told = sum_until_told(comm, self.rank, self.ranks);
            EXPECT_THAT(told, AllOf(HasSubstr("rank 3 (pid "), HasSubstr("died")));
            EXPECT_TRUE(ended.wait_for(self.ranks - 1));
            abort(comm);
          },
          {3});
}

// Whoever keeps a copy of a dead rank's socket would keep its peers waiting for the timeout.
TEST(WireFaults, AKilledRankIsNamedAtOnceThoughAChildOfItLivesOn) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const SharedWord survivor;
  const Meeting summed;
  run_tcp({.ranks = 2, .ranks_per_host = 1},  // nobody of its host tells of its death
          [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
            ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
            if (self.rank == 1) *survivor = fork_survivor();
            ASSERT_TRUE(summed.wait_for(self.ranks));
            if (self.rank == 1) ::raise(SIGKILL);
            const std::string told = sum_until_told(comm, self.rank, self.ranks);
            EXPECT_THAT(told, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("died")));
            abort(comm);
          },
          {1});
  end_survivor(static_cast<pid_t>(*survivor));
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// (Forking with threads deadlocks inside the sanitizers' own locks.)
TEST(WireFaults, AChildThatDestroysTheInheritedCommunicatorDoesNoHarm) {
  run_tcp({.ranks = 2, .ranks_per_host = 1},
          [](tuttiComm_t& comm, const testing::ForkedRank& self) {
            ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
            if (self.rank == 0) destroy_in_a_child(comm);
            EXPECT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
          });
}
#endif

TEST(WireFaults, AfterADeathOnAnotherHostTheOthersShrinkAndGoOn) {
  const Meeting summed;
  run_tcp({},
          [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
            ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
            ASSERT_TRUE(summed.wait_for(self.ranks));
            if (self.rank == 3) ::raise(SIGKILL);
            while (check_sum(comm, self.rank, self.ranks, 100'000, false).empty()) {
            }
            tuttiComm_t part = nullptr;
            ASSERT_EQ(tuttiCommShrink(comm, nullptr, 0, &part, nullptr, TUTTI_SHRINK_ABORT),
                      tuttiSuccess)
                << tuttiGetLastError(nullptr);
            EXPECT_STREQ(info_of(part).transport, "shm+tcp");
            EXPECT_EQ(check_sum(part, self.rank, 3, 100'000, false), "");
            EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
            abort(comm);
          },
          {3});
}

TEST(WireRegroup, PartsOfASplitTakeTheWayThatTheyNeed) {
  run_tcp({}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    for (const bool by_host : {true, false}) {
      const int color = by_host ? self.rank / 2 : self.rank % 2;
      const int rank = by_host ? self.rank % 2 : self.rank / 2;
      tuttiComm_t part = nullptr;
      ASSERT_EQ(tuttiCommSplit(comm, color, 0, &part, nullptr), tuttiSuccess)
          << tuttiGetLastError(nullptr);
      EXPECT_STREQ(info_of(part).transport, by_host ? "shm" : "shm+tcp");
      EXPECT_EQ(check_sum(part, rank, 2, 100'000, false), "");
      EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
    }
  });
}

TEST(WireFaults, CallsThatDoNotMatchNameBothSides) {
  const Meeting ended;
  run_tcp({}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    const std::size_t count = self.rank == 2 ? 1000 : 999;
    const std::string told = check_sum(comm, self.rank, self.ranks, count, false);
    EXPECT_THAT(told, AllOf(HasSubstr("calls do not match"), HasSubstr("count 1000"),
                            HasSubstr("count 999")));
    EXPECT_TRUE(ended.wait_for(self.ranks));
    abort(comm);
  });
}

TEST(WireFaults, WhoDoesNotComeIsNamedAtTheTimeout) {
  const Meeting ended;
  run_tcp({.op_timeout_ms = 4000}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
    if (self.rank != 3) {
      EXPECT_THAT(check_sum(comm, self.rank, self.ranks, 1000, false), HasSubstr("rank 3 (pid "));
    } else {
      tuttiResult_t state = tuttiSuccess;  // the others' word comes with their question
      while (state == tuttiSuccess) ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    }
    EXPECT_TRUE(ended.wait_for(self.ranks));
    abort(comm);
  });
}

#if !defined(__SANITIZE_ADDRESS__)
// The check of virtual tables needs a descriptor itself.
TEST(WireFaults, WhatTheTransportLacksIsToldHereAndNamesThisRankToTheOthers) {
  const Meeting ended;
  run_tcp({.ranks = 2, .ranks_per_host = 1}, [&](tuttiComm_t& comm,
                                                 const testing::ForkedRank& self) {
    // It lacks one to accept with, or, where a watched connection was being made meanwhile,
    // one to connect with.
    if (self.rank == 0) exhaust_descriptors();
    const std::string told = sum_until_told(comm, self.rank, self.ranks);
    if (self.rank == 0) {
      EXPECT_THAT(told, AnyOf(HasSubstr("no free descriptor"), HasSubstr("Too many open files")));
    } else {
      EXPECT_THAT(
          told, AllOf(HasSubstr("rank 0 (pid "), AnyOf(HasSubstr("failed or left"),
                                                       HasSubstr("could not connect to rank 1"))));
    }
    tuttiResult_t state = tuttiSuccess;
    EXPECT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    EXPECT_EQ(state, tuttiRemoteError);
    EXPECT_TRUE(ended.wait_for(self.ranks));
    abort(comm);
  });
}
#endif

TEST(WireFaults, WhoLeavesInOrderIsNotTakenForDead) {
  const Meeting told_all;
  run_tcp({}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    if (self.rank == 3) return;
    const std::string told = check_sum(comm, self.rank, self.ranks, 100'000, false);
    EXPECT_THAT(told, AllOf(HasSubstr("rank 3 (pid "), HasSubstr("left")));
    EXPECT_TRUE(told_all.wait_for(self.ranks - 1));
    abort(comm);
  });
}

TEST(WireFaults, AnAbortReachesTheOtherHosts) {
  const Meeting summed;
  run_tcp({}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    ASSERT_TRUE(summed.wait_for(self.ranks));
    if (self.rank != 3) {
      EXPECT_NE(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    }
    abort(comm);
  });
}

}  // namespace
}  // namespace tutti::test
