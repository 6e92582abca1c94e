// SPDX-License-Identifier: Apache-2.0
// How many cores the ranks of a host have together, where a launcher binds each to its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <tutti/explain.h>

#include <string>
#include <vector>

#include "base/host.hpp"
#include "forked_job.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

// The first processors that this process may use.
std::vector<int> processors() {
  cpu_set_t mask;
  std::vector<int> found;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return found;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) found.push_back(cpu);
  return found;
}

void bind_to(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
}

// Four ranks, each bound to one of `cpus` and set on one of `hosts`, in turn: all must say "on
// `want` cores" and sum right.
void expect_cores(const std::vector<int>& cpus, const std::string& want, int hosts = 1) {
  const auto results = testing::run_forked(
      4,
      [&](const testing::ForkedRank& self) {
        ::setenv("TUTTI_HOST_ID", std::to_string(self.rank % hosts).c_str(), 1);
        bind_to(cpus[static_cast<std::size_t>(self.rank) % cpus.size()]);
        tuttiComm_t comm = join(self);
        const char* text = nullptr;
        ASSERT_EQ(tuttiExplain(comm, "all_reduce", 1000, tuttiFloat, 0, &text), tuttiSuccess);
        EXPECT_THAT(std::string(text), HasSubstr("among 4 ranks on " + want + " cores"))
            << "rank " << self.rank;
        std::vector<float> data(1000, 1);
        ASSERT_EQ(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum, comm,
                                 nullptr),
                  tuttiSuccess);
        EXPECT_EQ(data.front(), 4);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id());
  testing::expect_all_passed(results, {});
}

TEST(Cores, OfRanksThatAreBoundAreAddedUp) {
  const std::vector<int> all = processors();
  if (all.size() < 2 || machine_cpus() < 2) GTEST_SKIP() << "one processor";
  expect_cores({all[0], all[1]}, "2");
}

TEST(Cores, SharedByAllAreCountedOnce) {
  const std::vector<int> all = processors();
  ASSERT_FALSE(all.empty());
  expect_cores({all[0]}, "1");
}

TEST(Cores, OfHostsOnOneMachineAreCountedOnce) {
  const std::vector<int> all = processors();
  ASSERT_FALSE(all.empty());
  expect_cores({all[0]}, "1", 2);
}

}  // namespace
}  // namespace tutti::test
