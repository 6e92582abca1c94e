// SPDX-License-Identifier: Apache-2.0
// A job of forked ranks that meet by a unique id, through the public API: what the tests of deaths
// and of direct plans begin with.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "fork_harness.hpp"
#include "meeting.hpp"

namespace tutti::test {

// The id is made in the parent after all children exist.
inline testing::ForkOptions with_unique_id() {
  testing::ForkOptions options;
  options.after_fork = [] {
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    return std::string(id.internal, sizeof id.internal);
  };
  return options;
}

inline tuttiUniqueId id_of(const testing::ForkedRank& self) {
  tuttiUniqueId id{};
  EXPECT_EQ(self.message.size(), sizeof id.internal);
  std::memcpy(id.internal, self.message.data(), std::min(self.message.size(), sizeof id.internal));
  return id;
}

inline tuttiComm_t join(const testing::ForkedRank& self,
                        int op_timeout_ms = TUTTI_CONFIG_UNDEF_INT) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.opTimeoutMs = op_timeout_ms;
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, self.ranks, id_of(self), self.rank, &config),
            tuttiSuccess)
      << tuttiGetLastError(nullptr);
  return comm;
}

// From now on this process opens nothing: no number below the limit is free, or becomes free. (The
// limit bounds poll(2), too.)
inline void exhaust_descriptors() {
  const UniqueFd lowest_free(::eventfd(0, EFD_CLOEXEC));
  ASSERT_GT(lowest_free.get(), STDERR_FILENO);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = STDERR_FILENO + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// Ranks 2 * process and 2 * process + 1 of the job, joined by this process's one thread.
inline std::array<tuttiComm_t, 2> join_two(const testing::ForkedRank& self) {
  std::array<tuttiComm_t, 2> comms{};
  EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(tuttiCommInitRank(&comms[static_cast<std::size_t>(i)], 2 * self.ranks, id_of(self),
                                2 * self.rank + i),
              tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  return comms;
}

// A job of processes: each joins, and once all have, runs `body` and destroys what that leaves.
// Those in `killed` kill themselves.
inline void run_processes(int ranks,
                          const std::function<void(tuttiComm_t&, const testing::ForkedRank&)>& body,
                          const std::vector<int>& killed = {}) {
  const Meeting joined;
  const auto results = testing::run_forked(
      ranks,
      [&](const testing::ForkedRank& self) {
        tuttiComm_t comm = join(self);
        ASSERT_TRUE(joined.wait_for(ranks));
        body(comm, self);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results, killed);
}

}  // namespace tutti::test
