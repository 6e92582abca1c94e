// SPDX-License-Identifier: Apache-2.0
// Every collective of the table that has algorithms, through the C API among threads: each of its
// algorithms, every root, odd counts, in place and not, and programs that alternate between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <atomic>
#include <random>

#include "algorithms/algorithm.hpp"
#include "calls.hpp"
#include "job.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr Collective kCollectivesHere[] = {Collective::kAllReduce,     Collective::kBroadcast,
                                           Collective::kReduce,        Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kGather,
                                           Collective::kScatter,       Collective::kAllToAll};
constexpr std::size_t kCounts[] = {1, 3, 100, 1000, 4099};

std::vector<const Algorithm*> every_algorithm() {
  std::vector<const Algorithm*> all = test::every_form();
  all.push_back(*find_algorithm("ring:exchange=neighbours"));
  return all;
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, EveryAlgorithmRootCountAndPlacing) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    for (const Collective collective : kCollectivesHere)
      for (const Algorithm* algorithm : every_algorithm()) {
        if (!algorithm->supports({.collective = collective, .ranks = ranks})) continue;
        const std::string plan =
            std::string(name_of(collective)) + ":" + std::string(algorithm->name);
        ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan.c_str()), tuttiSuccess)
            << plan << ": " << tuttiGetLastError(comm);
        const int roots = info_of(collective).rooted ? ranks : 1;
        for (int root = 0; root < roots; ++root)
          for (const std::size_t count : kCounts)
            for (const bool in_place : {false, true}) {
              const CallCase one{collective, count, root, in_place, root};
              ASSERT_EQ(check_call(comm, rank, ranks, one), "")
                  << plan << " root " << root << " count " << count << " in place " << in_place;
            }
        tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
        ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
        EXPECT_EQ(info.lastAlgorithm, algorithm->name);
      }
  });
}

// Plans, roots, counts and memory layouts change at every call.
TEST_P(Collectives, RandomProgramsOfAllOfThem) {
  const int ranks = GetParam();
  constexpr int kCalls = 600;
  const unsigned seed = draw_seed();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(seed);  // the same sequence on every rank
    for (int call = 0; call < kCalls; ++call) {
      CallCase one;
      one.collective = kCollectivesHere[random() % std::size(kCollectivesHere)];
      one.count = random() % (std::size_t{1} << random() % 15) + 1;
      one.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      one.in_place = (random() >> rank) % 2 == 0;  // which each rank decides for itself
      one.salt = call;
      ASSERT_EQ(check_call(comm, rank, ranks, one), "")
          << "call " << call << " " << name_of(one.collective) << " count " << one.count << " root "
          << one.root << " seed " << seed;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Range(1, 10));

TEST(Barrier, NobodyLeavesBeforeAllHaveCome) {
  constexpr int kRanks = 5, kRounds = 200;
  std::atomic<int> come{0};
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    for (int round = 1; round <= kRounds; ++round) {
      come.fetch_add(1);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
      ASSERT_GE(come.load(), kRanks * round) << "rank " << rank;
      // In between other calls, whose plans it shares.
      if (round % 50 == 0) {
        ASSERT_EQ(check_call(comm, rank, kRanks, {Collective::kAllReduce, 3}), "");
      }
    }
  });
}

TEST(Barrier, IsNamedWhereAnotherRankCallsSomethingElse) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::uint8_t byte = 0;
    const tuttiResult_t result =
        rank == 0 ? tuttiBarrier(comm, nullptr)
                  : tuttiAllReduce(&byte, &byte, 1, tuttiUint8, tuttiBitOr, comm, nullptr);
    EXPECT_EQ(result, tuttiInvalidUsage);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("barrier"));
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("all_reduce"));
  });
}

