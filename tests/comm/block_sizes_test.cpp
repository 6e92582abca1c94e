// SPDX-License-Identifier: Apache-2.0
// All-gather and reduce-scatter with a size for each block, through the C API: every algorithm of
// the plain forms moves every block to its place and touches nothing else, and ranks that disagree
// about the sizes are told so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "job.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
constexpr tuttiDataType_t kType = tuttiInt32;
template <>
constexpr tuttiDataType_t kType<std::uint8_t> = tuttiUint8;
template <>
constexpr tuttiDataType_t kType<double> = tuttiFloat64;

constexpr int kUntouched = 99;

// Element i of block `block` in what `rank` gives.
template <typename T>
T value(int rank, std::size_t block, std::size_t i, int salt) {
  return static_cast<T>((static_cast<std::size_t>(rank * 7 + salt) + block * 13 + i) % 23);
}

std::vector<std::size_t> draw_counts(std::mt19937& random, int ranks) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
  for (std::size_t& count : counts)
    count = random() % 4 == 0 ? 0 : random() % (std::size_t{1} << random() % 15);
  return counts;
}

// Where this rank keeps the blocks: one behind the other, or in an order and with gaps of its own.
struct Places {
  std::vector<std::size_t> begins;
  std::size_t length = 0;
  bool told = false;  // displacements are passed

  Places(const std::vector<std::size_t>& counts, bool shuffled, std::mt19937& own)
      : begins(counts.size()), told(shuffled || own() % 2 == 0) {
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), 0);
    if (shuffled) std::ranges::shuffle(order, own);
    for (const std::size_t block : order) {
      if (shuffled) length += own() % 5;
      begins[block] = length;
      length += counts[block];
    }
    length += 3;
  }
  [[nodiscard]] const std::size_t* displacements() const { return told ? begins.data() : nullptr; }
};

struct Round {
  std::vector<std::size_t> counts;
  bool shuffled, in_place;
  int salt;
};

template <typename T>
void gather(tuttiComm_t comm, int rank, const Round& round, std::mt19937& own) {
  const auto me = static_cast<std::size_t>(rank);
  const Places places(round.counts, round.shuffled, own);
  std::vector<T> got(places.length, kUntouched), want = got, mine(round.counts[me]);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value<T>(rank, me, i, round.salt);
  for (std::size_t block = 0; block < round.counts.size(); ++block)
    for (std::size_t i = 0; i < round.counts[block]; ++i)
      want[places.begins[block] + i] = value<T>(static_cast<int>(block), block, i, round.salt);
  const T* from = mine.empty() ? nullptr : mine.data();
  if (round.in_place) {
    std::ranges::copy(mine, got.begin() + static_cast<std::ptrdiff_t>(places.begins[me]));
    from = got.data() + places.begins[me];
  }
  ASSERT_EQ(tuttiAllGatherv(from, mine.size(), got.data(), round.counts.data(),
                            places.displacements(), kType<T>, comm, nullptr),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  ASSERT_EQ(got, want) << "round " << round.salt << " rank " << rank;
}

template <typename T>
void reduce_scatter(tuttiComm_t comm, int rank, const Round& round, std::mt19937& own,
                    tuttiRedOp_t op = tuttiSum, int factor = 1) {
  const auto me = static_cast<std::size_t>(rank);
  const int ranks = static_cast<int>(round.counts.size());
  const Places places(round.counts, round.shuffled, own);
  std::vector<T> data(places.length, kUntouched);
  for (std::size_t block = 0; block < round.counts.size(); ++block)
    for (std::size_t i = 0; i < round.counts[block]; ++i)
      data[places.begins[block] + i] = value<T>(rank, block, i, round.salt);
  std::vector<T> kept = data, got(round.counts[me] + 1, kUntouched);
  T* to = round.counts[me] == 0 ? nullptr : got.data();
  if (round.in_place) to = data.data() + places.begins[me];
  ASSERT_EQ(tuttiReduceScatterv(data.data(), round.counts.data(), places.displacements(), to,
                                round.counts[me], kType<T>, op, comm, nullptr),
            tuttiSuccess)
      << tuttiGetLastError(comm);
  for (std::size_t i = 0; i < round.counts[me]; ++i) {
    T sum{};
    for (int peer = 0; peer < ranks; ++peer)
      sum = static_cast<T>(sum + value<T>(peer, me, i, round.salt));
    sum = static_cast<T>(sum * factor);
    ASSERT_EQ(to[i], sum) << "round " << round.salt << " rank " << rank << " element " << i;
    if (round.in_place) kept[places.begins[me] + i] = sum;
  }
  ASSERT_EQ(got.back(), T{kUntouched});
  ASSERT_EQ(data, kept) << "more than the own block was written";
}

Round draw_round(std::mt19937& random, int ranks, int salt) {
  return {draw_counts(random, ranks), random() % 2 == 0, random() % 2 == 0, salt};
}

class BlockSizes : public ::testing::TestWithParam<int> {};

TEST_P(BlockSizes, EveryBlockIsWhereItBelongs) {
  const int ranks = GetParam();
  const unsigned seed = draw_seed();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(seed), own(seed + 1 + static_cast<unsigned>(rank));
    double factor = 3;
    tuttiRedOp_t scaled = tuttiSum;
    ASSERT_EQ(
        tuttiRedOpCreatePreMulSum(&scaled, &factor, tuttiFloat64, tuttiScalarHostImmediate, comm),
        tuttiSuccess);
    for (int salt = 0; salt < 20 && !::testing::Test::HasFatalFailure(); ++salt) {
      const Round round = draw_round(random, ranks, salt);
      gather<std::int32_t>(comm, rank, round, own);
      reduce_scatter<double>(comm, rank, round, own);
      gather<std::uint8_t>(comm, rank, round, own);
      reduce_scatter<double>(comm, rank, round, own, scaled, 3);
      reduce_scatter<std::uint8_t>(comm, rank, round, own);
      gather<double>(comm, rank, round, own);
    }
  });
}

