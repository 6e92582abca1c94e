// SPDX-License-Identifier: Apache-2.0
// What crosses a link that is slower than memory: of the hierarchical all-reduce between hosts each
// host sends 2 x (hosts - 1) / hosts x bytes and no more, by our own count and by the kernel's. The
// hosts are network namespaces, the link is shaped by tbf.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "algorithms/algorithm.hpp"
#include "network_job.hpp"
#include "tests/algorithms/counts.hpp"

namespace tutti::test {
namespace {

using testing::ForkedRank;

constexpr int kHosts = 2;
constexpr std::uint64_t kCount = std::uint64_t{1} << 21;  // of int32
constexpr std::uint64_t kBytes = kCount * sizeof(std::int32_t);
constexpr std::uint64_t kCalls = 2;
// A second for all calls. The burst holds a packet as the kernel makes them (64 KiB), the queue all
// that its buffers for TCP hold: nothing is dropped, so nothing is sent twice.
constexpr const char* kShape = "tc qdisc add dev eth0 root tbf rate 200mbit burst 256kb limit 64mb";
// Packets' headers (4.6 % in packets of 1500 bytes), frames and what the control plane says.
constexpr double kMostOff = 0.06;

// What the calling thread's host has sent by eth0; /sys would tell of the namespace it was mounted
// in.
std::uint64_t interface_bytes() {
  std::ifstream list("/proc/thread-self/net/dev");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t received[8], sent = 0;
    words >> name;
    for (std::uint64_t& figure : received) words >> figure;
    if (words >> sent && name == "eth0:") return sent;
  }
  ADD_FAILURE() << "no eth0 here";
  return 0;
}

std::uint64_t payload_bytes(tuttiComm_t comm) {
  tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
  return info.payloadBytesSent;
}

// What the schedule makes a rank send in one call.
struct Sent {
  std::uint64_t near = 0, far = 0;
};
Sent sent_by(const Schedule& schedule, int rank, const NetworkJob& job) {
  Sent sent;
  const std::uint64_t chunk_bytes = kBytes / schedule.shape.chunks;
  for (const auto& [to, span] : counts::sent_by(schedule.ranks[static_cast<std::size_t>(rank)]))
    (job.host_of(to) == job.host_of(rank) ? sent.near : sent.far) += span.count() * chunk_bytes;
  return sent;
}

class NetworkBytes : public ::testing::TestWithParam<const char*> {};

TEST_P(NetworkBytes, OfTheHierarchicalFormAreTheLeastByOurCountAndTheInterfaces) {
  NetworkJob job({.hosts = kHosts, .op_timeout_ms = 60'000, .filters = false});
  if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
  for (int host = 0; host < kHosts; ++host)
    if (!job.networks().run_at(host, kShape))
      GTEST_SKIP() << "the kernel refuses tbf: it needs CONFIG_NET_SCH_TBF";
  const Schedule schedule = *build_schedule(
      *find_algorithm(GetParam()).value(),
      {.collective = Collective::kAllReduce, .ranks = static_cast<Rank>(job.ranks())});
  ASSERT_EQ(kCount % schedule.shape.chunks, 0u);
  std::uint64_t far[kHosts] = {};
  for (int rank = 0; rank < job.ranks(); ++rank)
    far[job.host_of(rank)] += sent_by(schedule, rank, job).far;
  for (const std::uint64_t bytes : far) EXPECT_EQ(bytes, 2 * (kHosts - 1) * kBytes / kHosts);

  const Meeting ready, sent, counted;
  job.run(
      [&](tuttiComm_t& comm, const ForkedRank& self) {
        ASSERT_EQ(tuttiCommSetAlgorithm(comm, GetParam()), tuttiSuccess);
        EXPECT_EQ(check_sum(comm, self.rank, self.ranks, kCount, false), "");  // connects
        ASSERT_TRUE(ready.wait_for(self.ranks));
        const std::uint64_t payload_before = payload_bytes(comm), before = interface_bytes();
        ASSERT_TRUE(counted.wait_for(self.ranks));
        for (std::uint64_t call = 0; call < kCalls; ++call)
          EXPECT_EQ(check_sum(comm, self.rank, self.ranks, kCount, false), "");
        ASSERT_TRUE(sent.wait_for(self.ranks));  // and so received
        const Sent by_rank = sent_by(schedule, self.rank, job);
        EXPECT_EQ(payload_bytes(comm) - payload_before, kCalls * (by_rank.near + by_rank.far));
        const auto by_host = static_cast<double>(kCalls * far[job.host_of(self.rank)]);
        EXPECT_NEAR(static_cast<double>(interface_bytes() - before), by_host, kMostOff * by_host);
      },
      [](NetworkJob&) {});
}

INSTANTIATE_TEST_SUITE_P(Forms, NetworkBytes,
                         ::testing::Values("hierarchical:groups=2x2",
                                           "hierarchical:form=leader:groups=2x2"),
                         [](const auto& form) { return form.index == 0 ? "rails" : "leader"; });

}  // namespace
}  // namespace tutti::test
