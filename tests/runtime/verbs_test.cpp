// Jobs whose messages travel by RDMA: between hosts, that TUTTI_HOST_ID tells apart, each with an
// RDMA device of its own where there are two. What is right there, and what is said of a rank that
// does not do its part. Needs a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "forked_job.hpp"
#include "job.hpp"
#include "meeting.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::size_t kSizes[] = {1, 2, 3, 124, 1000, 4099, 300'001};

std::vector<VerbsPort> active_ports() {
  auto ports = verbs_ports({});
  if (!ports) return {};
  std::erase_if(*ports, [](const VerbsPort& port) { return !port.active; });
  return *ports;
}

struct Hosts {
  int ranks = 4;
  int ranks_per_host = 2;
  const char* transport = "auto";
  int op_timeout_ms = 60'000;
};

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

class VerbsJob : public ::testing::Test {
 protected:
  void SetUp() override {
    ports_ = active_ports();
    if (ports_.empty()) GTEST_SKIP() << "no active RDMA port";
  }

  // Joins a job of several hosts, runs `body`, destroys what it leaves. Those in `killed` kill
  // themselves.
  void run_hosts(const Hosts& hosts,
                 const std::function<void(tuttiComm_t&, const testing::ForkedRank&)>& body,
                 const std::vector<int>& killed = {}) {
    set("TUTTI_IFNAME", "lo");
    set("TUTTI_TRANSPORT", hosts.transport);
    set("TUTTI_IB_TIMEOUT", "14");
    testing::ForkOptions options = with_unique_id();
    options.timeout_ms = 120'000;  // time is emulated where the tests run
    const auto results = testing::run_forked(
        hosts.ranks,
        [&](const testing::ForkedRank& self) {
          const int host = self.rank / hosts.ranks_per_host;
          const VerbsPort& port = ports_[static_cast<std::size_t>(host) % ports_.size()];
          set("TUTTI_HOST_ID", "host " + std::to_string(host));
          set("TUTTI_IB_HCA", "=" + port.device + ":" + std::to_string(port.port));
          tuttiComm_t comm = join(self, hosts.op_timeout_ms);
          ASSERT_NE(comm, nullptr);
          body(comm, self);
          EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
        },
        options);
    testing::expect_all_passed(results, killed);
  }

  std::vector<VerbsPort> ports_;
};

tuttiCommInfo_t info_of(tuttiComm_t comm) {
  tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
  return info;
}

void check_all_algorithms(tuttiComm_t comm, const testing::ForkedRank& self) {
  for (const Algorithm* algorithm : all_algorithms()) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, std::string(algorithm->name).c_str()), tuttiSuccess)
        << tuttiGetLastError(comm);
    for (const std::size_t count : kSizes)
      ASSERT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "")
          << algorithm->name << " count " << count;
  }
}

// Sums until a call fails; what it said.
std::string sum_until_told(tuttiComm_t comm, const testing::ForkedRank& self) {
  std::string told;
  while (told.empty()) told = check_sum(comm, self.rank, self.ranks, 100'000, false);
  return told;
}

void abort(tuttiComm_t& comm) {
  EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  comm = nullptr;
}

class VerbsRanks : public VerbsJob, public ::testing::WithParamInterface<int> {};

TEST_P(VerbsRanks, EveryAlgorithmIsRightWhereVerbsIsForced) {
  run_hosts({.ranks = GetParam(), .ranks_per_host = 1, .transport = "verbs"},
            [](tuttiComm_t& comm, const testing::ForkedRank& self) {
              EXPECT_STREQ(info_of(comm).transport, "verbs");
              check_all_algorithms(comm, self);
            });
}

TEST_P(VerbsRanks, EveryAlgorithmIsRightBetweenHosts) {
  run_hosts({.ranks = GetParam()}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    EXPECT_STREQ(info_of(comm).transport, self.ranks > 2 ? "shm+verbs" : "shm");
    check_all_algorithms(comm, self);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, VerbsRanks, ::testing::Values(2, 3, 4));

TEST_F(VerbsJob, AKilledRankOfAnotherHostIsNamed) {
  const Meeting summed;
  run_hosts({},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
              ASSERT_TRUE(summed.wait_for(self.ranks));
              if (self.rank == 3) ::raise(SIGKILL);
              EXPECT_THAT(sum_until_told(comm, self),
                          AllOf(HasSubstr("rank 3 (pid "), HasSubstr("died")));
              abort(comm);
            },
            {3});
}

TEST_F(VerbsJob, WhoDoesNotComeIsNamedAtTheTimeout) {
  run_hosts({.op_timeout_ms = 8000}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
    if (self.rank != 3) {
      EXPECT_THAT(check_sum(comm, self.rank, self.ranks, 1000, false), HasSubstr("rank 3 (pid "));
    } else {
      tuttiResult_t state = tuttiSuccess;  // the others' word comes with their question
      while (state == tuttiSuccess) ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
    }
    abort(comm);
  });
}

