// SPDX-License-Identifier: Apache-2.0
// All-reduce through the C API among threads: every algorithm, type, operation, odd sizes, in place
// on some ranks, groups, and sequences that change algorithm, protocol and carve at every call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <bit>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>

#include "algorithms/algorithm.hpp"
#include "job.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kSizes[] = {1, 2, 3, 5, 63, 124, 125, 1000, 4099, 70'001};

class AllReduce : public testing::TestWithParam<int> {};

TEST_P(AllReduce, EveryAlgorithmSizeAndPlacing) {
  const int ranks = GetParam();
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    for (const Algorithm* algorithm : all_algorithms()) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, std::string(algorithm->name).c_str()), tuttiSuccess);
      for (const std::size_t count : kSizes) {
        const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;  // a subset
        EXPECT_EQ(check_sum(comm, rank, ranks, count, in_place), "") << algorithm->name;
        tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
        ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
        EXPECT_EQ(info.lastAlgorithm, algorithm->name);
      }
    }
  });
}

TEST_P(AllReduce, CallsThatChangePlanEveryTime) {
  const int ranks = GetParam();
  constexpr int kCalls = 400;
  constexpr unsigned kSeed = 4711;
  run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
    std::mt19937 random(kSeed);  // the same sequence on every rank
    for (int call = 0; call < kCalls; ++call) {
      const auto algorithms = all_algorithms();
      const auto pick = random() % (algorithms.size() + 1);
      const std::string name =
          pick == algorithms.size() ? "auto" : std::string(algorithms[pick]->name);
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, name.c_str()), tuttiSuccess);
      const std::size_t count = random() % (std::size_t{1} << random() % 15) + 1;
      const bool in_place = random() % 2 == 0;
      const std::string wrong = check_sum(comm, rank, ranks, count, in_place, call);
      ASSERT_EQ(wrong, "") << "call " << call << " " << name << " count " << count << " seed "
                           << kSeed;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Values(1, 2, 3, 4, 5, 8));

// Forms that no default takes: other radices, leaders, groups that differ in size.
TEST(AllReduceVariants, ParametersRunAsTheyAreNamed) {
  struct Variant {
    std::string_view name;
    int ranks;
  };
  constexpr Variant kVariants[] = {
      {"ring:exchange=neighbours", 2},
      {"ring:exchange=neighbours", 8},
      {"circulant:radix=3", 7},
      {"circulant:radix=64", 5},
      {"hierarchical:form=leader", 6},
      {"hierarchical:form=leader:inner=tree:outer=ring:groups=2x4", 8},
      {"hierarchical:form=leader:inner=ring:outer=butterfly:groups=4+4+1", 9},
      {"hierarchical:inner=ring:outer=pat:groups=4+4+1", 9},
      {"hierarchical:outer=tree:groups=3+2", 5},
      {"hierarchical:groups=1+3+1", 5},
      {"hierarchical:inner=rabenseifner:groups=5+2", 7},
      {"hierarchical:form=leader:inner=butterfly:groups=3+2", 5},
      {"hierarchical:inner=circulant:inner.radix=3:outer=circulant:outer.radix=4:groups=2x4", 8},
  };
  for (const auto& [name, ranks] : kVariants)
    run_job(ranks, {}, [name = name, ranks = ranks](int rank, tuttiComm_t& comm) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, std::string(name).c_str()), tuttiSuccess);
      for (const std::size_t count : kSizes) {
        const bool in_place = (static_cast<std::size_t>(rank) + count) % 2 == 0;
        EXPECT_EQ(check_sum(comm, rank, ranks, count, in_place), "") << name;
      }
      tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
      ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
      EXPECT_EQ(info.lastAlgorithm, name);
    });
}

// The 16-bit floats, for values that they hold exactly: zero and positive normals of few digits.
std::uint16_t to_half(float value) {
  return value == 0 ? 0
                    : static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) >> 13) -
                                                 ((127 - 15) << 10));  // the other bias
}
float from_half(std::uint16_t bits) {
  return bits == 0 ? 0 : std::bit_cast<float>((bits + ((127u - 15u) << 10)) << 13);
}
std::uint16_t to_bfloat16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}
float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <std::uint16_t (*kTo)(float), float (*kFrom)(std::uint16_t)>
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  template <typename V>
  explicit Float16(V value) : bits(kTo(static_cast<float>(value))) {}
  operator float() const { return kFrom(bits); }
  bool operator==(const Float16&) const = default;  // bit for bit
};
using Half = Float16<to_half, from_half>;
using Bfloat16 = Float16<to_bfloat16, from_bfloat16>;

