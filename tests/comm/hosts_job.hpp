// SPDX-License-Identifier: Apache-2.0
// Jobs of forked ranks on several hosts, all of them this machine: TUTTI_HOST_ID tells them apart.
// What is right and what is said there is the same over every wire.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "calls.hpp"
#include "forked_job.hpp"
#include "job.hpp"
#include "meeting.hpp"
#include "tests/sanitizers.hpp"

namespace tutti::test {

struct Hosts {
  int ranks = 4;
  int ranks_per_host = 2;
  const char* transport = "auto";
  int op_timeout_ms = 60'000;
};

using HostsBody = std::function<void(tuttiComm_t&, const testing::ForkedRank&)>;

inline void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// Each rank sets what its host's way needs by `prepare`, joins, runs `body` and destroys what that
// leaves. Those in `killed` kill themselves.
inline void run_hosts(const Hosts& hosts, const std::function<void(int host)>& prepare,
                      const HostsBody& body, const std::vector<int>& killed = {}) {
  set("TUTTI_IFNAME", "lo");
  set("TUTTI_TRANSPORT", hosts.transport);
  testing::ForkOptions options = with_unique_id();
  options.timeout_ms = 120'000;  // more than any call's
  const auto results = testing::run_forked(
      hosts.ranks,
      [&](const testing::ForkedRank& self) {
        const int host = self.rank / hosts.ranks_per_host;
        set("TUTTI_HOST_ID", "host " + std::to_string(host));
        prepare(host);
        tuttiComm_t comm = join(self, hosts.op_timeout_ms);
        ASSERT_NE(comm, nullptr);
        body(comm, self);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      options);
  testing::expect_all_passed(results, killed);
}

inline tuttiCommInfo_t info_of(tuttiComm_t comm) {
  tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
  return info;
}

// Sums by the ring, each message of a size that is worth lending; what this rank sent by that.
struct Sent {
  std::uint64_t payload_bytes = 0, lent_bytes = 0;
};
inline Sent sum_ring(tuttiComm_t comm, int ranks, std::vector<float>& in, std::vector<float>& out) {
  EXPECT_EQ(tuttiCommSetAlgorithm(comm, "ring@slots"), tuttiSuccess) << tuttiGetLastError(comm);
  const tuttiCommInfo_t before = info_of(comm);
  std::ranges::fill(in, 1.0F);
  EXPECT_EQ(tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat, tuttiSum, comm, nullptr),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  EXPECT_EQ(std::ranges::count(out, static_cast<float>(ranks)),
            static_cast<std::ptrdiff_t>(out.size()));
  const tuttiCommInfo_t after = info_of(comm);
  return {after.payloadBytesSent - before.payloadBytesSent,
          after.lentBytesSent - before.lentBytesSent};
}

inline void check_all_algorithms(tuttiComm_t comm, const testing::ForkedRank& self) {
  for (const Algorithm* algorithm : all_algorithms()) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, std::string(algorithm->name).c_str()), tuttiSuccess)
        << tuttiGetLastError(comm);
    for (const std::size_t count :
         {1u, 2u, 3u, 124u, 1000u, 4099u, kSanitized ? 40'001u : 300'001u})
      ASSERT_EQ(check_sum(comm, self.rank, self.ranks, count, count % 2 == 0), "")
          << algorithm->name << " count " << count;
  }
}

// The other collectives, by every algorithm that has them.
inline void check_all_collectives(tuttiComm_t comm, const testing::ForkedRank& self,
                                  std::initializer_list<std::size_t> counts = {
                                      1, 100, 4099, kSanitized ? 20'003 : 100'003,
                                      kSanitized ? 20'004 : 100'004}) {
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kReduce, Collective::kAllGather,
        Collective::kReduceScatter, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll})
    for (const Algorithm* algorithm : all_algorithms()) {
      if (!algorithm->supports({.collective = collective, .ranks = self.ranks})) continue;
      const std::string plan =
          std::string(name_of(collective)) + ":" + std::string(algorithm->name);
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess) << tuttiGetLastError(comm);
      int root = 0;
      for (const std::size_t count : counts) {
        root = (root + 1) % self.ranks;
        const CallCase one{collective, count, root, count % 2 == 0};
        ASSERT_EQ(check_call(comm, self.rank, self.ranks, one), "") << plan << " count " << count;
      }
    }
}

// A child that lives on, without the pipes by which the test knows its parent's end.
inline pid_t fork_survivor() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(120);  // should the test not come to end it
  struct stat what {};
  for (int fd = 0; fd < 1024; ++fd)
    if (::fstat(fd, &what) == 0 && S_ISFIFO(what.st_mode)) ::close(fd);
  for (;;) ::pause();
}

// Of the process that has become its parent: it lives, and is ended.
inline void end_survivor(pid_t survivor) {
  ASSERT_GT(survivor, 0);
  EXPECT_EQ(::waitpid(survivor, nullptr, WNOHANG), 0) << "the child did not live on";
  ::kill(survivor, SIGKILL);
  EXPECT_EQ(::waitpid(survivor, nullptr, 0), survivor);
}

// A forked child ends its copy of the communicator, which is not its parent's end.
inline void destroy_in_a_child(tuttiComm_t comm) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace tutti::test
