// SPDX-License-Identifier: Apache-2.0
// The averages' division against the processor's, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/device/operations.hpp"

namespace tutti::device {
namespace {

void expect_quotient(float value, std::uint32_t divisor) {
  const float want = value / static_cast<float>(divisor);
  ASSERT_EQ(bit_cast<std::uint32_t>(canonical(divide(value, divisor))),
            bit_cast<std::uint32_t>(canonical(want)))
      << std::hexfloat << value << " / " << std::defaultfloat << divisor;
}

// Quotients that lie half way between two subnormals: the least error turns them round.
TEST(Divide, TiesAmongSubnormals) {
  for (const std::uint32_t half : {3u, 5u, 6u, 7u, 9u, 11u, 49u, 500u, 1023u, 65'535u, 1'000'003u})
    for (std::uint32_t odd = 1; odd < 4000; odd += 2) {
      const double units = static_cast<double>(half) * odd;  // of the least subnormal
      if (units >= 0x1p24) break;                            // beyond an fp32's digits
      const auto value = static_cast<float>(std::ldexp(units, -149));
      ASSERT_NO_FATAL_FAILURE(expect_quotient(value, 2 * half));
      ASSERT_NO_FATAL_FAILURE(expect_quotient(-value, 2 * half));
    }
}

TEST(Divide, AnyBits) {
  constexpr unsigned kSeed = 31337;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = bit_cast<float>(static_cast<std::uint32_t>(random()));
    const auto divisor = static_cast<std::uint32_t>(2 + (random() >> random() % 31));
    ASSERT_NO_FATAL_FAILURE(expect_quotient(value, divisor));
  }
  using Limits = std::numeric_limits<float>;
  for (const float value : {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, Limits::quiet_NaN(), Limits::max(),
                            Limits::min(), Limits::denorm_min(), -Limits::denorm_min()})
    for (const std::uint32_t divisor : {2u, 3u, 1u << 31, (1u << 31) + 1, 0xffffffffu})
      ASSERT_NO_FATAL_FAILURE(expect_quotient(value, divisor));
}

TEST(Divide, IntegersTowardsZero) {
  constexpr auto kLeast = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(divide(std::int32_t{-7}, 2), -3);
  EXPECT_EQ(divide(kLeast, 2), kLeast / 2);
  EXPECT_EQ(divide(kLeast, 0x80000000u), -1);
  EXPECT_EQ(divide(kLeast, 0xffffffffu), 0);
  EXPECT_EQ(divide(std::numeric_limits<std::int64_t>::min(), 3), INT64_MIN / 3);
  EXPECT_EQ(divide(std::uint64_t{UINT64_MAX}, 3), UINT64_MAX / 3);
  EXPECT_EQ(divide(std::uint32_t{UINT32_MAX}, UINT32_MAX), 1u);
}

}  // namespace
}  // namespace tutti::device
