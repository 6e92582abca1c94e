// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are processes at hosts of their own (network namespaces), beside a saboteur: a
// process that is no rank, and does to the network what the test wants.
//
//   NetworkJob job({.hosts = 2, .ranks_per_host = 2});
//   if (!job.why_not().empty()) GTEST_SKIP() << job.why_not();
//   job.run(body, [](NetworkJob& job) { job.networks().filter(1, "..."); });
//
// The ranks' logs lie in a folder of the test's, for reading while the job runs.
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "forked_job.hpp"
#include "job.hpp"
#include "meeting.hpp"
#include "tests/control/networks.hpp"

namespace tutti::test {

class NetworkJob {
 public:
  struct Options {
    int hosts = 2;
    int ranks_per_host = 2;
    int op_timeout_ms = 4000;
    bool filters = true;     // nft is needed
    bool sums_first = true;  // else no two ranks are connected yet when the body begins
  };
  using Body = std::function<void(tuttiComm_t& comm, const testing::ForkedRank& self)>;

  explicit NetworkJob(const Options& options) : options_(options), networks_(options.hosts) {
    why_not_ = options.filters ? networks_.why_no_filter() : networks_.why_not();
    folder_ = ::testing::TempDir() + "/tutti-network-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) why_not_ = "no folder for the logs";
  }
  NetworkJob(const NetworkJob&) = delete;
  NetworkJob& operator=(const NetworkJob&) = delete;
  ~NetworkJob() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] int ranks() const { return options_.hosts * options_.ranks_per_host; }
  [[nodiscard]] int host_of(int rank) const { return rank / options_.ranks_per_host; }
  [[nodiscard]] testing::Networks& networks() { return networks_; }

  // `before` runs in the saboteur's process before any rank joins, `sabotage` once every rank has
  // summed, or only joined. Those in `killed` kill themselves.
  void run(const Body& body, const std::function<void(NetworkJob&)>& sabotage,
           const std::vector<int>& killed = {},
           const std::function<void(NetworkJob&)>& before = {}) {
    ::setenv("TUTTI_DEBUG", "info", 1);
    ::setenv("TUTTI_DEBUG_FILE", (folder_ + "/log").c_str(), 1);
    ::setenv("TUTTI_IFNAME", "eth0", 1);
    ::setenv("TUTTI_IB_HCA", "=none", 1);  // TCP also where there is RDMA
    const Meeting ready, summed;
    const auto results = testing::run_forked(
        ranks() + 1,
        [&](const testing::ForkedRank& self) {
          if (self.rank == ranks()) {
            if (before) before(*this);
            ASSERT_TRUE(ready.wait_for(ranks() + 1));
            ASSERT_TRUE(summed.wait_for(ranks() + 1));
            sabotage(*this);
            return;
          }
          ASSERT_TRUE(networks_.enter(host_of(self.rank)));
          ASSERT_TRUE(ready.wait_for(ranks() + 1));
          be_rank({.rank = self.rank, .ranks = ranks(), .message = self.message}, body, summed);
        },
        {.timeout_ms = 90'000, .after_fork = [this] { return make_id(); }});
    testing::expect_all_passed(results, killed);
  }

  [[nodiscard]] std::string log() const {
    std::ifstream file(folder_ + "/log");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until the log holds `text`; false: it does not come.
  [[nodiscard]] bool wait_for_log(const std::string& text) const {
    const Deadline deadline = Deadline::in_ms(60'000);
    while (log().find(text) == std::string::npos && !deadline.passed()) ::sched_yield();
    return log().find(text) != std::string::npos;
  }

 private:
  std::string make_id() {
    EXPECT_TRUE(networks_.enter(0));
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    EXPECT_TRUE(networks_.leave());
    return {id.internal, sizeof id.internal};
  }
  void be_rank(const testing::ForkedRank& self, const Body& body, const Meeting& summed) {
    tuttiComm_t comm = join(self, options_.op_timeout_ms);
    ASSERT_NE(comm, nullptr);
    if (options_.sums_first) {
      ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1, false), "");
      ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 100'000, false), "");
    }
    ASSERT_TRUE(summed.wait_for(ranks() + 1));
    body(comm, self);
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  }

  const Options options_;
  testing::Networks networks_;
  std::string why_not_;
  std::string folder_;
};

}  // namespace tutti::test
