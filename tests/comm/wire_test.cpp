// SPDX-License-Identifier: Apache-2.0
// Jobs whose messages travel over TCP: on one host because it is forced, and between hosts (that
// TUTTI_HOST_ID tells apart, on the loopback), with shared memory inside each. What is right there,
// what is counted, and what is said when a rank of another host does not do its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <numeric>
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

// A message of many slots: whenever the sender has to wait for a slot, the receiver has taken all
// that came, and offers the place of the next.
TEST(WireReceiving, LargeMessagesAreReceivedWhereTheyBelong) {
  run_tcp({.ranks = 2, .ranks_per_host = 1}, [](tuttiComm_t& comm,
                                                const testing::ForkedRank& self) {
    std::vector<std::int32_t> data(2'000'003);
    if (self.rank == 0) {
      std::iota(data.begin(), data.end(), 7);
      ASSERT_EQ(tuttiSend(data.data(), data.size(), tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(info_of(comm).receivedInPlaceBytes, 0U);
      return;
    }
    ASSERT_EQ(tuttiRecv(data.data(), data.size(), tuttiInt32, 0, comm, nullptr), tuttiSuccess);
    for (std::size_t i = 0; i < data.size(); ++i)
      ASSERT_EQ(data[i], static_cast<std::int32_t>(i) + 7) << "element " << i;
    EXPECT_GT(info_of(comm).receivedInPlaceBytes, 0U);
    EXPECT_LE(info_of(comm).receivedInPlaceBytes, data.size() * sizeof(std::int32_t));
  });
}

// As large as what was expected, but another send's.
TEST(WireReceiving, AMessageOfAnotherTypeDoesNotReachTheMemoryThatWasOffered) {
  const Meeting ended;
  run_tcp(
      {.ranks = 2, .ranks_per_host = 1}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
        std::vector<std::int32_t> data(500'000, self.rank);
        const tuttiResult_t result =
            self.rank == 0 ? tuttiSend(data.data(), data.size(), tuttiFloat, 1, comm, nullptr)
                           : tuttiRecv(data.data(), data.size(), tuttiInt32, 0, comm, nullptr);
        EXPECT_EQ(result, tuttiInvalidUsage) << tuttiGetLastError(comm);
        EXPECT_EQ(std::ranges::count(data, self.rank), static_cast<std::ptrdiff_t>(data.size()));
        EXPECT_TRUE(ended.wait_for(self.ranks));
        abort(comm);
      });
}

// Its memory is the program's again when a call has failed, however far it was.
TEST(WireFaults, NothingReachesAReceiversMemoryAfterTheSenderDiedInTheMiddle) {
  run_tcp({.ranks = 2, .ranks_per_host = 1},
          [](tuttiComm_t& comm, const testing::ForkedRank& self) {
            std::vector<std::int32_t> data(16'000'000, 5);
            if (self.rank == 0) {
              tuttiStream_t stream = nullptr;
              tuttiEvent_t asked = nullptr;
              ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
              ASSERT_EQ(tuttiEventCreate(&asked), tuttiSuccess);
              ASSERT_EQ(tuttiRecv(data.data(), 1, tuttiInt32, 1, comm, stream), tuttiSuccess);
              ASSERT_EQ(tuttiEventRecord(asked, stream), tuttiSuccess);
              ASSERT_EQ(tuttiSend(data.data(), data.size(), tuttiInt32, 1, comm, stream),
                        tuttiSuccess);
              ASSERT_EQ(tuttiEventSynchronize(asked), tuttiSuccess);
              ::raise(SIGKILL);
            }
            ASSERT_EQ(tuttiSend(data.data(), 1, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
            ASSERT_EQ(tuttiRecv(data.data(), data.size(), tuttiInt32, 0, comm, nullptr),
                      tuttiRemoteError);
            EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid "));
            std::ranges::fill(data, -1);
            abort(comm);
            EXPECT_EQ(std::ranges::count(data, -1), static_cast<std::ptrdiff_t>(data.size()));
          },
          {0});
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

// Rank 3, whose parent in exchanges is rank 2, asks the service of rank 0 for the first time when
// it sends there.
TEST(WireFaults, AReceiverWhoseServiceCannotLetTheSenderInSaysSo) {
  const Meeting joined, poor, told;
  set("TUTTI_WARN_AFTER_S", "1");  // it looks at itself when it warns
  run_tcp(
      {.ranks = 5, .ranks_per_host = 1}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
        EXPECT_TRUE(joined.wait_for(self.ranks));
        if (self.rank == 0) exhaust_descriptors();
        EXPECT_TRUE(poor.wait_for(self.ranks));
        std::int32_t value = 0;
        if (self.rank == 0) {
          EXPECT_EQ(tuttiRecv(&value, 1, tuttiInt32, 3, comm, nullptr), tuttiSystemError);
          EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("no free descriptor for the connections"));
        }
        if (self.rank == 3) {
          EXPECT_NE(tuttiSend(&value, 1, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
          EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 0 (pid "));
        }
        if (self.rank != 0) {
          EXPECT_TRUE(told.wait_for(self.ranks - 1));
        }
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
