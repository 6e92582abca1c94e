// SPDX-License-Identifier: Apache-2.0
// Reductions by the program's own function, through the C API: commutative or not, every collective
// that reduces, every algorithm, and what a rank is told where it cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>
#include <tutti/user_op.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// x -> a*x + b modulo 2^32, as a | b << 32. Composition is associative and not commutative.
using Map = std::uint64_t;

constexpr Map compose(Map first, Map then) {
  const auto a1 = static_cast<std::uint32_t>(first), b1 = static_cast<std::uint32_t>(first >> 32);
  const auto a2 = static_cast<std::uint32_t>(then), b2 = static_cast<std::uint32_t>(then >> 32);
  return static_cast<Map>(a2 * b1 + b2) << 32 | a2 * a1;
}
static_assert(compose(2 | Map{3} << 32, 5 | Map{1} << 32) == (10 | Map{16} << 32));
static_assert(compose(5 | Map{1} << 32, 2 | Map{3} << 32) == (10 | Map{5} << 32));

Map map_of(int rank, std::size_t i) {
  return (2 * static_cast<Map>(rank) + 3) | (static_cast<Map>(rank) * 131 + i % 1009 + 1) << 32;
}

// The context counts the elements.
void compose_all(const void* in, void* inout, std::size_t count, tuttiDataType_t type,
                 void* context) {
  EXPECT_EQ(type, tuttiUint64);
  const auto* const first = static_cast<const Map*>(in);
  auto* const then = static_cast<Map*>(inout);
  for (std::size_t i = 0; i < count; ++i) then[i] = compose(first[i], then[i]);
  if (context != nullptr) *static_cast<std::size_t*>(context) += count;
}

Map wanted(int ranks, std::size_t i) {
  Map all = map_of(0, i);
  for (int rank = 1; rank < ranks; ++rank) all = compose(all, map_of(rank, i));
  return all;
}

// The pair (value, rank) of the greatest value, of equal ones of the least rank: MPI_MAXLOC.
std::int64_t pair_of(int rank, std::size_t i) {
  return static_cast<std::int64_t>((i * 7 + static_cast<std::size_t>(rank) * 5) % 11) << 32 |
         (1000 - rank);
}

void greatest(const void* in, void* inout, std::size_t count, tuttiDataType_t /*type*/,
              void* /*context*/) {
  const auto* const a = static_cast<const std::int64_t*>(in);
  auto* const b = static_cast<std::int64_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) b[i] = std::max(a[i], b[i]);
}

tuttiRedOp_t make(tuttiComm_t comm, tuttiReduceFn_t function, bool commutative,
                  void* context = nullptr) {
  tuttiRedOp_t op = tuttiSum;
  EXPECT_EQ(tuttiRedOpCreateUser(&op, function, context, commutative ? 1 : 0, comm), tuttiSuccess)
      << tuttiGetLastError(comm);
  return op;
}

void expect_composed(tuttiComm_t comm, int rank, int ranks, std::size_t count, bool in_place,
                     tuttiRedOp_t op) {
  std::vector<Map> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = map_of(rank, i);
  Map* const to = in_place ? in.data() : out.data();
  ASSERT_EQ(tuttiAllReduce(in.data(), to, count, tuttiUint64, op, comm, nullptr), tuttiSuccess)
      << tuttiGetLastError(comm);
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(to[i], wanted(ranks, i)) << "element " << i << " rank " << rank;
}

class UserOp : public ::testing::TestWithParam<int> {};

TEST_P(UserOp, ThatDoesNotCommuteReducesInTheOrderOfRanks) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::size_t reduced = 0;
    const tuttiRedOp_t op = make(comm, compose_all, false, &reduced);
    for (const std::size_t count : {1, 7, 1000, 100'003}) {
      expect_composed(comm, rank, ranks, count, false, op);
      expect_composed(comm, rank, ranks, count, true, op);
      for (int root = 0; root < ranks; ++root) {
        std::vector<Map> data(count);
        for (std::size_t i = 0; i < count; ++i) data[i] = map_of(rank, i);
        ASSERT_EQ(
            tuttiReduce(data.data(), data.data(), count, tuttiUint64, op, root, comm, nullptr),
            tuttiSuccess)
            << tuttiGetLastError(comm);
        for (std::size_t i = 0; i < count && rank == root; ++i)
          ASSERT_EQ(data[i], wanted(ranks, i)) << "element " << i << " root " << root;
      }
      const std::size_t whole = count * static_cast<std::size_t>(ranks);
      const std::size_t own = count * static_cast<std::size_t>(rank);
      std::vector<Map> data(whole), mine(count);
      for (std::size_t i = 0; i < whole; ++i) data[i] = map_of(rank, i);
      ASSERT_EQ(tuttiReduceScatter(data.data(), mine.data(), count, tuttiUint64, op, comm, nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(mine[i], wanted(ranks, own + i)) << "element " << i << " rank " << rank;
    }
    EXPECT_EQ(reduced > 0, ranks > 1);
    EXPECT_EQ(tuttiRedOpDestroy(op, comm), tuttiSuccess);
  });
}

