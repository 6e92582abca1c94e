// SPDX-License-Identifier: Apache-2.0
// How far a sum of floats may be from the exact one, for every algorithm: each reduction on an
// element's way rounds once, so the bound is the proof's number of them; where partial results
// travel as fp32 it is one rounding for all algorithms. Prints what was measured.
//
// The bound: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2, for sums of
// numbers of one sign.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "job.hpp"
#include "schedule/verifier.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

struct Format {
  DataType type;
  int digits;  // of the significand, with the hidden one
};
constexpr Format kFormats[] = {{DataType::kFloat32, 24},
                               {DataType::kBfloat16, 8},
                               {DataType::kFloat16, 11},
                               {DataType::kFloat8e4m3, 4},
                               {DataType::kFloat8e5m2, 3}};

constexpr int kRanks = 7;
constexpr std::size_t kCount = 2003;

// Elements of one type as bytes.
class Elements {
 public:
  Elements(DataType type, std::size_t count) : type_(type), bytes_(count * element_bytes(type)) {}
  [[nodiscard]] void* data() { return bytes_.data(); }
  [[nodiscard]] double at(std::size_t i) const {
    std::uint64_t element = 0;
    std::memcpy(&element, &bytes_[i * element_bytes(type_)], element_bytes(type_));
    return reference::decode(type_, element);
  }
  void set(std::size_t i, double value) {
    const std::uint64_t element = reference::encode(type_, value);
    std::memcpy(&bytes_[i * element_bytes(type_)], &element, element_bytes(type_));
  }
  bool operator==(const Elements&) const = default;

 private:
  DataType type_;
  std::vector<std::byte> bytes_;
};

tuttiDataType_t of(DataType type) { return static_cast<tuttiDataType_t>(type); }

// Between 1/2 and 3/2, with more digits than any of the types has; the same on every rank that
// asks.
Elements draw(DataType type, std::size_t count, unsigned seed, int rank) {
  std::mt19937 random(seed + static_cast<unsigned>(rank));
  Elements elements(type, count);
  for (std::size_t i = 0; i < count; ++i)
    elements.set(i, 0.5 + static_cast<double>(random()) / 4294967296.0);
  return elements;
}

std::vector<double> exact_sums(DataType type, std::size_t count, unsigned seed, int ranks) {
  std::vector<double> sums(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const Elements part = draw(type, count, seed, rank);
    for (std::size_t i = 0; i < count; ++i) sums[i] += part.at(i);
  }
  return sums;
}

// run_job with a configuration.
void run(int ranks, int fp32_partials, const std::function<void(int, tuttiComm_t)>& body) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.fp32Partials = fp32_partials;
      tuttiComm_t comm = nullptr;
      const tuttiResult_t result = tuttiCommInitRankConfig(&comm, ranks, id, rank, &config);
      ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(nullptr);
      body(rank, comm);
      EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

// Relative, in units of 2^-digits (half the distance of two numbers at 1): `roundings` to the type,
// and the sums in fp32 between them.
double bound(const Format& format, std::uint32_t roundings, int ranks) {
  const double unit = std::ldexp(1.0, -format.digits), fp32 = std::ldexp(1.0, -24);
  const double all = std::pow(1 + unit, roundings) * std::pow(1 + fp32, ranks) - 1;
  return all / unit;
}

std::uint32_t roundings_of(const Algorithm& algorithm) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = kRanks};
  return verify(*build_schedule(algorithm, problem))->max_roundings;
}

// The largest error of all elements, in units of the type.
double measured(const Format& format, const Elements& got, const std::vector<double>& exact) {
  double most = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    most = std::max(most, std::abs(got.at(i) - exact[i]) / exact[i]);
  return std::ldexp(most, format.digits);
}

class Accuracy : public ::testing::TestWithParam<int> {};

