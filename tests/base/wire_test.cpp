// SPDX-License-Identifier: Apache-2.0
// What a Writer wrote a Reader reads, and no bytes whatsoever make a Reader read beyond its span.
#include "base/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(Wire, RoundTrip) {
  const std::array<std::byte, 3> blob{std::byte{1}, std::byte{2}, std::byte{3}};
  Writer writer;
  writer.number<std::uint8_t>(0xfe).number<std::uint16_t>(0xfedc).number<std::uint32_t>(0xfedcba98);
  writer.number<std::uint64_t>(0xfedcba9876543210).number<std::int32_t>(-2).number(INT64_MIN);
  writer.text("tutti", 5).text("", 0).text("cut", 2).padded_text("ab", 4).raw(blob);
  const std::vector<std::byte> bytes = writer.take();
  Reader reader(bytes);
  EXPECT_EQ(reader.number<std::uint8_t>(), 0xfe);
  EXPECT_EQ(reader.number<std::uint16_t>(), 0xfedc);
  EXPECT_EQ(reader.number<std::uint32_t>(), 0xfedcba98);
  EXPECT_EQ(reader.number<std::uint64_t>(), 0xfedcba9876543210);
  EXPECT_EQ(reader.number<std::int32_t>(), -2);
  EXPECT_EQ(reader.number<std::int64_t>(), INT64_MIN);
  EXPECT_EQ(reader.text(5), "tutti");
  EXPECT_EQ(reader.text(0), "");
  EXPECT_EQ(reader.text(9), "cu");
  EXPECT_EQ(reader.padded_text(4), "ab");
  EXPECT_EQ(reader.left(), 3u);
  EXPECT_THAT(reader.finish().error().message, HasSubstr("3 bytes more than expected"));
  EXPECT_EQ(reader.block<3>(), blob);
  EXPECT_TRUE(reader.finish());
}

TEST(Wire, IsLittleEndian) {
  Writer writer;
  writer.number<std::uint16_t>(0x0102).number<std::uint32_t>(0x03040506).text("A", 1);
  const std::array<std::byte, 9> want{std::byte{2}, std::byte{1}, std::byte{6},
                                      std::byte{5}, std::byte{4}, std::byte{3},
                                      std::byte{1}, std::byte{0}, std::byte{'A'}};
  EXPECT_TRUE(std::ranges::equal(writer.bytes(), want));
}

TEST(Wire, AfterAShortReadEverythingIsEmptyAndNotOk) {
  Writer writer;
  writer.number<std::uint32_t>(5).number<std::uint16_t>(6);
  Reader reader(writer.bytes());
  EXPECT_EQ(reader.number<std::uint64_t>(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.number<std::uint16_t>(), 0u);
  EXPECT_EQ(reader.text(9), "");
  EXPECT_EQ(reader.finish().error().code, Code::kRemoteError);
  EXPECT_THAT(reader.finish().error().message, HasSubstr("ends too soon"));
}

TEST(Wire, ATextLongerThanAllowedIsRefused) {
  Writer writer;
  writer.text("longer", 6);
  Reader reader(writer.bytes());
  EXPECT_EQ(reader.text(5), "");
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, ATextOfAPeerIsPrintable) {
  Writer writer;
  writer.text("a\nb\x1b", 9);
  Reader reader(writer.bytes());
  const std::string text = reader.text(9);
  EXPECT_TRUE(reader.ok());
  for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << text;
}

// Random bytes in exact heap blocks: under the address sanitizer a read beyond would be seen.
TEST(Wire, NoInputReadsBeyondTheSpan) {
  constexpr unsigned kSeed = 99;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = random() % 24;
    const auto memory = std::make_unique<std::byte[]>(count);
    for (std::size_t i = 0; i < count; ++i)
      memory[i] = static_cast<std::byte>(random() % 4 == 0 ? random() % 256 : random() % 5);
    Reader reader({memory.get(), count});
    for (int i = 0; i < 12; ++i) {
      const std::size_t before = reader.left();
      switch (random() % 5) {
        case 0:
          static_cast<void>(reader.number<std::uint8_t>());
          break;
        case 1:
          static_cast<void>(reader.number<std::uint64_t>());
          break;
        case 2:
          ASSERT_LE(reader.text(random() % 8).size(), 7u);
          break;
        case 3:
          static_cast<void>(reader.padded_text(random() % 8));
          break;
        case 4:
          static_cast<void>(reader.raw(random() % 8 + 1));
          break;
      }
      ASSERT_LE(reader.left(), before);
    }
  }
}

}  // namespace
}  // namespace tutti
