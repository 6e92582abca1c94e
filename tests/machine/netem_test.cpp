// SPDX-License-Identifier: Apache-2.0
// TCP between hosts over bad networks: packets lost, late, and a cable that is pulled while they
// are under way. Hosts are network namespaces, the bad network is the kernel's netem at both ends
// (which few hosts' kernels have: run inside rdma_machine). Bounds are generous, since time there
// is emulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "tests/comm/forked_job.hpp"
#include "tests/comm/job.hpp"
#include "tests/control/networks.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using testing::Networks;

constexpr int kHosts = 2;
constexpr int kRanks = 4;
constexpr int kBoundMs = 300'000;

// `netem` as tc writes it, for what each host sends.
bool spoil(const Networks& networks, const std::string& netem) {
  for (int host = 0; host < kHosts; ++host)
    if (!networks.run_at(host, "tc qdisc add dev eth0 root netem " + netem)) return false;
  return true;
}

// Runs a job of two ranks at each of two hosts.
void run_between(const Networks& networks, int op_timeout_ms,
                 const std::function<void(tuttiComm_t&, const testing::ForkedRank&)>& body) {
  ::setenv("TUTTI_IFNAME", "eth0", 1);
  ::setenv("TUTTI_IB_HCA", "=none", 1);  // TCP also where there is RDMA
  testing::ForkOptions options;
  options.timeout_ms = kBoundMs;
  options.after_fork = [&] {
    EXPECT_TRUE(networks.enter(0));
    const std::string id = with_unique_id().after_fork();
    EXPECT_TRUE(networks.leave());
    return id;
  };
  const auto results = testing::run_forked(
      kRanks,
      [&](const testing::ForkedRank& self) {
        ASSERT_TRUE(networks.enter(self.rank % kHosts));
        tuttiComm_t comm = join(self, op_timeout_ms);
        ASSERT_NE(comm, nullptr);
        body(comm, self);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      options);
  testing::expect_all_passed(results);
}

struct Bad {
  const char* name;
  const char* netem;
  const char* seen;  // in what tc says of it, parameters and counts, once it has acted
  int delay_ms = 0;  // at least, of every packet
};

class Netem : public ::testing::TestWithParam<Bad> {};

TEST_P(Netem, AllReducesAreRight) {
  const Networks networks(kHosts);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  if (!spoil(networks, GetParam().netem)) GTEST_SKIP() << "no netem in this kernel";
  run_between(networks, kBoundMs, [](tuttiComm_t& comm, const testing::ForkedRank& self) {
    for (const char* algorithm : {"auto", "ring", "tree", "two_shot", "pat", "hierarchical"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, algorithm), tuttiSuccess) << tuttiGetLastError(comm);
      for (const std::size_t count : {1u, 1000u, 300'001u})
        ASSERT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "")
            << algorithm << " count " << count;
    }
    expect_calls_to_wait(comm, self.rank, self.ranks, GetParam().delay_ms);
  });
  for (int host = 0; host < kHosts; ++host)
    EXPECT_TRUE(
        networks.run_at(host, std::string("tc -s qdisc show dev eth0 | tr '\\n' ' ' | grep -qE '") +
                                  GetParam().seen + "'"))
        << "netem did nothing at host " << host;
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Netem,
    ::testing::Values(Bad{"Loss", "loss 5%", "loss 5%.*dropped [1-9]"},
                      Bad{"Delay", "delay 5ms", "delay 5ms.*Sent [1-9]", 5},
                      Bad{"Disorder", "delay 2ms reorder 25% 50% duplicate 10%",
                          "delay 2ms.*duplicate 10%.*reorder 25% 50%.*Sent [1-9]"}),
    [](const auto& chosen) { return std::string(chosen.param.name); });

TEST(NetemFaults, ACableThatIsPulledWithBytesUnderWayEndsAtTheTimeoutAndNamesTheOtherHost) {
  Networks networks(kHosts);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  if (!spoil(networks, "delay 20ms loss 1%")) GTEST_SKIP() << "no netem in this kernel";
  run_between(networks, 5000, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "ring"), tuttiSuccess) << tuttiGetLastError(comm);
    std::string told;
    for (int call = 0; told.empty(); ++call) {
      if (call == 3 && self.rank == 0) networks.cut(1);
      told = check_sum(comm, self.rank, self.ranks, 100'000, false);
    }
    // Neighbours in the ring are on the other host.
    const int other = (self.rank + 1) % kHosts;
    EXPECT_TRUE(told.find("rank " + std::to_string(other) + " (pid ") != std::string::npos ||
                told.find("rank " + std::to_string(other + kHosts) + " (pid ") != std::string::npos)
        << told;
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    comm = nullptr;
  });
}

}  // namespace
}  // namespace tutti::test
