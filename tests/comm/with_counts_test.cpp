// SPDX-License-Identifier: Apache-2.0
// Collectives whose blocks have sizes of their own, through the C API: every block is where it
// belongs, nothing else is touched, and counts that differ are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "job.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int32_t kUntouched = -7;

// Element i of the block that `source` has for `destination`.
std::int32_t value(int source, int destination, std::size_t i, int salt) {
  return salt * 100'000 + source * 1000 + destination * 100 + static_cast<std::int32_t>(i % 97);
}

// Blocks in a random order with gaps between them.
struct Layout {
  std::vector<std::size_t> counts, displacements;
  std::size_t length = 0;

  Layout(std::vector<std::size_t> sizes, std::mt19937& random)
      : counts(std::move(sizes)), displacements(counts.size()) {
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    for (const std::size_t block : order) {
      length += random() % 5;
      displacements[block] = length;
      length += counts[block];
    }
    length += 3;
  }
};

// counts[source][destination], equal on all ranks; one in four is 0.
std::vector<std::vector<std::size_t>> draw_counts(std::mt19937& random, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector counts(n, std::vector<std::size_t>(n));
  for (auto& row : counts)
    for (std::size_t& count : row)
      count = random() % 4 == 0 ? 0 : random() % (std::size_t{1} << random() % 17);
  return counts;
}

std::vector<std::size_t> column(const std::vector<std::vector<std::size_t>>& counts, int rank) {
  std::vector<std::size_t> sizes;
  for (const auto& row : counts) sizes.push_back(row[static_cast<std::size_t>(rank)]);
  return sizes;
}

// The send buffer of `source`: its block for each rank where the layout says.
std::vector<std::int32_t> filled(const Layout& layout, int source, int salt) {
  std::vector<std::int32_t> data(layout.length, kUntouched);
  for (std::size_t to = 0; to < layout.counts.size(); ++to)
    for (std::size_t i = 0; i < layout.counts[to]; ++i)
      data[layout.displacements[to] + i] = value(source, static_cast<int>(to), i, salt);
  return data;
}

// What a receive buffer must hold: from each rank its block for `destination`.
std::vector<std::int32_t> wanted(const Layout& layout, int destination, int salt) {
  std::vector<std::int32_t> data(layout.length, kUntouched);
  for (std::size_t from = 0; from < layout.counts.size(); ++from)
    for (std::size_t i = 0; i < layout.counts[from]; ++i)
      data[layout.displacements[from] + i] = value(static_cast<int>(from), destination, i, salt);
  return data;
}

class WithCounts : public ::testing::TestWithParam<int> {};

TEST_P(WithCounts, EveryBlockIsWhereItBelongs) {
  const int ranks = GetParam();
  const unsigned seed = draw_seed();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(seed), own(seed + 1 + static_cast<unsigned>(rank));
    for (int round = 0; round < 20; ++round) {
      const auto counts = draw_counts(random, ranks);
      const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const auto at = static_cast<std::size_t>(rank), root_at = static_cast<std::size_t>(root);
      const Layout out(counts[at], own), in(column(counts, rank), own);
      const std::vector<std::int32_t> sent = filled(out, rank, round);
      std::vector<std::int32_t> got(in.length, kUntouched);
      ASSERT_EQ(
          tuttiAlltoAllv(sent.data(), out.counts.data(), out.displacements.data(), got.data(),
                         in.counts.data(), in.displacements.data(), tuttiInt32, comm, nullptr),
          tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_EQ(got, wanted(in, rank, round)) << "round " << round << " rank " << rank;

      // The root's column to the root, then its row from it.
      std::ranges::fill(got, kUntouched);
      const std::size_t to_root = counts[at][root_at], from_root = counts[root_at][at];
      const bool is_root = rank == root, in_place = is_root && round % 2 == 0;
      std::int32_t* const block = got.data() + in.displacements[at];
      const std::int32_t* from = sent.data() + out.displacements[root_at];
      if (in_place) {
        std::copy_n(from, to_root, block);
        from = block;
      }
      ASSERT_EQ(tuttiGatherv(from, to_root, is_root ? got.data() : nullptr,
                             is_root ? in.counts.data() : nullptr,
                             is_root ? in.displacements.data() : nullptr, tuttiInt32, root, comm,
                             nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      if (is_root) {
        ASSERT_EQ(got, wanted(in, rank, round)) << "round " << round;
      }
      std::vector<std::int32_t> mine(from_root + 1, kUntouched);
      ASSERT_EQ(
          tuttiScatterv(is_root ? sent.data() : nullptr, is_root ? out.counts.data() : nullptr,
                        is_root ? out.displacements.data() : nullptr, mine.data(), from_root,
                        tuttiInt32, root, comm, nullptr),
          tuttiSuccess)
          << tuttiGetLastError(comm);
      for (std::size_t i = 0; i < from_root; ++i)
        ASSERT_EQ(mine[i], value(root, rank, i, round)) << "round " << round << " rank " << rank;
      ASSERT_EQ(mine.back(), kUntouched);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WithCounts, ::testing::Range(1, 7));

TEST(WithCountsChecks, CountsThatDifferAreNamed) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::vector<std::int32_t> from(100), to(100);
    const std::size_t displacements[] = {0, 50};
    const std::size_t sends[] = {10, 10}, receives[] = {10, rank == 0 ? 11U : 10U};
    tuttiResult_t result = tuttiAlltoAllv(from.data(), sends, displacements, to.data(), receives,
                                          displacements, tuttiInt32, comm, nullptr);
    // The other side's part may be over.
    if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
    EXPECT_EQ(result, tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), AllOf(HasSubstr("recv of 11 int32 from rank 1"),
                                               HasSubstr("send of 10 int32 to rank 0")));
  });
}

