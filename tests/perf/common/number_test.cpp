// SPDX-License-Identifier: Apache-2.0
#include "common/number.hpp"

#include <gtest/gtest.h>

#include <cfenv>

namespace tutti::perf {
namespace {

// Every bit pattern of the narrow formats: decoding and encoding are inverse.
template <typename Format>
void round_trip_all() {
  const std::uint32_t patterns = std::uint32_t{1} << (8 * sizeof(typename Format::Bits));
  for (std::uint32_t pattern = 0; pattern < patterns; ++pattern) {
    const auto bits = static_cast<typename Format::Bits>(pattern);
    const double value = decode<Format>(bits);
    if (!std::isfinite(value) || bits == Format::kSignBit) continue;  // -0 becomes +0
    ASSERT_EQ(encode_nearest<Format>(value), bits) << pattern;
  }
}

TEST(Number, NarrowFormatsRoundTrip) {
  round_trip_all<Float16>();
  round_trip_all<Bfloat16Format>();
  round_trip_all<Float8e4m3>();
  round_trip_all<Float8e5m2>();
}

TEST(Number, AgreesWithTheCompilersFloat) {
  for (std::uint32_t bits = 1; bits < Float32::kMaxFinite; bits += 65'521) {
    const float value = std::bit_cast<float>(bits);
    ASSERT_EQ(decode<Float32>(bits), value);
    ASSERT_EQ(encode_nearest<Float32>(value), bits);
    // A double between two floats rounds as the hardware rounds.
    const double between = static_cast<double>(value) * (1.0 + 0x1.8p-25);
    ASSERT_EQ(encode_nearest<Float32>(-between),
              std::bit_cast<std::uint32_t>(static_cast<float>(-between)));
  }
}

TEST(Number, TiesGoToEven) {
  EXPECT_EQ(encode_nearest<Bfloat16Format>(1.0 + 0x1p-8), 0x3f80);
  EXPECT_EQ(encode_nearest<Bfloat16Format>(1.0 + 3 * 0x1p-8), 0x3f82);
  EXPECT_EQ(encode_nearest<Bfloat16Format>(1.0 + 0x1p-8 + 0x1p-30), 0x3f81);
  EXPECT_EQ(encode_nearest<Float16>(0x1p-25), 0);              // half of the least subnormal
  EXPECT_EQ(encode_nearest<Float16>(0x1.8p-24), 2);            // one and a half of it
  EXPECT_EQ(encode_nearest<Float16>(0x1.ffep-15), 0x3ff + 1);  // up into the normal numbers
}

TEST(Number, KnownValues) {
  EXPECT_EQ(decode<Float16>(0x7bff), 65504);
  EXPECT_EQ(decode<Float8e4m3>(0x7e), 448);
  EXPECT_EQ(decode<Float8e5m2>(0x7b), 57344);
  EXPECT_TRUE(std::isnan(decode<Float8e4m3>(0x7f)));
  EXPECT_TRUE(std::isinf(decode<Float16>(0xfc00)));
  EXPECT_TRUE(std::isnan(decode<Float16>(0x7c01)));
  EXPECT_EQ(encode_exact<Float32>(true, 3, -1), std::bit_cast<std::uint32_t>(-1.5f));
  EXPECT_EQ(encode_exact<Float32>(true, 0, 5), 0u);
  EXPECT_EQ(encode_exact<Float64>(false, std::uint64_t{1} << 53, 0),
            std::bit_cast<std::uint64_t>(0x1p53));
}

TEST(Number, NamesParseBack) {
  for (int i = 0; i < tuttiNumTypes; ++i) {
    const auto type = static_cast<tuttiDataType_t>(i);
    EXPECT_EQ(parse_type(type_name(type)), type);
  }
  for (int i = 0; i < kOpCount; ++i)
    EXPECT_EQ(parse_op(op_name(static_cast<Op>(i))), static_cast<Op>(i));
  EXPECT_FALSE(parse_type("float128"));
  EXPECT_FALSE(parse_op("xor"));
}

TEST(Number, TextShowsValueAndBits) {
  const std::int8_t minus_two = -2;
  EXPECT_EQ(element_text(tuttiInt8, &minus_two), "-2 (0xfe)");
  const std::uint16_t one = 0x3f80;
  EXPECT_EQ(element_text(tuttiBfloat16, &one), "1 (0x3f80)");
}

}  // namespace
}  // namespace tutti::perf