TEST_F(VerbsJob, WhoLeavesInOrderIsNotTakenForDead) {
  run_hosts({}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    if (self.rank == 3) return;
    const std::string told = check_sum(comm, self.rank, self.ranks, 100'000, false);
    EXPECT_THAT(told, AllOf(HasSubstr("rank 3 (pid "), HasSubstr("left")));
    abort(comm);
  });
}

// A peer that is stopped: its adapter answers all the same.
TEST_F(VerbsJob, AStoppedRankOfAnotherHostIsNamedAtTheTimeout) {
  constexpr int kVictim = 3;
  const SharedWord victims_pid;
  const Meeting told_all;
  run_hosts({.op_timeout_ms = 8000}, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
    if (self.rank == kVictim) {
      *victims_pid = ::getpid();
      ::raise(SIGSTOP);
      sum_until_told(comm, self);
      return abort(comm);
    }
    EXPECT_THAT(sum_until_told(comm, self),
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
  // Does netem's own count show what it has done?
  [[nodiscard]] bool spoiled(const std::string& seen) const {
    return std::ranges::all_of(interfaces_, [&](const std::string& interface) {
      return run("tc -s qdisc show dev " + interface + " | grep -q '" + seen + "'");
    });
  }
  [[nodiscard]] static bool run(const std::string& line) { return std::system(line.c_str()) == 0; }

  std::vector<std::string> interfaces_;
};

struct Bad {
  const char* name;
  const char* netem;
  const char* seen;
};

class VerbsNetem : public SpoiledNetwork, public ::testing::WithParamInterface<Bad> {};

TEST_P(VerbsNetem, AllReducesAreRight) {
  spoil(GetParam().netem);
  run_hosts({}, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    for (const char* algorithm : {"auto", "ring", "tree", "two_shot"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, algorithm), tuttiSuccess) << tuttiGetLastError(comm);
      for (const std::size_t count : {1u, 1000u, 100'001u})
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "")
            << algorithm << " count " << count;
    }
  });
  EXPECT_TRUE(spoiled(GetParam().seen)) << "netem did nothing";
}

INSTANTIATE_TEST_SUITE_P(Networks, VerbsNetem,
                         ::testing::Values(Bad{"Loss", "loss 5%", "dropped [1-9]"},
                                           Bad{"Delay", "delay 5ms", "Sent [1-9]"}),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

TEST_F(SpoiledNetwork, ALinkThatGoesDownUnderCallsEndsThemWithThePeerNamed) {
  spoil("delay 2ms");  // so that messages are under way
  const Meeting summed;
  run_hosts({.ranks = 2, .ranks_per_host = 1, .transport = "verbs"},
            [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
              ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
              ASSERT_TRUE(summed.wait_for(self.ranks));
              if (self.rank == 0) {
                ASSERT_TRUE(run("ip link set " + interfaces_.back() + " down"));
              }
              // Who hears of it second may find the first gone.
              EXPECT_THAT(sum_until_told(comm, self),
                          AllOf(HasSubstr("rank " + std::to_string(1 - self.rank) + " (pid "),
                                AnyOf(HasSubstr("lost its connection"), HasSubstr("died"))));
              abort(comm);
            });
}

}  // namespace
}  // namespace tutti::test
