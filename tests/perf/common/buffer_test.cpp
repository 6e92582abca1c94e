// SPDX-License-Identifier: Apache-2.0
#include "common/buffer.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace tutti::perf {
namespace {

TEST(GuardedBuffer, UntouchedGuardsAreWhole) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{70'001}}) {
    GuardedBuffer buffer(bytes, 24);
    std::memset(buffer.data(), 0xff, bytes);
    EXPECT_FALSE(buffer.check_guards()) << bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 24u);
  }
}

TEST(GuardedBuffer, FindsOneByteOnEitherSideAndHeals) {
  GuardedBuffer buffer(100);
  for (const std::ptrdiff_t offset :
       {std::ptrdiff_t{-4096}, std::ptrdiff_t{-1}, std::ptrdiff_t{100}, std::ptrdiff_t{4195}}) {
    buffer.data()[offset] ^= std::byte{1};
    const auto damage = buffer.check_guards();
    ASSERT_TRUE(damage) << offset;
    EXPECT_EQ(damage->offset_bytes, offset);
    EXPECT_EQ(damage->got ^ damage->want, 1u);
    EXPECT_FALSE(buffer.check_guards());
  }
}

TEST(Fingerprint, FindsEverySingleBitOfABlock) {
  std::vector<std::byte> memory(1000);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
  const Fingerprint fingerprint(memory);
  EXPECT_FALSE(fingerprint.changed(0, memory.size()));
  for (std::size_t byte = 0; byte < memory.size(); ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      memory[byte] ^= std::byte{1} << bit;
      ASSERT_TRUE(fingerprint.changed(byte, byte + 1)) << byte << '.' << bit;
      memory[byte] ^= std::byte{1} << bit;
    }
  }
  EXPECT_FALSE(fingerprint.changed(0, memory.size()));
}

TEST(Fingerprint, NamesTheBlockAndLooksOnlyWhereAsked) {
  constexpr std::size_t kBlock = Fingerprint::kBlockBytes;
  std::vector<std::byte> memory(3 * kBlock + 5);
  const Fingerprint fingerprint(memory);
  memory[2 * kBlock + 17] = std::byte{1};
  EXPECT_FALSE(fingerprint.changed(0, 2 * kBlock));
  const auto block = fingerprint.changed(0, memory.size());
  ASSERT_TRUE(block);
  EXPECT_EQ(block->begin_bytes, 2 * kBlock);
  EXPECT_EQ(block->end_bytes, 3 * kBlock);
  memory[2 * kBlock + 17] = std::byte{0};
  memory.back() = std::byte{1};
  EXPECT_EQ(fingerprint.changed(0, memory.size())->end_bytes, memory.size());
}

TEST(Poison, SeesTheFirstForeignByte) {
  std::vector<std::byte> memory(5000);
  poison(memory);
  EXPECT_FALSE(find_unpoisoned(memory));
  memory[4321] = ~memory[4321];
  memory[4999] = ~memory[4999];
  EXPECT_EQ(find_unpoisoned(memory)->offset_bytes, 4321);
}

}  // namespace
}  // namespace tutti::perf