template <typename T>
void check_type(tuttiComm_t comm, int rank, int ranks, tuttiDataType_t type) {
  for (const tuttiRedOp_t op : {tuttiSum, tuttiProd, tuttiMax, tuttiMin, tuttiAvg})
    for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{5003}}) {
      std::vector<T> in(count), out(count);
      // A 16-bit float holds an average only of multiples of `ranks`.
      const bool multiples = op == tuttiAvg && std::is_class_v<T>;
      const std::size_t unit = multiples ? static_cast<std::size_t>(ranks) : 1;
      const auto value = [&](int r, std::size_t i) {
        return op == tuttiProd ? static_cast<T>(1 + (static_cast<std::size_t>(r) + i) % 2)
                               : static_cast<T>((static_cast<std::size_t>(r) * 7 + i) % 13 * unit);
      };
      for (std::size_t i = 0; i < count; ++i) in[i] = value(rank, i);
      ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), count, type, op, comm, nullptr),
                tuttiSuccess);
      for (std::size_t i = 0; i < count; ++i) {
        T want = value(0, i);
        for (int r = 1; r < ranks; ++r) {
          const T next = value(r, i);
          if (op == tuttiSum || op == tuttiAvg) want = static_cast<T>(want + next);
          if (op == tuttiProd) want = static_cast<T>(want * next);
          if (op == tuttiMax) want = std::max(want, next);
          if (op == tuttiMin) want = std::min(want, next);
        }
        if (op == tuttiAvg) want = static_cast<T>(want / static_cast<T>(ranks));
        ASSERT_EQ(out[i], want) << "type " << type << " op " << op << " index " << i;
      }
    }
}

// MPI's operations, whose truth values are 0 and 1.
template <typename T>
void check_bits(tuttiComm_t comm, int rank, int ranks, tuttiDataType_t type) {
  constexpr std::size_t kCount = 1237;
  const auto value = [](int r, std::size_t i) {
    return static_cast<T>((i + static_cast<std::size_t>(r)) % 3 == 0
                              ? 0
                              : (i * 2654435761U) ^ (static_cast<std::size_t>(r) << 3));
  };
  using Operation = T (*)(T, T);
  const std::pair<tuttiRedOp_t, Operation> operations[] = {
      {tuttiBitAnd, [](T a, T b) { return static_cast<T>(a & b); }},
      {tuttiBitOr, [](T a, T b) { return static_cast<T>(a | b); }},
      {tuttiBitXor, [](T a, T b) { return static_cast<T>(a ^ b); }},
      {tuttiLogicalAnd, [](T a, T b) { return static_cast<T>(a && b); }},
      {tuttiLogicalOr, [](T a, T b) { return static_cast<T>(a || b); }},
      {tuttiLogicalXor, [](T a, T b) { return static_cast<T>(!a != !b); }}};
  for (const auto& [op, operate] : operations) {
    std::vector<T> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = value(rank, i);
    ASSERT_EQ(tuttiAllReduce(data.data(), data.data(), kCount, type, op, comm, nullptr),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    for (std::size_t i = 0; i < kCount; ++i) {
      T want = value(0, i);
      for (int r = 1; r < ranks; ++r) want = operate(want, value(r, i));
      ASSERT_EQ(data[i], want) << "type " << type << " op " << op << " index " << i;
    }
  }
}

TEST(AllReduceTypes, BitwiseAndLogicalOperationsTakeIntegers) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    check_bits<std::int8_t>(comm, rank, kRanks, tuttiInt8);
    check_bits<std::uint8_t>(comm, rank, kRanks, tuttiUint8);
    check_bits<std::int32_t>(comm, rank, kRanks, tuttiInt32);
    check_bits<std::uint32_t>(comm, rank, kRanks, tuttiUint32);
    check_bits<std::int64_t>(comm, rank, kRanks, tuttiInt64);
    check_bits<std::uint64_t>(comm, rank, kRanks, tuttiUint64);
    float data[4] = {};
    EXPECT_EQ(tuttiAllReduce(data, data, 4, tuttiFloat, tuttiLogicalOr, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm),
                testing::HasSubstr("logical_or takes integers, not float"));
  });
}