// A gather-v to the own number, of one element from each of two ranks.
tuttiResult_t gather_one(tuttiComm_t comm, int root) {
  const std::int32_t mine = 1;
  std::int32_t all[2] = {};
  constexpr std::size_t kCounts[] = {1, 1}, kPlaces[] = {0, 1};
  return tuttiGatherv(&mine, 1, all, kCounts, kPlaces, tuttiInt32, root, comm, nullptr);
}

// Each takes the other for the root, so both sent and nobody received. What is left of that call
// must not be taken for a block of the next one, nor for a message of a send.
TEST(WithCountsChecks, ABlockThatNobodyTookIsNotOneOfALaterCall) {
  for (const bool by_recv : {false, true})
    run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
      ASSERT_EQ(gather_one(comm, 0), tuttiSuccess) << tuttiGetLastError(comm);
      ASSERT_EQ(gather_one(comm, 1 - rank), tuttiSuccess) << tuttiGetLastError(comm);
      std::int32_t element = 0;
      const auto next = [&] {
        if (!by_recv) return gather_one(comm, 0);
        return rank == 0 ? tuttiRecv(&element, 1, tuttiInt32, 1, comm, nullptr)
                         : tuttiSend(&element, 1, tuttiInt32, 0, comm, nullptr);
      };
      tuttiResult_t result = tuttiSuccess;
      while (result == tuttiSuccess) result = next();  // rank 1's first send may be over before
      EXPECT_EQ(result, tuttiInvalidUsage);
      EXPECT_THAT(tuttiGetLastError(comm),
                  AllOf(HasSubstr("calls do not match"),
                        HasSubstr("send of 1 int32 to rank 0 in gather_v 2"),
                        HasSubstr(by_recv ? "recv of 1 int32 from rank 1"
                                          : "recv of 1 int32 from rank 1 in gather_v 3")));
    });
}

TEST(WithCountsChecks, NothingToMoveIsNoSuccessWhereTheJobHasEnded) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    const std::size_t none[] = {0, 0};
    if (rank == 1) return abort(comm);
    while (check_sum(comm, rank, 2, 10, false).empty()) {
    }
    EXPECT_EQ(tuttiAlltoAllv(nullptr, none, none, nullptr, none, none, tuttiInt32, comm, nullptr),
              tuttiRemoteError);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    EXPECT_EQ(tuttiGatherv(nullptr, 0, nullptr, none, none, tuttiInt32, 0, comm, nullptr),
              tuttiSuccess);
    EXPECT_EQ(tuttiGroupEnd(), tuttiRemoteError);
  });
}

TEST(WithCountsChecks, ArgumentsAreChecked) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::int32_t data[8] = {}, other[8] = {};
    const std::size_t none[] = {0, 0}, one[] = {1, 1}, zero[] = {0, 1};
    const std::size_t many[] = {SIZE_MAX / 4, 1};
    const auto expect = [&](tuttiResult_t result, const char* text) {
      EXPECT_EQ(result, tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr(text));
    };
    expect(tuttiAlltoAllv(data, nullptr, zero, other, one, zero, tuttiInt32, comm, nullptr),
           "tuttiAlltoAllv: the counts of sendbuff are NULL");
    expect(tuttiAlltoAllv(data, one, zero, other, one, nullptr, tuttiInt32, comm, nullptr),
           "the displacements of recvbuff are NULL");
    expect(tuttiAlltoAllv(data, one, zero, data, one, zero, tuttiInt32, comm, nullptr),
           "it has no in-place form");
    expect(tuttiAlltoAllv(data, many, zero, other, one, zero, tuttiInt32, comm, nullptr),
           "larger than any memory");
    expect(tuttiAlltoAllv(nullptr, one, zero, other, one, zero, tuttiInt32, comm, nullptr),
           "sendbuff is NULL");
    expect(tuttiGatherv(data, 1, other, one, zero, tuttiInt32, 2, comm, nullptr),
           "root 2 is out of range");
    if (rank == 0) {
      expect(tuttiScatterv(nullptr, one, zero, other, 1, tuttiInt32, 0, comm, nullptr),
             "sendbuff is NULL");
    }
    // Nothing to send to anybody, and an error in a group.
    EXPECT_EQ(tuttiAlltoAllv(nullptr, none, none, nullptr, none, none, tuttiInt32, comm, nullptr),
              tuttiSuccess);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    EXPECT_EQ(tuttiGatherv(data, 1, other, one, zero, tuttiInt32, 2, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidArgument);
    EXPECT_EQ(check_sum(comm, rank, 2, 10, false), "");
  });
}

}  // namespace
}  // namespace tutti::test