TEST_P(UserOp, OfEveryAlgorithmIsInOrderOrRefused) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    const tuttiRedOp_t composed = make(comm, compose_all, false);
    const tuttiRedOp_t either = make(comm, greatest, true);
    for (const Algorithm* algorithm : all_algorithms()) {
      const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks};
      if (!algorithm->supports(problem)) continue;
      const std::string plan = "all_reduce:" + std::string(algorithm->name);
      SCOPED_TRACE(plan);
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess);
      for (const std::size_t count : {3, 5001}) {
        if (algorithm->in_rank_order(problem)) {
          expect_composed(comm, rank, ranks, count, false, composed);
        } else {
          std::vector<Map> data(count);
          EXPECT_EQ(
              tuttiAllReduce(data.data(), data.data(), count, tuttiUint64, composed, comm, nullptr),
              tuttiNotSupported);
          EXPECT_THAT(tuttiGetLastError(comm),
                      AllOf(HasSubstr(std::string(algorithm->name)),
                            HasSubstr("does not reduce in the order of ranks")));
        }
        std::vector<std::int64_t> pairs(count);
        for (std::size_t i = 0; i < count; ++i) pairs[i] = pair_of(rank, i);
        ASSERT_EQ(
            tuttiAllReduce(pairs.data(), pairs.data(), count, tuttiInt64, either, comm, nullptr),
            tuttiSuccess)
            << tuttiGetLastError(comm);
        for (std::size_t i = 0; i < count; ++i) {
          std::int64_t want = 0;
          for (int peer = 0; peer < ranks; ++peer) want = std::max(want, pair_of(peer, i));
          ASSERT_EQ(pairs[i], want) << "element " << i << " rank " << rank;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, UserOp, ::testing::Range(1, 8));

TEST(UserOpCalls, RunOnStreamsInGroupsAndWithSizesOfBlocks) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    const tuttiRedOp_t op = make(comm, compose_all, false);
    const std::size_t counts[] = {2, 0, 3};
    const auto me = static_cast<std::size_t>(rank);
    std::vector<Map> all(50), blocks(5), mine(3);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = map_of(rank, i);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = map_of(rank, i);
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiAllReduce(all.data(), all.data(), all.size(), tuttiUint64, op, comm, stream),
              tuttiSuccess);
    ASSERT_EQ(tuttiReduceScatterv(blocks.data(), counts, nullptr, mine.data(), counts[me],
                                  tuttiUint64, op, comm, stream),
              tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    // The calls have taken what they need of it.
    ASSERT_EQ(tuttiRedOpDestroy(op, comm), tuttiSuccess);
    ASSERT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], wanted(kRanks, i));
    for (std::size_t i = 0; i < counts[me]; ++i)
      EXPECT_EQ(mine[i], wanted(kRanks, (rank == 2 ? 2 : 0) + i));
  });
}

TEST(UserOpCalls, CrossTcp) {
  constexpr int kRanks = 4;
  ASSERT_EQ(::setenv("TUTTI_TRANSPORT", "tcp", 1), 0);
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    const tuttiRedOp_t op = make(comm, compose_all, false);
    for (const std::size_t count : {1, 1000, 200'001})
      expect_composed(comm, rank, kRanks, count, false, op);
  });
  ASSERT_EQ(::unsetenv("TUTTI_TRANSPORT"), 0);
}

TEST(UserOpChecks, ThatCommuteOnSomeRanksOnlyAreAMismatch) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    const tuttiRedOp_t op = make(comm, compose_all, rank == 0);
    Map data = 0;
    EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiUint64, op, comm, nullptr), tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm),
                AllOf(HasSubstr("uint64 user plan"), HasSubstr("uint64 user_in_order plan")));
  });
}

TEST(UserOpChecks, ArgumentsAreChecked) {
  run_job(1, {}, [&](int /*rank*/, tuttiComm_t& comm) {
    tuttiRedOp_t op = tuttiSum;
    EXPECT_EQ(tuttiRedOpCreateUser(nullptr, greatest, nullptr, 1, comm), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("op is NULL"));
    EXPECT_EQ(tuttiRedOpCreateUser(&op, nullptr, nullptr, 1, comm), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("function is NULL"));
    EXPECT_EQ(op, tuttiSum);
    op = make(comm, greatest, true);
    EXPECT_EQ(tuttiRedOpDestroy(op, comm), tuttiSuccess);
    std::int64_t data = 0;
    EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiInt64, op, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("is not a valid tuttiRedOp_t"));
  });
}

}  // namespace
}  // namespace tutti::test