// Each rank has its own scalar; in groups and in place too.
TEST(PreMulSum, ScalesTheInputOfEachRank) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    constexpr std::size_t kCount = 3001;
    float scalar = static_cast<float>(rank + 2);
    tuttiRedOp_t op = tuttiSum, other = tuttiSum;
    ASSERT_EQ(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat, tuttiScalarHostImmediate, comm),
              tuttiSuccess);
    scalar = -1000;  // it has been read
    std::int8_t small = 3;
    ASSERT_EQ(tuttiRedOpCreatePreMulSum(&other, &small, tuttiInt8, tuttiScalarHostImmediate, comm),
              tuttiSuccess);
    EXPECT_NE(op, other);
    std::vector<float> in(kCount), out(kCount), in_place(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      in[i] = in_place[i] = static_cast<float>(i % 31 + static_cast<std::size_t>(rank));
    const std::vector<float> before = in;
    std::vector<std::int8_t> bytes(5, static_cast<std::int8_t>(100));
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), kCount, tuttiFloat, op, comm, nullptr),
              tuttiSuccess);
    ASSERT_EQ(
        tuttiAllReduce(in_place.data(), in_place.data(), kCount, tuttiFloat, op, comm, nullptr),
        tuttiSuccess);
    ASSERT_EQ(
        tuttiReduce(bytes.data(), bytes.data(), bytes.size(), tuttiInt8, other, 1, comm, nullptr),
        tuttiSuccess);
    ASSERT_EQ(tuttiRedOpDestroy(other, comm), tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    EXPECT_EQ(in, before);
    for (std::size_t i = 0; i < kCount; ++i) {
      float want = 0;
      for (int r = 0; r < kRanks; ++r)
        want +=
            static_cast<float>(r + 2) * static_cast<float>(i % 31 + static_cast<std::size_t>(r));
      ASSERT_EQ(out[i], want) << i;
      ASSERT_EQ(in_place[i], want) << i;
    }
    if (rank == 1) {
      EXPECT_EQ(bytes[4], static_cast<std::int8_t>(3 * 3 * 100)) << "it wraps";
    }
    const auto told = [&] { return std::string(tuttiGetLastError(comm)); };
    EXPECT_EQ(tuttiAllReduce(bytes.data(), bytes.data(), 1, tuttiInt8, other, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(told(), testing::HasSubstr("is not a valid tuttiRedOp_t"));
    EXPECT_EQ(tuttiAllReduce(bytes.data(), bytes.data(), 1, tuttiInt8, op, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(told(), testing::HasSubstr("was made for float, and the call is of int8"));
    EXPECT_EQ(tuttiRedOpDestroy(other, comm), tuttiInvalidArgument);
    // In a group each call reads what the one before has written.
    std::vector<float> chain(3, 1.0F), once(3), twice(3);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiAllReduce(chain.data(), once.data(), 3, tuttiFloat, tuttiSum, comm, nullptr),
              tuttiSuccess);
    ASSERT_EQ(tuttiAllReduce(once.data(), twice.data(), 3, tuttiFloat, op, comm, nullptr),
              tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    EXPECT_EQ(twice, std::vector<float>(3, 3.0F * (2 + 3 + 4)));
    // An operation belongs to one communicator.
    tuttiComm_t part = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, 0, rank, &part, nullptr), tuttiSuccess);
    tuttiRedOp_t of_part = tuttiSum;
    scalar = 1;
    ASSERT_EQ(
        tuttiRedOpCreatePreMulSum(&of_part, &scalar, tuttiFloat, tuttiScalarHostImmediate, part),
        tuttiSuccess);
    EXPECT_NE(of_part, op);
    EXPECT_EQ(tuttiRedOpDestroy(op, part), tuttiInvalidArgument);
    EXPECT_EQ(tuttiAllReduce(chain.data(), once.data(), 3, tuttiFloat, op, part, nullptr),
              tuttiInvalidArgument);
    EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
    EXPECT_EQ(tuttiRedOpDestroy(op, comm), tuttiSuccess);
    EXPECT_EQ(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat, tuttiScalarDevice, comm),
              tuttiNotSupported);
  });
}

TEST(GroupSimulation, PricesWhatWouldRun) {
  run_job(2, {}, [&](int, tuttiComm_t& comm) {
    std::vector<float> data(1 << 20, 1.0F);
    const auto simulated = [&](int calls) {
      tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
      EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
      for (int i = 0; i < calls; ++i)
        EXPECT_EQ(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum, comm,
                                 nullptr),
                  tuttiSuccess);
      EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiSuccess) << tuttiGetLastError(nullptr);
      return info.estimatedTime;
    };
    const float one = simulated(1);
    EXPECT_GT(one, 0);
    EXPECT_FLOAT_EQ(simulated(3), 3 * one);
    EXPECT_EQ(simulated(0), 0);
    // Also plans that `auto` does not try: another form of an algorithm, other slots.
    for (const char* plan :
         {"circulant:radix=3", "ring@slots:slots=7", "ring:exchange=neighbours"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, plan), tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_GT(simulated(1), 0) << plan;
    }
    EXPECT_EQ(data[0], 1.0F) << "nothing ran";
  });
}