TEST_P(Accuracy, OfEveryAlgorithmIsWithinItsBound) {
  const bool fp32_partials = GetParam() == 1;
  const unsigned seed = draw_seed();
  run(kRanks, GetParam(), [&](int rank, tuttiComm_t comm) {
    for (const Format& format : kFormats) {
      const std::vector<double> exact = exact_sums(format.type, kCount, seed, kRanks);
      for (const Algorithm* algorithm : all_algorithms()) {
        ASSERT_EQ(
            tuttiCommSetAlgorithm(comm, ("all_reduce:" + std::string(algorithm->name)).c_str()),
            tuttiSuccess);
        Elements data = draw(format.type, kCount, seed, rank);
        ASSERT_EQ(tuttiAllReduce(data.data(), data.data(), kCount, of(format.type), tuttiSum, comm,
                                 nullptr),
                  tuttiSuccess)
            << tuttiGetLastError(comm);
        // fp32 itself is not widened.
        const bool once = fp32_partials && format.type != DataType::kFloat32;
        const std::uint32_t roundings = once ? 1 : roundings_of(*algorithm);
        const double error = measured(format, data, exact);
        EXPECT_LE(error, bound(format, roundings, kRanks))
            << algorithm->name << " " << name_of(format.type) << " rank " << rank;
        if (rank == 0)
          std::printf("%-9s %-13s roundings %u, error %.2f units, bound %.2f\n",
                      std::string(name_of(format.type)).c_str(),
                      std::string(algorithm->name).c_str(), roundings, error,
                      bound(format, roundings, kRanks));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(PartialsIn, Accuracy, ::testing::Values(0, 1),
                         [](const auto& param) { return param.param == 1 ? "Fp32" : "TheType"; });

// What rounds once is the nearest of the exact sum, for sums that fp32 holds exactly: whatever
// collective, block, root and placing, on streams too.
TEST(Fp32Partials, GiveTheNearestOfTheExactSum) {
  constexpr int kFew = 4;
  const unsigned seed = draw_seed();
  run(kFew, 1, [&](int rank, tuttiComm_t comm) {
    for (const Format& format : kFormats) {
      if (format.type == DataType::kFloat32) continue;
      const DataType type = format.type;
      const auto expect = [&](const Elements& got, std::size_t first, std::size_t count,
                              const std::vector<double>& exact, const char* what) {
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(got.at(i), reference::decode(type, reference::encode(type, exact[first + i])))
              << what << " " << name_of(type) << " element " << first + i << " rank " << rank;
      };
      const std::size_t count = 997, whole = count * kFew;
      const std::vector<double> exact = exact_sums(type, whole, seed, kFew);
      const auto me = static_cast<std::size_t>(rank);
      const Elements input = draw(type, whole, seed, rank);
      Elements in = input, out(type, whole);
      ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), whole, of(type), tuttiSum, comm, nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      expect(out, 0, whole, exact, "all-reduce");
      EXPECT_EQ(in, input);
      ASSERT_EQ(tuttiReduce(in.data(), rank == 1 ? out.data() : nullptr, whole, of(type), tuttiSum,
                            1, comm, nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      if (rank == 1) expect(out, 0, whole, exact, "reduce");
      Elements mine(type, count);
      ASSERT_EQ(
          tuttiReduceScatter(in.data(), mine.data(), count, of(type), tuttiSum, comm, nullptr),
          tuttiSuccess)
          << tuttiGetLastError(comm);
      expect(mine, me * count, count, exact, "reduce-scatter");
      const std::size_t counts[] = {500, 0, 997, 3};
      const std::size_t begins[] = {1000, 0, 3, 2000};
      ASSERT_EQ(tuttiReduceScatterv(in.data(), counts, begins, mine.data(), counts[me], of(type),
                                    tuttiSum, comm, nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      expect(mine, begins[me], counts[me], exact, "reduce-scatter-v");
      // A scalar that the type holds; the product is not rounded before it is summed.
      std::vector<double> scaled(whole);
      for (std::size_t i = 0; i < whole; ++i) scaled[i] = 1.5 * exact[i];
      Elements factor(type, 1);
      factor.set(0, 1.5);
      tuttiRedOp_t op = tuttiSum;
      ASSERT_EQ(
          tuttiRedOpCreatePreMulSum(&op, factor.data(), of(type), tuttiScalarHostImmediate, comm),
          tuttiSuccess);
      tuttiStream_t stream = nullptr;
      ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(in.data(), in.data(), whole, of(type), op, comm, stream),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
      expect(in, 0, whole, scaled, "pre-multiplied");
    }
  });
}

TEST(Fp32Partials, ArePricedAsTheTrafficThatTheyAre) {
  const auto bytes_explained = [](int fp32_partials) {
    float time_us[2] = {};
    run(2, fp32_partials, [&](int rank, tuttiComm_t comm) {
      std::vector<std::uint16_t> data(1 << 20);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(data.data(), data.data(), data.size(), tuttiBfloat16, tuttiSum, comm,
                               nullptr),
                tuttiSuccess);
      tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
      ASSERT_EQ(tuttiGroupSimulateEnd(&info), tuttiSuccess) << tuttiGetLastError(comm);
      time_us[rank] = info.estimatedTime;
    });
    return time_us[0];
  };
  EXPECT_GT(bytes_explained(1), 1.5F * bytes_explained(0));
}

TEST(Fp32Partials, MustBeWantedByAllRanks) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.fp32Partials = rank;
      tuttiComm_t comm = nullptr;
      EXPECT_EQ(tuttiCommInitRankConfig(&comm, 2, id, rank, &config), tuttiInvalidUsage);
      EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("fp32Partials"));
    });
  for (std::thread& thread : threads) thread.join();
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.fp32Partials = 2;
  tuttiComm_t comm = nullptr;
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
  EXPECT_THAT(tuttiGetLastError(nullptr), HasSubstr("fp32Partials is 2; use 0 to 1"));
}

}  // namespace
}  // namespace tutti::test
