// SPDX-License-Identifier: Apache-2.0
// Jobs on one host and on several that lose ranks, whole hosts too, at any moment, with parts of
// the communicator in use or without: every survivor works again, and all in one communicator.
// Hosts are network namespaces.
//
// RECOVERY_ROUNDS sets how many random disasters there are (default 4), RECOVERY_SEED which;
// RECOVERY_TIMES prints the time from the first kill to the last survivor's first right result.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "recovery_job.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

// Made once: 3 hosts.
testing::Networks& networks() {
  static testing::Networks hosts(3);
  return hosts;
}

void expect_recovery(const Disaster& disaster) {
  SCOPED_TRACE(disaster.text());
  if (!networks().why_not().empty()) GTEST_SKIP() << networks().why_not();
  RecoveryJob job(disaster, networks());
  job.run();
  if (std::getenv("RECOVERY_TIMES") != nullptr)
    fmt::print("{}: {:.1f} ms\n", disaster.text(), static_cast<double>(job.recovered_ns()) / 1e6);
}

TEST(Recovery, OnOneHostWithEightRanks) {
  expect_recovery({.ranks_per_host = 8, .hosts = 1, .victims = {5}});
}

// The poison names one of them; nobody is left on that host who could tell of the other.
TEST(Recovery, OfAHostThatIsLost) {
  expect_recovery({.victims = {2, 3}, .busy = Busy::kWaiting});
  expect_recovery({.hosts = 3, .victims = {0, 1}});
}

TEST(Recovery, OfOneRankOfEachHost) {
  expect_recovery({.victims = {1, 3}});
  expect_recovery({.hosts = 3, .victims = {0, 3, 4}, .busy = Busy::kWaiting});
}

TEST(Recovery, WherePartsAreInUse) {
  expect_recovery({.victims = {3}, .parts = true});
  expect_recovery({.victims = {2, 3}, .parts = true, .leaves_old = true});
}

// Nobody calls: each hears of it all the same.
TEST(Recovery, OfRanksThatDieWhileNobodyCalls) {
  expect_recovery({.victims = {3}, .busy = Busy::kIdle});
  expect_recovery({.hosts = 3, .victims = {4, 5}, .busy = Busy::kIdle});
}

Disaster random_disaster(std::mt19937& random) {
  Disaster disaster{.hosts = 2 + static_cast<int>(random() % 2)};
  std::vector<int> ranks(static_cast<std::size_t>(disaster.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::shuffle(ranks, random);
  if (random() % 3 == 0) {
    const int first = 2 * static_cast<int>(random() % static_cast<unsigned>(disaster.hosts));
    disaster.victims = {first, first + 1};
  } else {
    ranks.resize(1 + random() % 2);
    disaster.victims = ranks;
  }
  disaster.busy = static_cast<Busy>(random() % 3);
  disaster.parts = random() % 2 == 0;
  disaster.leaves_old = random() % 2 == 0;
  // Some at once, some in the middle of the shrink after the first.
  for (const int victim : disaster.victims) {
    static_cast<void>(victim);
    disaster.delays_ns.push_back(static_cast<std::int64_t>(random() % 2 * (random() % 20'000'000)));
  }
  return disaster;
}

TEST(Recovery, OfRandomDisasters) {
  if (!networks().why_not().empty()) GTEST_SKIP() << networks().why_not();
  const char* const rounds = std::getenv("RECOVERY_ROUNDS");
  const unsigned seed = draw_seed("RECOVERY_SEED");
  std::mt19937 random(seed);
  std::vector<double> times_ms;
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : 4); ++round) {
    const Disaster disaster = random_disaster(random);
    SCOPED_TRACE(fmt::format("RECOVERY_SEED={} round {}: {}", seed, round, disaster.text()));
    RecoveryJob job(disaster, networks());
    job.run();
    times_ms.push_back(static_cast<double>(job.recovered_ns()) / 1e6);
    if (HasFailure()) return;
  }
  std::ranges::sort(times_ms);
  if (std::getenv("RECOVERY_TIMES") != nullptr && !times_ms.empty())
    fmt::print("{} disasters: median {:.1f} ms, longest {:.1f} ms\n", times_ms.size(),
               times_ms[times_ms.size() / 2], times_ms.back());
}

}  // namespace
}  // namespace tutti::test