TEST(AllReduceTypes, ConvertersOf16Bits) {
  EXPECT_EQ(to_half(1), 0x3c00);
  EXPECT_EQ(to_half(108), 0x56c0);
  EXPECT_EQ(to_bfloat16(1), 0x3f80);
  EXPECT_EQ(to_bfloat16(108), 0x42d8);
  for (int i = 0; i <= 256; ++i) {
    EXPECT_EQ(static_cast<float>(Half(i)), static_cast<float>(i));
    EXPECT_EQ(static_cast<float>(Bfloat16(i)), static_cast<float>(i));
  }
}

TEST(AllReduceTypes, IntegersAndFloatsExactly) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    check_type<std::int8_t>(comm, rank, kRanks, tuttiInt8);
    check_type<std::uint8_t>(comm, rank, kRanks, tuttiUint8);
    check_type<std::int32_t>(comm, rank, kRanks, tuttiInt32);
    check_type<std::uint32_t>(comm, rank, kRanks, tuttiUint32);
    check_type<std::int64_t>(comm, rank, kRanks, tuttiInt64);
    check_type<std::uint64_t>(comm, rank, kRanks, tuttiUint64);
    check_type<float>(comm, rank, kRanks, tuttiFloat);
    check_type<double>(comm, rank, kRanks, tuttiDouble);
    check_type<Half>(comm, rank, kRanks, tuttiHalf);
    check_type<Bfloat16>(comm, rank, kRanks, tuttiBfloat16);
  });
}

TEST(AllReduceTypes, EveryRankEndsWithTheSameBits) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 3001;
  for (const Algorithm* algorithm : all_algorithms()) {
    std::vector<std::vector<float>> outputs(kRanks, std::vector<float>(kCount));
    run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
      ASSERT_EQ(tuttiCommSetAlgorithm(comm, std::string(algorithm->name).c_str()), tuttiSuccess);
      std::mt19937 random(static_cast<unsigned>(rank));
      std::normal_distribution<float> normal;
      std::vector<float> in(kCount);
      for (float& value : in) value = normal(random);
      auto& out = outputs[static_cast<std::size_t>(rank)];
      ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), kCount, tuttiFloat, tuttiSum, comm, nullptr),
                tuttiSuccess);
    });
    for (int rank = 1; rank < kRanks; ++rank)
      EXPECT_EQ(0, std::memcmp(outputs[0].data(), outputs[static_cast<std::size_t>(rank)].data(),
                               kCount * sizeof(float)))
          << algorithm->name;
  }
}

TEST(Groups, OneThreadCarriesManyRanks) {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 20'000;
  std::vector<tuttiComm_t> comms(kRanks);
  ASSERT_EQ(tuttiCommInitAll(comms.data(), kRanks, nullptr), tuttiSuccess)
      << tuttiGetLastError(nullptr);
  std::vector<std::vector<std::int32_t>> first(kRanks), second(kRanks);
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int r = 0; r < kRanks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    first[i].assign(kCount, r + 1);
    second[i].assign(3, r);
    EXPECT_EQ(tuttiAllReduce(first[i].data(), first[i].data(), kCount, tuttiInt32, tuttiSum,
                             comms[i], nullptr),
              tuttiSuccess);
    EXPECT_EQ(tuttiAllReduce(second[i].data(), second[i].data(), 3, tuttiInt32, tuttiMax, comms[i],
                             nullptr),
              tuttiSuccess);
  }
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  for (int r = 0; r < kRanks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    EXPECT_THAT(first[i], testing::Each(15));
    EXPECT_THAT(second[i], testing::Each(4));
    EXPECT_EQ(tuttiCommDestroy(comms[i]), tuttiSuccess);
  }
}

TEST(Groups, EndWithoutStartIsAnError) {
  EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("tuttiGroupStart"));
}

TEST(Traffic, BytesSentFollowTheFormula) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 4096 * kRanks;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    ASSERT_EQ(tuttiCommSetAlgorithm(comm, "ring"), tuttiSuccess);
    EXPECT_EQ(check_sum(comm, rank, kRanks, kCount, false), "");
    tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
    ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
    EXPECT_EQ(info.payloadBytesSent, 2 * (kRanks - 1) * kCount * 4 / kRanks);
    EXPECT_EQ(info.operations, 1u);
    EXPECT_EQ(info.nRanks, kRanks);
    EXPECT_EQ(info.hostRanks, kRanks);
  });
}

TEST(OneRank, NeedsNoSharedMemory) {
  run_job(1, {}, [](int rank, tuttiComm_t& comm) {
    EXPECT_EQ(check_sum(comm, rank, 1, 1000, false), "");
    EXPECT_EQ(check_sum(comm, rank, 1, 1000, true), "");
    tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
    ASSERT_EQ(tuttiCommInfo(comm, &info), tuttiSuccess);
    EXPECT_EQ(info.mappedBytes, 0u);
  });
}

}  // namespace
}  // namespace tutti::test
