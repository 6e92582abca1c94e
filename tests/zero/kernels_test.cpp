// SPDX-License-Identifier: Apache-2.0
// Every set of vector instructions gives each element the bits of the scalar formula, wherever it
// lies; conversions are those of the standard; AdamW is the one of the paper.
#include "zero/kernels.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/seed.hpp"
#include "zero/optimizer.hpp"

namespace tutti::zero {
namespace {

constexpr std::size_t kCount = 77, kOffsets = 16;

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

class OnEach : public ::testing::TestWithParam<const Kernels*> {
 protected:
  std::vector<float> draw(std::size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  std::mt19937 random_{draw_seed()};
};

TEST_P(OnEach, AddAddsAtEveryOffset) {
  for (std::size_t offset = 0; offset < kOffsets; ++offset) {
    std::vector<float> into = draw(kCount + offset), from = draw(kCount + 2 * offset);
    const std::vector<float> before = into;
    GetParam()->add(into.data() + offset, from.data() + 2 * offset, kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(bits(into[offset + i]), bits(before[offset + i] + from[2 * offset + i]));
  }
}

struct Arrays {
  std::vector<float> parameters, first, second, gradients;
  std::vector<std::uint16_t> copy;
};

TEST_P(OnEach, AdamWHasTheScalarBitsAtEveryOffset) {
  const AdamWTerms terms = terms_of(AdamW{.weight_decay = 0.1F}, 3, 0.7);
  for (const Number number : {Number::kFloat32, Number::kBfloat16, Number::kFloat16})
    for (std::size_t offset = 0; offset < kOffsets; ++offset)
      for (const std::size_t count : {std::size_t{1}, std::size_t{15}, kCount}) {
        Arrays now{draw(kCount + offset), draw(kCount + offset), draw(kCount + offset),
                   draw(kCount + offset), std::vector<std::uint16_t>(kCount + offset)};
        for (float& second : now.second) second = std::abs(second);
        now.second[offset] = 0;
        Arrays want = now;
        GetParam()->adamw(terms,
                          {now.parameters.data() + offset, now.first.data() + offset,
                           now.second.data() + offset, now.gradients.data() + offset,
                           number == Number::kFloat32 ? nullptr : now.copy.data() + offset, number},
                          count);
        for (std::size_t i = offset; i < offset + count; ++i) {
          want.parameters[i] = adamw_element(terms, want.gradients[i], want.parameters[i],
                                             want.first[i], want.second[i]);
          if (number == Number::kBfloat16) want.copy[i] = narrow_bfloat16(want.parameters[i]);
          if (number == Number::kFloat16) want.copy[i] = narrow_float16(want.parameters[i]);
        }
        EXPECT_EQ(std::memcmp(now.parameters.data(), want.parameters.data(), 4 * (kCount + offset)),
                  0);
        EXPECT_EQ(std::memcmp(now.first.data(), want.first.data(), 4 * (kCount + offset)), 0);
        EXPECT_EQ(std::memcmp(now.second.data(), want.second.data(), 4 * (kCount + offset)), 0);
        EXPECT_EQ(now.copy, want.copy);
      }
}

TEST_P(OnEach, SgdHasTheScalarBitsAtEveryOffset) {
  for (const float momentum : {0.0F, 0.9F}) {
    const SgdTerms terms = terms_of(Sgd{.momentum = momentum, .weight_decay = 0.01F}, 3, 0.7);
    for (std::size_t offset = 0; offset < kOffsets; ++offset) {
      std::vector<float> parameters = draw(kCount + offset), moments = draw(kCount + offset);
      const std::vector<float> gradients = draw(kCount + offset);
      std::vector<float> want = parameters, want_moments = moments;
      std::vector<std::uint16_t> copy(kCount + offset);
      GetParam()->sgd(terms,
                      {parameters.data() + offset, moments.data() + offset, nullptr,
                       gradients.data() + offset, copy.data() + offset, Number::kBfloat16},
                      kCount);
      for (std::size_t i = offset; i < kCount + offset; ++i) {
        float moment = momentum == 0 ? 0 : want_moments[i];
        want[i] = sgd_element(terms, gradients[i], want[i], moment);
        if (momentum != 0) want_moments[i] = moment;
        EXPECT_EQ(copy[i], narrow_bfloat16(want[i]));
      }
      EXPECT_EQ(std::memcmp(parameters.data(), want.data(), 4 * want.size()), 0);
      EXPECT_EQ(std::memcmp(moments.data(), want_moments.data(), 4 * want.size()), 0);
    }
  }
}

TEST_P(OnEach, SumsOfSquaresAreThoseOfIntegers) {
  const std::vector<float> values = draw(kSquaresAtOnce);
  const double scale = 0x1p40;
  std::int64_t want = 0;
  for (const float value : values) want += std::llrint(static_cast<double>(value) * value * scale);
  EXPECT_EQ(GetParam()->sum_squares(values.data(), values.size(), scale), want);
}

// All 2^16 numbers of each type, there and back, and what lies halfway between two.
TEST_P(OnEach, ConversionsRoundToNearestEven) {
  const Kernels& use = *GetParam();
  std::vector<std::uint16_t> all(1U << 16), back(1U << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  const auto check = [&](auto widen, auto narrow, int exponent_bits, int mantissa_bits) {
    widen(wide.data(), all.data(), all.size());
    narrow(back.data(), wide.data(), all.size());
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int exponent = static_cast<int>(i >> mantissa_bits) & ((1 << exponent_bits) - 1);
      const int mantissa = static_cast<int>(i) & ((1 << mantissa_bits) - 1);
      if (exponent == (1 << exponent_bits) - 1) {
        EXPECT_EQ(std::isnan(wide[i]), mantissa != 0);
        EXPECT_EQ(std::isinf(wide[i]), mantissa == 0);
        if (mantissa != 0) continue;
      } else {
        const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
        const float truth = std::ldexp(static_cast<float>(mantissa + hidden),
                                       std::max(exponent, 1) - bias - mantissa_bits);
        EXPECT_EQ(std::abs(wide[i]), truth) << i;
      }
      EXPECT_EQ(back[i], all[i]);
    }
    // Halfway between neighbours goes to the even one, a little beside it to the nearer.
    const auto infinite = static_cast<std::size_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    for (std::size_t i = 0; i + 1 < infinite; ++i) {
      const float middle = static_cast<float>((static_cast<double>(wide[i]) + wide[i + 1]) / 2);
      std::uint16_t rounded[3];
      const float values[3]{std::nextafter(middle, 0.0F), middle,
                            std::nextafter(middle, std::numeric_limits<float>::infinity())};
      narrow(rounded, values, 3);
      // Between subnormals of bfloat16, which are those of fp32, there is always a middle.
      EXPECT_EQ(rounded[0], i);
      EXPECT_EQ(rounded[1], i + (i & 1));
      EXPECT_EQ(rounded[2], i + 1);
    }
  };
  check(use.widen_bfloat16, use.narrow_bfloat16, 8, 7);
  check(use.widen_float16, use.narrow_float16, 5, 10);
  const float special[]{65519.0F, 65520.0F, 1e30F, -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()};
  std::uint16_t halves[5];
  use.narrow_float16(halves, special, 5);
  EXPECT_EQ(halves[0], 0x7BFF);
  EXPECT_EQ(halves[1], 0x7C00);
  EXPECT_EQ(halves[2], 0x7C00);
  EXPECT_EQ(halves[3], 0xFC00);
  EXPECT_GT(halves[4] & 0x7FFF, 0x7C00);
}

INSTANTIATE_TEST_SUITE_P(Isa, OnEach,
                         ::testing::ValuesIn(all_kernels().begin(), all_kernels().end()),
                         [](const auto& of) { return std::string(of.param->name); });

// The paper's algorithm, in double.
TEST(ZeroOptimizer, AdamWIsThePapers) {
  const AdamW optimizer{.learning_rate = 0.01F, .weight_decay = 0.1F};
  float parameter = 0.5F, first = 0, second = 0;
  double p = 0.5, m = 0, v = 0;
  for (int step = 1; step <= 50; ++step) {
    const float gradient = std::sin(static_cast<float>(step));
    parameter = adamw_element(terms_of(optimizer, static_cast<std::uint64_t>(step), 0.5), gradient,
                              parameter, first, second);
    const double g = 0.5 * static_cast<double>(gradient), beta1 = 0.9, beta2 = 0.95;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, step)), v_hat = v / (1 - std::pow(beta2, step));
    p -= 0.01 * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.1 * p);
    EXPECT_NEAR(parameter, p, 1e-5);
  }
}

TEST(ZeroOptimizer, RefusesCoefficientsOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(static_cast<void>(terms_of(AdamW{.beta1 = 1}, 1, 1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(terms_of(AdamW{.beta2 = -0.1F}, 1, 1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(terms_of(AdamW{.epsilon = -1}, 1, 1)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(terms_of(AdamW{.learning_rate = kNan}, 1, 1)),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(terms_of(Sgd{.momentum = kNan}, 1, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace tutti::zero
