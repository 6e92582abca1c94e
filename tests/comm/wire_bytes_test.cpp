// SPDX-License-Identifier: Apache-2.0
// Bytes on the wire: what the transport counted of an all-reduce is what the page of its algorithm
// says, rank by rank, and, for counts that no formula divides, what its schedule adds up to.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/fold.hpp"
#include "job.hpp"
#include "schedule/cut.hpp"
#include "tests/algorithms/counts.hpp"

namespace tutti::test {
namespace {

constexpr std::uint64_t kBytes = sizeof(std::int32_t);
constexpr std::uint64_t kGrain = kCacheLineBytes / kBytes;  // elements of a cache line

struct Traffic {
  std::uint64_t messages = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};

// Bytes that a rank sends, of n. `n` is a multiple of every denominator below.
using Formula = std::function<std::uint64_t(std::uint64_t p, Rank rank, std::uint64_t n)>;

std::uint64_t least(std::uint64_t p, Rank /*rank*/, std::uint64_t n) { return 2 * (p - 1) * n / p; }

std::uint64_t butterfly(std::uint64_t p, Rank rank, std::uint64_t n) {
  const Fold fold{static_cast<Rank>(p)};
  if (fold.sits_out(rank)) return n;
  return (static_cast<std::uint64_t>(fold.rounds()) + (fold.is_paired(rank) ? 1 : 0)) * n;
}

std::uint64_t rabenseifner(std::uint64_t p, Rank rank, std::uint64_t n) {
  const Fold fold{static_cast<Rank>(p)};
  if (fold.sits_out(rank)) return n;
  const auto q = static_cast<std::uint64_t>(fold.size());
  return 2 * (q - 1) * n / q + (fold.is_paired(rank) ? n : 0);
}

// Half of the data in each tree: to the children and, but for the root, to the parent. Positions
// and their children as the page of the tree numbers them.
std::uint64_t tree(std::uint64_t p, Rank rank, std::uint64_t n) {
  const auto sent = [&](std::uint64_t position) {
    const std::uint64_t children = position % 2 == 1 ? 0 : position < p ? 2 : 1;
    return children + (position == std::bit_floor(p) ? 0 : 1);
  };
  const auto r = static_cast<std::uint64_t>(rank);
  return (sent(r + 1) + sent(p % 2 == 0 ? p - r : (r + 1) % p + 1)) * n / 2;
}

// Rails through two_shot inside and circulant between groups of s = ceil(sqrt p) ranks, or of the
// next larger divisor under 2s, the last one smaller. Of the R = s rails a rank serves w: it sends
// the R - w others' parts of the group's sum and spreads its own to the group's others.
std::uint64_t rails(std::uint64_t p, Rank rank, std::uint64_t n) {
  const auto root = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(p))));
  std::uint64_t s = root;
  while (s < 2 * root && p % s != 0) ++s;
  if (p % s != 0) s = root;
  const std::uint64_t group = static_cast<std::uint64_t>(rank) / s, groups = (p + s - 1) / s;
  const std::uint64_t size = std::min(s, p - group * s);
  const std::uint64_t index = static_cast<std::uint64_t>(rank) % s;
  const std::uint64_t served = (index + 1) * s / size - index * s / size;
  return (s - served) * n / s + (size - 1) * served * n / s +
         2 * (groups - 1) * (served * n / s) / groups;
}

const std::map<std::string_view, Formula>& formulas() {
  static const std::map<std::string_view, Formula> kFormulas{
      {"ring", least},
      {"tree", tree},
      {"circulant", least},
      {"two_shot", least},
      {"pat", least},
      {"one_shot", [](std::uint64_t p, Rank, std::uint64_t n) { return (p - 1) * n; }},
      {"butterfly", butterfly},
      {"rabenseifner", rabenseifner},
      {"hierarchical", rails},
  };
  return kFormulas;
}

// What the schedule sends if its chunks are cut as the runtime cuts them.
Traffic of_schedule(const Schedule& schedule, Rank rank, std::uint64_t count,
                    std::uint32_t slices) {
  const UniformCut cut{count, schedule.shape.chunks, slices, kGrain};
  Traffic traffic;
  for (const auto& [to, span] : counts::sent_by(schedule.ranks[static_cast<std::size_t>(rank)])) {
    traffic.messages += slices;
    for (std::uint32_t k = 0; k < span.count(); ++k)
      traffic.bytes += kBytes * cut.chunk(span.at(k, schedule.shape.chunks)).count();
  }
  return traffic;
}

// What one all-reduce of `count` elements made the rank send, and in how many slices.
struct Counted {
  Traffic traffic;
  std::uint32_t slices = 0;
};

Counted counted(tuttiComm_t comm, int rank, int ranks, std::uint64_t count) {
  tuttiCommInfo_t before = TUTTI_COMM_INFO_INITIALIZER, after = TUTTI_COMM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiCommInfo(comm, &before), tuttiSuccess);
  EXPECT_EQ(check_sum(comm, rank, ranks, count, count % 2 == 0), "");
  EXPECT_EQ(tuttiCommInfo(comm, &after), tuttiSuccess);
  return {
      {after.messagesSent - before.messagesSent, after.payloadBytesSent - before.payloadBytesSent},
      after.lastSlices};
}

class WireBytes : public testing::TestWithParam<int> {};

TEST_P(WireBytes, AreThoseOfTheFormula) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    for (const Algorithm* algorithm : all_algorithms()) {
      const std::string name(algorithm->name);
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, name.c_str()), tuttiSuccess);
      const Schedule schedule =
          *build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
      const std::uint64_t parts = std::uint64_t{schedule.shape.chunks};
      for (const std::uint64_t lines : {1, 64, 2048}) {  // cache lines of a chunk
        const std::uint64_t count = lines * parts * kGrain;
        const Counted found = counted(comm, rank, ranks, count);
        EXPECT_EQ(found.traffic, of_schedule(schedule, rank, count, found.slices)) << name;
        const auto formula = formulas().find(name);
        ASSERT_NE(formula, formulas().end()) << "no formula for " << name;
        EXPECT_EQ(found.traffic.bytes,
                  formula->second(static_cast<std::uint64_t>(ranks), rank, count * kBytes))
            << name << " " << ranks << " ranks, rank " << rank;
      }
    }
  });
}

TEST_P(WireBytes, OfOddCountsAreThoseOfTheSchedule) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    for (const Algorithm* algorithm : all_algorithms()) {
      const std::string name(algorithm->name);
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, name.c_str()), tuttiSuccess);
      const Schedule schedule =
          *build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
      for (const std::uint64_t count : {1, 2, 7, 129, 1001, 100'003}) {
        const Counted found = counted(comm, rank, ranks, count);
        EXPECT_EQ(found.traffic, of_schedule(schedule, rank, count, found.slices))
            << name << " " << ranks << " ranks, rank " << rank << ", count " << count;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WireBytes, testing::Range(2, 10));

}  // namespace
}  // namespace tutti::test
