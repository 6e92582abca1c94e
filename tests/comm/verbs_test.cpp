// SPDX-License-Identifier: Apache-2.0
// Jobs whose messages travel by RDMA: between hosts, that TUTTI_HOST_ID tells apart, each with an
// RDMA device of its own where there are two. What is right there, and what is said of a rank that
// does not do its part. Needs a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "hosts_job.hpp"
#include "mixed_calls.hpp"
#include "tests/seed.hpp"
#include "tests/transports/verbs/ports.hpp"
#include "transfer_rounds.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class VerbsJob : public ::testing::Test {
 protected:
  void SetUp() override {
    ports_ = usable_ports();
    if (ports_.empty()) GTEST_SKIP() << "no active RDMA port";
  }

  // Each host takes one of the ports, in turn.
  void run_verbs(const Hosts& hosts, const HostsBody& body, const std::vector<int>& killed = {}) {
    set("TUTTI_IB_TIMEOUT", "14");
    run_hosts(
        hosts,
        [&](int host) {
          const VerbsPort& port = ports_[static_cast<std::size_t>(host) % ports_.size()];
          set("TUTTI_IB_HCA", "=" + port.device + ":" + std::to_string(port.port));
        },
        body, killed);
  }

  std::vector<VerbsPort> ports_;
};

class VerbsRanks : public VerbsJob, public ::testing::WithParamInterface<int> {};

TEST_P(VerbsRanks, EveryAlgorithmIsRightWhereVerbsIsForced) {
  run_verbs({.ranks = GetParam(), .ranks_per_host = 1, .transport = "verbs"},
            [](tuttiComm_t& comm, const testing::ForkedRank& self) {
              EXPECT_STREQ(info_of(comm).transport, "verbs");
              check_all_algorithms(comm, self);
            });
}

