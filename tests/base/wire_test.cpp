// What a Writer wrote a Reader reads, and no bytes whatsoever make a Reader read beyond its span.
#include "base/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>

namespace tutti {
namespace {

TEST(Wire, RoundTrip) {
  const std::array<std::byte, 3> blob{std::byte{1}, std::byte{2}, std::byte{3}};
  Writer writer;
  writer.u8(0xfe);
  writer.u16(0xfedc);
  writer.u32(0xfedcba98);
  writer.u64(0xfedcba9876543210);
  writer.i32(-2);
  writer.i64(INT64_MIN);
  writer.text("tutti");
  writer.text("");
  writer.bytes(blob);
  writer.raw(blob);
  const std::vector<std::byte> bytes = writer.take();
  Reader reader(bytes);
  EXPECT_EQ(reader.u8(), 0xfe);
  EXPECT_EQ(reader.u16(), 0xfedc);
  EXPECT_EQ(reader.u32(), 0xfedcba98);
  EXPECT_EQ(reader.u64(), 0xfedcba9876543210);
  EXPECT_EQ(reader.i32(), -2);
  EXPECT_EQ(reader.i64(), INT64_MIN);
  EXPECT_EQ(reader.text(5), "tutti");
  EXPECT_EQ(reader.text(0), "");
  EXPECT_TRUE(std::ranges::equal(reader.bytes(3).value(), blob));
  EXPECT_FALSE(reader.finish());
  std::array<std::byte, 3> into{};
  EXPECT_TRUE(reader.raw_into(into));
  EXPECT_EQ(into, blob);
  EXPECT_TRUE(reader.finish());
}

TEST(Wire, IsLittleEndian) {
  Writer writer;
  writer.u16(0x0102);
  writer.u32(0x03040506);
  writer.text("A");
  const std::array<std::byte, 11> want{std::byte{2}, std::byte{1}, std::byte{6},  std::byte{5},
                                       std::byte{4}, std::byte{3}, std::byte{1},  std::byte{0},
                                       std::byte{0}, std::byte{0}, std::byte{'A'}};
  EXPECT_TRUE(std::ranges::equal(writer.view(), want));
}

TEST(Wire, AFailedReadConsumesNothing) {
  Writer writer;
  writer.u32(5);  // a length of 5 with 3 bytes behind it
  writer.u8(1);
  writer.u16(2);
  Reader reader(writer.view());
  EXPECT_EQ(reader.u64().error().code, Code::kRemoteError);
  EXPECT_EQ(reader.bytes(100).error().code, Code::kRemoteError);
  EXPECT_EQ(reader.bytes(4).error().code, Code::kRemoteError);
  EXPECT_EQ(reader.raw(8).error().code, Code::kRemoteError);
  EXPECT_EQ(reader.left(), 7u);
  EXPECT_EQ(reader.u32(), 5u);
}

TEST(Wire, AFieldLongerThanAllowedIsRefusedBeforeItIsRead) {
  Writer writer;
  writer.text("longer");
  Reader reader(writer.view());
  const Result<std::string> text = reader.text(5);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("6 bytes, at most 5"), std::string::npos)
      << text.error().message;
  EXPECT_EQ(reader.text(6), "longer");
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
      bool read = false;
      switch (random() % 6) {
        case 0:
          read = reader.u8().has_value();
          break;
        case 1:
          read = reader.u16().has_value();
          break;
        case 2:
          read = reader.u64().has_value();
          break;
        case 3:
          read = reader.text(random() % 8).has_value();
          break;
        case 4:
          read = reader.bytes(SIZE_MAX).has_value();
          break;
        case 5:
          read = reader.raw(random() % 8 + 1).has_value();
          break;
      }
      ASSERT_LE(reader.left(), before);
      ASSERT_EQ(read, reader.left() < before);
    }
  }
}

}  // namespace
}  // namespace tutti
