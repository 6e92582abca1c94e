// SPDX-License-Identifier: Apache-2.0
// The norm: near the true one, and the same bits however the gradients are cut and ordered.
#include "zero/norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/seed.hpp"

namespace tutti::zero {
namespace {

double norm_in_parts(std::span<const float> values, std::size_t part) {
  std::uint32_t greatest = 0;
  for (std::size_t at = 0; at < values.size(); at += part)
    greatest = std::max(
        greatest, greatest_magnitude_bits(values.subspan(at, std::min(part, values.size() - at))));
  Limbs sum{};
  for (std::size_t at = 0; at < values.size(); at += part)
    add_limbs(sum,
              scaled_squares(values.subspan(at, std::min(part, values.size() - at)), greatest));
  return norm_of(sum, greatest);
}

std::vector<float> drawn(std::mt19937& random, std::size_t count, int least, int most) {
  std::uniform_int_distribution<int> exponent(least, most);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), exponent(random));
  return values;
}

TEST(ZeroNorm, IsNearAndHasNoOrder) {
  std::mt19937 random(draw_seed());
  for (const auto& [least, most] :
       {std::pair{-3, 3}, {-149, -130}, {100, 126}, {-149, 126}, {0, 0}}) {
    std::vector<float> values = drawn(random, 20'011, least, most);
    long double squares = 0;
    for (const float value : values) squares += static_cast<long double>(value) * value;
    const double truth = static_cast<double>(std::sqrt(squares));
    const double whole = norm_in_parts(values, values.size());
    EXPECT_NEAR(whole / truth, 1, 20'011 * 0x1p-50) << least << " to " << most;
    for (const std::size_t part :
         {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{10'000}})
      EXPECT_EQ(norm_in_parts(values, part), whole);
    std::ranges::shuffle(values, random);
    EXPECT_EQ(norm_in_parts(values, 100), whole);
  }
}

TEST(ZeroNorm, IsExactForSmallIntegers) {
  const std::vector<float> values{3, -4, 0, 12};
  EXPECT_EQ(norm_in_parts(values, 2), 13);
  const std::vector<float> one{-0x1p-149F};
  EXPECT_EQ(norm_in_parts(one, 1), 0x1p-149);
  const std::vector<float> most{std::numeric_limits<float>::max()};
  EXPECT_EQ(norm_in_parts(most, 1), static_cast<double>(most[0]));
}

// The greatest squares, as many as are added at once and more.
TEST(ZeroNorm, DoesNotOverflow) {
  const std::vector<float> values(100'000, std::nextafter(2.0F, 1.0F));
  const double truth = std::sqrt(100'000.0) * static_cast<double>(values[0]);
  EXPECT_NEAR(norm_in_parts(values, values.size()) / truth, 1, 1e-12);
}

TEST(ZeroNorm, WhatIsNotFiniteIsAboveAllNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> infinite{1, -kInfinity, std::numeric_limits<float>::max()};
  const std::vector<float> not_a_number{kInfinity, -std::numeric_limits<float>::quiet_NaN(), 1};
  const std::vector<float> finite{-std::numeric_limits<float>::max(), 1, -0.0F};
  EXPECT_FALSE(is_finite(greatest_magnitude_bits(infinite)));
  EXPECT_FALSE(is_finite(greatest_magnitude_bits(not_a_number)));
  EXPECT_GT(greatest_magnitude_bits(not_a_number), greatest_magnitude_bits(infinite));
  EXPECT_TRUE(is_finite(greatest_magnitude_bits(finite)));
  EXPECT_EQ(greatest_magnitude_bits(finite), std::bit_cast<std::uint32_t>(-finite[0]));
}

}  // namespace
}  // namespace tutti::zero