// What does not reduce needs no arithmetic, so every type passes.
TEST(CollectiveTypes, EveryTypeIsGatheredAndBroadcast) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    for (int type = 0; type < kDataTypeCount; ++type) {
      const std::size_t bytes_each = element_bytes(static_cast<DataType>(type));
      constexpr std::size_t kCount = 37;
      const std::size_t block = kCount * bytes_each;
      alignas(8) static thread_local std::byte own[37 * 8], all[3 * 37 * 8];
      std::fill_n(own, block, static_cast<std::byte>(0xf0 + rank));
      const auto of = static_cast<tuttiDataType_t>(type);
      ASSERT_EQ(tuttiAllGather(own, all, kCount, of, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      for (std::size_t i = 0; i < kRanks * block; ++i)
        ASSERT_EQ(static_cast<int>(all[i]), 0xf0 + static_cast<int>(i / block)) << type;
      ASSERT_EQ(tuttiBroadcast(own, own, kCount, of, 2, comm, nullptr), tuttiSuccess);
      for (std::size_t i = 0; i < block; ++i) ASSERT_EQ(static_cast<int>(own[i]), 0xf2) << type;
    }
  });
}

TEST(CollectiveChecks, NameWhatIsWrong) {
  run_job(2, {}, [&](int rank, tuttiComm_t& comm) {
    std::int32_t data[8] = {};
    const auto told = [&] { return std::string(tuttiGetLastError(comm)); };
    EXPECT_EQ(tuttiBroadcast(data, data, 1, tuttiInt32, 2, comm, nullptr), tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("root 2 is out of range: the communicator has 2 ranks"));
    EXPECT_EQ(tuttiReduce(data, data, 1, tuttiInt32, tuttiSum, -1, comm, nullptr),
              tuttiInvalidArgument);
    // The other rank's block of the output is not this one's in place.
    const int other = 1 - rank;
    EXPECT_EQ(tuttiAllGather(data + 4 * other, data, 4, tuttiInt32, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("this rank's block"));
    EXPECT_EQ(tuttiReduceScatter(data, nullptr, 4, tuttiInt32, tuttiSum, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(told(), HasSubstr("recvbuff is NULL"));
    // Nothing was sent, so the communicator is well.
    EXPECT_EQ(check_call(comm, rank, 2, {Collective::kAllGather, 4}), "");
  });
}

TEST(CollectiveAlgorithms, AreForcedByCollective) {
  constexpr int kRanks = 4;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    const auto ran = [&](Collective collective) {
      EXPECT_EQ(check_call(comm, rank, kRanks, {collective, 100}), "");
      tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
      EXPECT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
      return std::string(info.lastAlgorithm);
    };
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "AllReduce:Ring;all_gather:pat"), tuttiSuccess);
    EXPECT_EQ(ran(Collective::kAllReduce), "ring");
    EXPECT_EQ(ran(Collective::kAllGather), "pat");
    // A bare name is for all that have it: no tree gathers.
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "tree"), tuttiSuccess);
    EXPECT_EQ(ran(Collective::kAllReduce), "tree");
    EXPECT_EQ(ran(Collective::kBroadcast), "tree");
    EXPECT_NE(ran(Collective::kAllGather), "tree");
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "ring;all_reduce:tree"), tuttiSuccess);
    EXPECT_EQ(ran(Collective::kAllReduce), "tree");
    EXPECT_EQ(ran(Collective::kAllGather), "ring");
    const auto refused = [&](const char* text) {
      EXPECT_NE(tuttiCommSetAlgorithm(comm, text), tuttiSuccess) << text;
      return std::string(tuttiGetLastError(comm));
    };
    EXPECT_THAT(refused("all_gather:tree"), HasSubstr("tree"));
    EXPECT_THAT(refused("barrier:ring"), HasSubstr("runs as all_reduce; name that"));
    EXPECT_THAT(refused("ring;tree"), HasSubstr("a second algorithm"));
    EXPECT_THAT(refused("all_reduce:ring;all_reduce:tree"), HasSubstr("twice"));
    EXPECT_EQ(ran(Collective::kAllReduce), "tree") << "a refused name changes nothing";
  });
}

}  // namespace
}  // namespace tutti::test
