// SPDX-License-Identifier: Apache-2.0
// Every 16-bit float there is goes through the kernels' conversions, on every instruction set of
// this machine: round trips, and roundings of sums and quotients.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/reduce_copy.hpp"
#include "tests/kernels/reference.hpp"

namespace tutti {
namespace {

constexpr std::size_t kPatterns = 65536;

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(kPatterns);
  for (std::size_t i = 0; i < kPatterns; ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

class Conversion : public testing::TestWithParam<std::tuple<DataType, const char*>> {
 protected:
  void SetUp() override {
    kernel_ = reduce_copy_kernel_for(isa_, type_, ReduceOp::kSum);
    if (kernel_ == nullptr) GTEST_SKIP() << "this machine has no " << isa_;
  }

  // Every pattern plus `addend`, divided by average_over, against the reference.
  void check(std::uint16_t addend, std::uint32_t average_over) {
    const std::vector<std::uint16_t> patterns = all_patterns();
    const std::vector<std::uint16_t> addends(kPatterns, addend);
    std::vector<std::uint16_t> got(kPatterns);
    const std::array<const void*, 2> sources{patterns.data(), addends.data()};
    void* destination = got.data();
    ReduceCopyArgs args;
    args.sources = sources.data();
    args.source_count = 2;
    args.destinations = &destination;
    args.destination_count = 1;
    args.elements = kPatterns;
    args.average_over = average_over;
    kernel_(args);
    int wrong = 0;
    for (std::size_t i = 0; i < kPatterns && wrong < 5; ++i) {
      const std::array<std::uint64_t, 2> elements{i, addend};
      const std::uint64_t want = reference::reduce(type_, ReduceOp::kSum, elements, average_over);
      if (got[i] == want) continue;
      ++wrong;
      ADD_FAILURE() << std::hex << i << " + " << addend << ", average over " << std::dec
                    << average_over << std::hex << ": got " << got[i] << " want " << want;
    }
  }

  DataType type_ = std::get<0>(GetParam());
  std::string isa_ = std::get<1>(GetParam());
  ReduceCopyFn kernel_ = nullptr;
};

// x + (-0) is x, for zeros too.
TEST_P(Conversion, EveryValueRoundTrips) {
  constexpr std::uint16_t kMinusZero = 0x8000;
  check(kMinusZero, 0);
  for (std::size_t i = 0; i < kPatterns; ++i) {  // the reference's conversions are each other's
    const double value = reference::decode(type_, i);
    if (value == value) {
      ASSERT_EQ(reference::encode(type_, value), i);
    }
  }
}

TEST_P(Conversion, EverySumIsRoundedToNearestEven) {
  const unsigned seed = 20250711;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 6; ++i) check(static_cast<std::uint16_t>(random()), 0);
}

TEST_P(Conversion, EveryQuotientIsRoundedOnce) {
  for (const std::uint32_t divisor : {3u, 7u, 1024u}) check(0x8000, divisor);
}

// Every pair of 8-bit floats, sum and product.
TEST(Conversion8, EverySumAndProductIsRoundedToNearestEven) {
  std::vector<std::uint8_t> left(kPatterns), right(kPatterns), got(kPatterns);
  for (std::size_t i = 0; i < kPatterns; ++i) {
    left[i] = static_cast<std::uint8_t>(i);
    right[i] = static_cast<std::uint8_t>(i >> 8);
  }
  const std::array<const void*, 2> sources{left.data(), right.data()};
  void* destination = got.data();
  for (const DataType type : {DataType::kFloat8e4m3, DataType::kFloat8e5m2})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd})
      for (const char* isa : {"avx512", "avx2", "scalar"}) {
        const ReduceCopyFn kernel = reduce_copy_kernel_for(isa, type, op);
        if (kernel == nullptr) continue;  // not on this machine
        kernel({sources.data(), 2, &destination, 1, kPatterns, 0, 0});
        for (std::size_t i = 0; i < kPatterns; ++i) {
          const std::array<std::uint64_t, 2> elements{left[i], right[i]};
          ASSERT_EQ(std::uint64_t{got[i]}, reference::reduce(type, op, elements, 0))
              << name_of(type) << " " << name_of(op) << " " << isa << ": " << elements[0] << " and "
              << elements[1];
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Types, Conversion,
                         testing::Combine(testing::Values(DataType::kFloat16, DataType::kBfloat16),
                                          testing::Values("avx512", "avx2", "scalar")),
                         [](const auto& tested) {
                           return std::string(name_of(std::get<0>(tested.param))) + "_" +
                                  std::get<1>(tested.param);
                         });

// All values there are, at every length of the loop's tail, to fp32 and back.
TEST(FloatConversions, WidenExactlyAndRoundTrip) {
  for (const DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2})
    for (const char* const isa : {"scalar", "avx2", "avx512"}) {
      const FloatConversion conversion = conversion_for(isa, type);
      if (conversion.widen == nullptr) continue;  // not on this machine
      const std::size_t each = element_bytes(type), count = each == 1 ? 256 : kPatterns;
      std::vector<std::uint8_t> stored(count * each), back(count * each + 1, 0xa5);
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t b = 0; b < each; ++b)
          stored[i * each + b] = static_cast<std::uint8_t>(i >> (8 * b));
      std::vector<float> wide(count);
      for (std::size_t from = 0; from < 40; ++from) {
        conversion.widen(&stored[from * each], wide.data(), count - from);
        conversion.narrow(wide.data(), back.data(), count - from);
        for (std::size_t i = 0; i < count - from; ++i) {
          const double want = reference::decode(type, i + from);
          if (want != want) {
            ASSERT_NE(wide[i], wide[i]) << isa << " " << name_of(type) << " " << i + from;
            continue;
          }
          ASSERT_EQ(wide[i], want) << isa << " " << name_of(type) << " " << i + from;
          if (std::isinf(want) && each == 1) continue;  // saturates
          for (std::size_t b = 0; b < each; ++b)
            ASSERT_EQ(back[i * each + b], stored[(i + from) * each + b])
                << isa << " " << name_of(type) << " " << i + from;
        }
        ASSERT_EQ(back.back(), 0xa5) << "written beyond the end";
      }
    }
  EXPECT_EQ(conversion_of(DataType::kFloat32).widen, nullptr);
  EXPECT_EQ(conversion_of(DataType::kInt8).narrow, nullptr);
  EXPECT_EQ(conversion_for("sse9", DataType::kFloat16).widen, nullptr);
}

}  // namespace
}  // namespace tutti