TEST_P(BlockSizes, EveryAlgorithmOfThePlainFormsRunsThem) {
  const int ranks = GetParam();
  const unsigned seed = draw_seed();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(seed), own(seed + 1 + static_cast<unsigned>(rank));
    for (const Algorithm* algorithm : all_algorithms())
      for (const Collective plain : {Collective::kAllGather, Collective::kReduceScatter}) {
        if (!algorithm->supports({.collective = plain, .ranks = ranks})) continue;
        const std::string plan = std::string(name_of(plain)) + ":" + std::string(algorithm->name);
        SCOPED_TRACE(plan);
        ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess)
            << tuttiGetLastError(comm);
        for (int salt = 0; salt < 8 && !::testing::Test::HasFatalFailure(); ++salt) {
          Round round = draw_round(random, ranks, salt);
          if (salt == 0) round.counts.assign(round.counts.size(), 33);  // like the plain form
          if (salt == 1) {
            round.counts.assign(round.counts.size(), 0);  // all from one rank
            round.counts[random() % round.counts.size()] = 70'001;
          }
          if (plain == Collective::kAllGather)
            gather<std::int32_t>(comm, rank, round, own);
          else
            reduce_scatter<std::int32_t>(comm, rank, round, own);
          if (std::ranges::all_of(round.counts, [](std::size_t count) { return count == 0; }))
            continue;
          tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
          ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
          EXPECT_EQ(info.lastAlgorithm, algorithm->name);
        }
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BlockSizes, ::testing::Range(1, 7));

TEST(BlockSizesAmongGroups, CallsOfAGroupKeepTheirSizes) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    const std::size_t first[] = {1, 2, 3}, second[] = {5, 0, 1};
    const auto me = static_cast<std::size_t>(rank);
    std::vector<std::int32_t> mine(3, rank), six(6), reduced(5), all(6, 1);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiAllGatherv(mine.data(), first[me], six.data(), first, nullptr, tuttiInt32, comm,
                              nullptr),
              tuttiSuccess);
    ASSERT_EQ(tuttiReduceScatterv(all.data(), second, nullptr, reduced.data(), second[me],
                                  tuttiInt32, tuttiSum, comm, nullptr),
              tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    EXPECT_THAT(six, ::testing::ElementsAre(0, 1, 1, 2, 2, 2));
    for (std::size_t i = 0; i < reduced.size(); ++i)
      EXPECT_EQ(reduced[i], i < second[me] ? kRanks : 0);
  });
}

// The counts may change as soon as the call has returned; the buffers may not.
TEST(BlockSizesOnStreams, TheCountsAreReadDuringTheCall) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    std::vector<std::size_t> counts{4, 0, 2}, displacements{2, 0, 0};
    const std::vector<std::int32_t> mine(4, rank + 1);
    std::vector<std::int32_t> all(6);
    ASSERT_EQ(tuttiAllGatherv(mine.data(), counts[static_cast<std::size_t>(rank)], all.data(),
                              counts.data(), displacements.data(), tuttiInt32, comm, stream),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    std::ranges::fill(counts, 1000);
    std::ranges::fill(displacements, 1000);
    ASSERT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    EXPECT_THAT(all, ::testing::ElementsAre(3, 3, 1, 1, 1, 1));
    EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  });
}

