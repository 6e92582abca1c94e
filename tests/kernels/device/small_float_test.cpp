// SPDX-License-Identifier: Apache-2.0
// The conversions of 8- and 16-bit floats, against tables made by exact arithmetic on each
// format's definition: every element that there is, and every fp32 number near which rounding
// turns.
#include "kernels/device/small_float.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/kernels/device/eight_bit_floats.hpp"
#include "tests/kernels/reference.hpp"

namespace tutti::device {
namespace {

float after(float value) { return std::nextafter(value, HUGE_VALF); }
float before(float value) { return std::nextafter(value, -HUGE_VALF); }

template <class Format>
void expect_value(std::uint32_t element, double want) {
  const float got = Format::to_float(element);
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << std::hex << element;
  } else {
    EXPECT_EQ(got, want) << std::hex << element;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << std::hex << element;
  }
}

template <class Format>
void expect_rounded(float value, std::uint64_t want) {
  ASSERT_EQ(Format::from_float(value), want) << std::hexfloat << value;
}

// Around every element and every middle between two neighbours.
template <class Format, class Decode, class Encode>
void check_every_turn(Decode decode, Encode encode) {
  constexpr std::uint32_t kElements = 1u << Format::kBits;
  for (std::uint32_t element = 0; element < kElements; ++element) {
    const double value = decode(element);
    expect_value<Format>(element, value);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(Format::from_float(static_cast<float>(value)), element);
    double next = decode(element + 1);
    if (element + 1 == kElements || !std::isfinite(next)) next = 2 * value;
    const auto middle = static_cast<float>((value + next) / 2);
    for (const float turn : {static_cast<float>(value), middle})
      for (const float near : {before(turn), turn, after(turn)})
        ASSERT_NO_FATAL_FAILURE(expect_rounded<Format>(near, encode(static_cast<double>(near))));
  }
}

template <class Format, class Encode>
void check_any_bits(Encode encode) {
  constexpr unsigned kSeed = 1234;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = bit_cast<float>(static_cast<std::uint32_t>(random()));
    ASSERT_NO_FATAL_FAILURE(expect_rounded<Format>(value, encode(static_cast<double>(value))));
  }
  using Limits = std::numeric_limits<float>;
  for (const float value :
       {HUGE_VALF, -HUGE_VALF, Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
        Limits::max(), Limits::lowest(), Limits::denorm_min(), -Limits::denorm_min(), 0.0f, -0.0f})
    ASSERT_NO_FATAL_FAILURE(expect_rounded<Format>(value, encode(static_cast<double>(value))));
}

template <class Format>
void check_sixteen(DataType type) {
  const auto encode = [type](double value) { return reference::encode(type, value); };
  check_every_turn<Format>([type](std::uint32_t e) { return reference::decode(type, e); }, encode);
  check_any_bits<Format>(encode);
}

template <class Format>
void check_eight(DataType type) {
  const EightBitFloats table(type);
  const auto encode = [&table](double value) { return table.encode(value); };
  check_every_turn<Format>([&table](std::uint32_t e) { return table.decode(e); }, encode);
  check_any_bits<Format>(encode);
}

TEST(SmallFloat, Float16) { check_sixteen<HalfBits>(DataType::kFloat16); }
TEST(SmallFloat, Bfloat16) { check_sixteen<Bfloat16Bits>(DataType::kBfloat16); }
TEST(SmallFloat, Float8e4m3) { check_eight<E4m3Bits>(DataType::kFloat8e4m3); }
TEST(SmallFloat, Float8e5m2) { check_eight<E5m2Bits>(DataType::kFloat8e5m2); }

// Published values: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1.
TEST(SmallFloat, EightBitFormatsAreThePublishedOnes) {
  EXPECT_EQ(E4m3Bits::to_float(0x7e), 448.0f);
  EXPECT_EQ(E4m3Bits::to_float(0x08), 0x1p-6f);
  EXPECT_EQ(E4m3Bits::to_float(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(E4m3Bits::to_float(0x7f)));
  EXPECT_EQ(E5m2Bits::to_float(0x7b), 57344.0f);
  EXPECT_EQ(E5m2Bits::to_float(0x04), 0x1p-14f);
  EXPECT_EQ(E5m2Bits::to_float(0x01), 0x1p-16f);
  EXPECT_EQ(E5m2Bits::to_float(0x7c), HUGE_VALF);
  EXPECT_TRUE(std::isnan(E5m2Bits::to_float(0x7d)));
}

template <class Type>
void check_halves() {
  for (std::uint32_t element = 0; element < 256; ++element) {
    std::uint32_t halves[2];
    const std::uint32_t other = (element * 37 + 11) & 0xff;
    Type::to_halves(element | other << 8 | other << 16 | element << 24, halves);
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t half = halves[i / 2] >> (i % 2 * 16) & 0xffff;
      const std::uint32_t eight = i == 0 || i == 3 ? element : other;
      expect_value<HalfBits>(half, static_cast<double>(Type::Format::to_float(eight)));
    }
  }
}
TEST(SmallFloat, FourEightBitFloatsAreFourHalves) {
  check_halves<E4m3>();
  check_halves<E5m2>();
}

}  // namespace
}  // namespace tutti::device