TEST_P(VerbsRanks, EveryAlgorithmIsRightBetweenHosts) {
  run_verbs({.ranks = GetParam()}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    EXPECT_STREQ(info_of(comm).transport, self.ranks > 2 ? "shm+verbs" : "shm");
    check_all_algorithms(comm, self);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, VerbsRanks, ::testing::Values(2, 3, 4));

TEST_F(VerbsJob, SendsAndReceivesOfAnyPattern) {
  const unsigned seed = draw_seed();
  run_verbs({.ranks = 4, .ranks_per_host = 2}, [&](tuttiComm_t& comm, const auto& self) {
    check_rounds(comm, self.rank, self.ranks,
                 {.seed = seed, .rounds = 4, .most_bytes = 300'000, .most_per_pair = 2});
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
  });
}

// Few counts: every call takes its time in an emulated machine.
TEST_F(VerbsJob, EveryCollectiveIsRight) {
  run_verbs({.ranks = 3, .ranks_per_host = 1, .transport = "verbs"},
            [](tuttiComm_t& comm, const testing::ForkedRank& self) {
              check_all_collectives(comm, self, {100, 20'000});
            });
}

// The adapter reads what is registered where it lies, and as long as it is registered.
TEST_F(VerbsJob, SmallCallsThatRepeatAreRight) {
  const unsigned seed = draw_seed();
  run_verbs({.ranks = 2, .ranks_per_host = 1},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              make_mixed_calls(comm, self.rank, self.ranks, seed, 400);
            });
}

TEST_F(VerbsJob, RegisteredMemoryIsSentWithoutACopy) {
  run_verbs({.ranks = 2, .ranks_per_host = 1}, [](tuttiComm_t& comm, const testing::ForkedRank&) {
    std::vector<float> in(1 << 18), out(1 << 18);
    EXPECT_EQ(sum_ring(comm, 2, in, out).lent_bytes, 0U);
    void* handles[2] = {};
    ASSERT_EQ(tuttiCommRegister(comm, in.data(), in.size() * sizeof(float), &handles[0]),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    const Sent half = sum_ring(comm, 2, in, out);
    EXPECT_GT(half.lent_bytes, 0U);
    EXPECT_LT(half.lent_bytes, half.payload_bytes) << "the output was not registered";
    ASSERT_EQ(tuttiCommRegister(comm, out.data(), out.size() * sizeof(float), &handles[1]),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    const Sent sent = sum_ring(comm, 2, in, out);
    EXPECT_EQ(sent.payload_bytes, in.size() * sizeof(float));
    EXPECT_EQ(sent.lent_bytes, sent.payload_bytes);
    for (void* const handle : handles) EXPECT_EQ(tuttiCommDeregister(comm, handle), tuttiSuccess);
    EXPECT_EQ(sum_ring(comm, 2, in, out).lent_bytes, 0U);
  });
}

TEST_F(VerbsJob, AKilledRankOfAnotherHostIsNamed) {
  const Meeting summed, ended;
  run_verbs({},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
              ASSERT_TRUE(summed.wait_for(self.ranks));
              if (self.rank == 3) ::raise(SIGKILL);
              EXPECT_THAT(sum_until_told(comm, self.rank, self.ranks),
                          AllOf(HasSubstr("rank 3 (pid "), HasSubstr("died")));
              EXPECT_TRUE(ended.wait_for(self.ranks - 1));
              abort(comm);
            },
            {3});
}

// Whoever keeps the device open, or what is mapped of it, would keep a dead rank's adapter
// answering.
TEST_F(VerbsJob, AKilledRankIsNamedThoughAChildOfItLivesOn) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const SharedWord survivor;
  const Meeting summed;
  run_verbs({.ranks = 2, .ranks_per_host = 1},  // nobody of its host tells of its death
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_STREQ(info_of(comm).transport, "shm+verbs");
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
              if (self.rank == 1) *survivor = fork_survivor();
              ASSERT_TRUE(summed.wait_for(self.ranks));
              if (self.rank == 1) ::raise(SIGKILL);
              const std::string told = sum_until_told(comm, self.rank, self.ranks);
              EXPECT_THAT(told, HasSubstr("rank 1 (pid "));
              EXPECT_THAT(told, Not(HasSubstr("operation timeout")));
              abort(comm);
            },
            {1});
  end_survivor(static_cast<pid_t>(*survivor));
}

// Its descriptors are the parent's own: what it destroyed would be gone for both.
TEST_F(VerbsJob, AChildThatDestroysTheInheritedCommunicatorDoesNoHarm) {
  run_verbs({.ranks = 2, .ranks_per_host = 1},
            [](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
              if (self.rank == 0) destroy_in_a_child(comm);
              EXPECT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
            });
}

TEST_F(VerbsJob, WhoDoesNotComeIsNamedAtTheTimeout) {
  const Meeting ended;
  run_verbs({.op_timeout_ms = 8000}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
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

// At the default level of the log.
TEST_F(VerbsJob, APortThatIsOfNoUseForWantOfOneElsewhereIsToldOnce) {
  set("TUTTI_DEBUG_FILE", ::testing::TempDir() + "/verbs-log-" + std::to_string(::getpid()));
  const std::string path = std::getenv("TUTTI_DEBUG_FILE");
  run_hosts(
      {}, [](int host) { set("TUTTI_IB_HCA", host == 0 ? "" : "=none"); },
      [](tuttiComm_t& comm, const testing::ForkedRank&) {
        EXPECT_STREQ(info_of(comm).transport, "shm+tcp");
      });
  std::ifstream file(path);
  const std::string log{std::istreambuf_iterator<char>(file), {}};
  std::remove(path.c_str());
  const std::size_t told = log.find(":0 warn verbs is not used: rank 2 (pid ");
  EXPECT_NE(told, std::string::npos) << log;
  EXPECT_EQ(log.find("verbs is not used: ", told + 20), std::string::npos) << log;
}

TEST_F(VerbsJob, WhoLeavesInOrderIsNotTakenForDead) {
  const Meeting told_all;
  run_verbs({}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    if (self.rank == 3) return;
    const std::string told = check_sum(comm, self.rank, self.ranks, 100'000, false);
    EXPECT_THAT(told, AllOf(HasSubstr("rank 3 (pid "), HasSubstr("left")));
    EXPECT_TRUE(told_all.wait_for(self.ranks - 1));
    abort(comm);
  });
}

// A peer that is stopped: its adapter answers all the same.
TEST_F(VerbsJob, AStoppedRankOfAnotherHostIsNamedAtTheTimeout) {
  constexpr int kVictim = 3;
  const SharedWord victims_pid;
  const Meeting told_all;
  run_verbs({.op_timeout_ms = 8000}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
    if (self.rank == kVictim) {
      *victims_pid = ::getpid();
      ::raise(SIGSTOP);
      sum_until_told(comm, self.rank, self.ranks);
      return abort(comm);
    }
    EXPECT_THAT(sum_until_told(comm, self.rank, self.ranks),
                AllOf(HasSubstr("rank 3 (pid "), HasSubstr("operation timeout")));
    EXPECT_TRUE(told_all.wait_for(kVictim));
    if (self.rank == 0) {
      EXPECT_EQ(::kill(*victims_pid, SIGCONT), 0);
    }
    abort(comm);
  });
}

// Network interfaces that SPOILABLE names are spoiled, as the ranks' messages leave by them.
class SpoiledNetwork : public VerbsJob {
 protected:
  void SetUp() override {
    VerbsJob::SetUp();
    const char* const named = std::getenv("SPOILABLE");
    if (named == nullptr) GTEST_SKIP() << "SPOILABLE names no network interface";
    std::istringstream words(named);
    for (std::string interface; words >> interface;) interfaces_.push_back(interface);
  }
  void TearDown() override {
    for (const std::string& interface : interfaces_) {
      EXPECT_TRUE(run("ip link set " + interface + " up"));
      static_cast<void>(run("tc qdisc del dev " + interface + " root 2>/dev/null"));
    }
  }
  // netem as tc writes it, for what every interface sends.
  void spoil(const std::string& netem) const {
    for (const std::string& interface : interfaces_)
      ASSERT_TRUE(run("tc qdisc add dev " + interface + " root netem " + netem));
  }
  // Does what tc says of it match, its parameters as its counts?
  [[nodiscard]] bool spoiled(const std::string& seen) const {
    return std::ranges::all_of(interfaces_, [&](const std::string& interface) {
      return run("tc -s qdisc show dev " + interface + " | tr '\\n' ' ' | grep -qE '" + seen + "'");
    });
  }
  [[nodiscard]] static bool run(const std::string& line) { return std::system(line.c_str()) == 0; }

  std::vector<std::string> interfaces_;
};

struct Bad {
  const char* name;
  const char* netem;
  const char* seen;  // in what tc says, once it has acted
  int delay_ms = 0;  // at least, of every packet
};

class VerbsNetem : public SpoiledNetwork, public ::testing::WithParamInterface<Bad> {};

TEST_P(VerbsNetem, AllReducesAreRight) {
  spoil(GetParam().netem);
  run_verbs({}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_STREQ(info_of(comm).transport, "shm+verbs");
    for (const char* algorithm : {"auto", "ring", "tree", "two_shot"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, algorithm), tuttiSuccess) << tuttiGetLastError(comm);
      for (const std::size_t count : {1u, 1000u, 100'001u})
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "")
            << algorithm << " count " << count;
    }
    expect_calls_to_wait(comm, self.rank, self.ranks, GetParam().delay_ms);
  });
  EXPECT_TRUE(spoiled(GetParam().seen)) << "netem did nothing";
}

INSTANTIATE_TEST_SUITE_P(Networks, VerbsNetem,
                         ::testing::Values(Bad{"Loss", "loss 5%", "loss 5%.*dropped [1-9]"},
                                           Bad{"Delay", "delay 5ms", "delay 5ms.*Sent [1-9]", 5}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

// A message and its acknowledgement each way: 4.0 packets a call, where each write of credits alone
// would add two. With two slots a credit is due after every message.
TEST_F(SpoiledNetwork, CreditsTravelWithTheNextCallsMessage) {
  const auto packets = [this] {
    std::uint64_t sum = 0;
    for (const char* const way : {"tx", "rx"}) {
      std::ifstream file("/sys/class/net/" + interfaces_.front() + "/statistics/" + way +
                         "_packets");
      std::uint64_t count = 0;
      EXPECT_TRUE(file >> count);
      sum += count;
    }
    return sum;
  };
  run_verbs({.ranks = 2, .ranks_per_host = 1, .transport = "verbs"},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              constexpr std::uint64_t kCalls = 200;
              ASSERT_EQ(tuttiCommSetAlgorithm(comm, "butterfly@slots:slots=2"), tuttiSuccess)
                  << tuttiGetLastError(comm);
              std::uint64_t before = 0;
              for (std::uint64_t call = 0; call < 20 + kCalls; ++call) {
                if (call == 20) before = packets();
                ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1, false), "");
              }
              EXPECT_LT(packets() - before, 5 * kCalls);
            });
}

TEST_F(SpoiledNetwork, ALinkThatGoesDownUnderCallsEndsThemWithThePeerNamed) {
  spoil("delay 2ms");  // so that messages are under way
  const Meeting summed, ended;
  const SharedWord knew;
  run_verbs({.ranks = 2, .ranks_per_host = 1, .transport = "verbs"},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
              ASSERT_TRUE(summed.wait_for(self.ranks));
              if (self.rank == 0) {
                ASSERT_TRUE(run("ip link set " + interfaces_.back() + " down"));
              }
              const auto is_cause = HasSubstr(": the RDMA connection to rank ");
              const std::string told = sum_until_told(comm, self.rank, self.ranks);
              EXPECT_THAT(told, AllOf(HasSubstr("rank " + std::to_string(1 - self.rank) + " (pid "),
                                      HasSubstr("lost its connection"),
                                      AnyOf(is_cause, HasSubstr("; see its log"))));
              if (::testing::Matches(is_cause)(told)) ++*knew;
              EXPECT_TRUE(ended.wait_for(self.ranks));
              EXPECT_GE(*knew, 1);
              abort(comm);
            });
}

}  // namespace
}  // namespace tutti::test