// Every rank is a host of its own, so the blocks cross TCP connections.
TEST(BlockSizesOverTcp, EveryBlockIsWhereItBelongs) {
  constexpr int kRanks = 4;
  const unsigned seed = draw_seed();
  ASSERT_EQ(::setenv("TUTTI_TRANSPORT", "tcp", 1), 0);
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(seed), own(seed + 1 + static_cast<unsigned>(rank));
    for (int salt = 0; salt < 10 && !::testing::Test::HasFatalFailure(); ++salt) {
      Round round = draw_round(random, kRanks, salt);
      if (salt == 0) round.counts = {300'000, 0, 1, 500'001};
      gather<std::int32_t>(comm, rank, round, own);
      reduce_scatter<std::int32_t>(comm, rank, round, own);
    }
  });
  ASSERT_EQ(::unsetenv("TUTTI_TRANSPORT"), 0);
}

TEST(BlockSizesChecks, SizesThatDifferAreNamedOnEveryRank) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    // Of the same total: only the sizes tell them apart.
    const std::size_t ours[] = {2, 2, 2}, theirs[] = {1, 3, 2};
    const std::size_t* const counts = rank == 2 ? theirs : ours;
    std::int32_t in[6] = {}, out[6] = {};
    EXPECT_EQ(tuttiAllGatherv(in, counts[rank], out, counts, nullptr, tuttiInt32, comm, nullptr),
              tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), AllOf(HasSubstr("all_gather_v"), HasSubstr("count 6"),
                                               HasSubstr("blocks of sizes"), HasSubstr("rank 2")));
  });
}

TEST(BlockSizesChecks, ThePlainFormIsAnotherCall) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    const std::size_t counts[] = {2, 2};
    std::int32_t in[4] = {}, out[4] = {};
    const tuttiResult_t result =
        rank == 0
            ? tuttiReduceScatter(in, out, 2, tuttiInt32, tuttiSum, comm, nullptr)
            : tuttiReduceScatterv(in, counts, nullptr, out, 2, tuttiInt32, tuttiSum, comm, nullptr);
    EXPECT_EQ(result, tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("reduce_scatter_v"));
  });
}

TEST(BlockSizesChecks, ArgumentsAreChecked) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::int32_t data[8] = {}, other[8] = {};
    const std::size_t none[] = {0, 0}, one[] = {1, 1}, many[] = {1, SIZE_MAX / 4};
    const std::size_t far[] = {0, SIZE_MAX / 4};
    const auto expect = [&](tuttiResult_t result, const std::string& text) {
      EXPECT_EQ(result, tuttiInvalidArgument) << text;
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr(text));
    };
    expect(tuttiAllGatherv(data, 1, other, nullptr, nullptr, tuttiInt32, comm, nullptr),
           "tuttiAllGatherv: the counts are NULL");
    expect(tuttiAllGatherv(data, 2, other, one, nullptr, tuttiInt32, comm, nullptr),
           "tuttiAllGatherv: the own block has 2 elements, but the counts say 1 for rank " +
               std::to_string(rank));
    expect(tuttiReduceScatterv(data, many, nullptr, other, many[rank], tuttiInt32, tuttiSum, comm,
                               nullptr),
           "larger than any memory");
    expect(tuttiAllGatherv(data, 1, other, one, far, tuttiInt32, comm, nullptr),
           "larger than any memory");
    expect(tuttiAllGatherv(nullptr, 1, other, one, nullptr, tuttiInt32, comm, nullptr),
           "sendbuff is NULL");
    expect(tuttiReduceScatterv(data, one, nullptr, nullptr, 1, tuttiInt32, tuttiSum, comm, nullptr),
           "recvbuff is NULL");
    expect(tuttiAllGatherv(other + 1 - rank, 1, other, one, nullptr, tuttiInt32, comm, nullptr),
           "sendbuff and recvbuff overlap");
    // Where an empty block lies says nothing.
    const std::size_t first[] = {2, 0}, wild[] = {0, SIZE_MAX};
    EXPECT_EQ(tuttiAllGatherv(data, first[rank], other, first, wild, tuttiInt32, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    // A plan that reads its peers' memory would read at its own offsets there.
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "auto"), tuttiSuccess);
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "all_gather:two_shot:access=remote"), tuttiSuccess);
    EXPECT_EQ(tuttiAllGatherv(data, 1, other, one, nullptr, tuttiInt32, comm, nullptr),
              tuttiNotSupported);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("blocks of different sizes may lie elsewhere"));
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "auto"), tuttiSuccess);
    // Nothing to move at all.
    EXPECT_EQ(tuttiAllGatherv(nullptr, 0, nullptr, none, nullptr, tuttiInt32, comm, nullptr),
              tuttiSuccess);
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

}  // namespace
}  // namespace tutti::test
