// SPDX-License-Identifier: Apache-2.0
// Checks of memory that the host cannot reach in place: the same findings, in any piece.
#include "common/memory.hpp"

#include <gtest/gtest.h>

#include "common/check.hpp"
#include "tests/perf/common/fake_gpus.hpp"

namespace tutti::perf {
namespace {

constexpr std::size_t kPiece = MemoryView::kPieceBytes;
constexpr std::size_t kBytes = 2 * kPiece + 1000;

void flip(const GuardedBuffer& buffer, std::ptrdiff_t offset) {
  *FakeGpus::host(buffer.data() + offset) ^= std::byte{1};
}

TEST(MemoryView, PiecesCoverEveryByteOnceAndInOrder) {
  FakeGpus gpus;
  const GuardedBuffer buffer(kBytes, 0, gpus.pages());
  const auto value = [](std::size_t at) { return static_cast<std::byte>(at * 31 >> 3); };
  std::size_t next = 0;
  buffer.memory().write([&](std::span<std::byte> piece, std::size_t at) {
    EXPECT_EQ(at, next);
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = value(at + i);
    next += piece.size();
  });
  EXPECT_EQ(next, kBytes);
  const GuardedBuffer copy(kBytes, 0, gpus.pages());
  copy.memory().copy_from(buffer.memory());
  next = 0;
  std::uint64_t wrong = 0;
  copy.memory().read([&](std::span<const std::byte> piece, std::size_t at) {
    EXPECT_EQ(at, next);
    for (std::size_t i = 0; i < piece.size(); ++i) wrong += piece[i] != value(at + i) ? 1 : 0;
    next += piece.size();
  });
  EXPECT_EQ(next, kBytes);
  EXPECT_EQ(wrong, 0u);
}

TEST(MemoryView, APartIsThatPart) {
  std::vector<std::byte> memory(100);
  MemoryView(memory).part(40, 60).write(
      [](std::span<std::byte> piece, std::size_t) { std::ranges::fill(piece, std::byte{7}); });
  for (std::size_t i = 0; i < memory.size(); ++i)
    EXPECT_EQ(memory[i], i >= 40 && i < 60 ? std::byte{7} : std::byte{0}) << i;
}

TEST(FarMemory, GuardsAndPoisonAreSeenInEveryPiece) {
  FakeGpus gpus;
  GuardedBuffer buffer(kBytes, 8, gpus.pages());
  EXPECT_FALSE(buffer.check_guards());
  flip(buffer, static_cast<std::ptrdiff_t>(kBytes));
  ASSERT_TRUE(buffer.check_guards());
  EXPECT_FALSE(buffer.check_guards()) << "healed";
  poison(buffer.memory());
  EXPECT_FALSE(find_unpoisoned(buffer.memory()));
  flip(buffer, 2 * kPiece + 7);
  flip(buffer, kPiece + 3);
  EXPECT_EQ(find_unpoisoned(buffer.memory())->offset_bytes, std::int64_t{kPiece + 3});
}

TEST(FarMemory, ResultsAndSendBuffersAreComparedInEveryPiece) {
  FakeGpus gpus;
  const DataSpec spec{tuttiFloat32, Op::kSum, 3, 7};
  const std::size_t bytes = kBytes / 4 * 4;
  const GuardedBuffer send(bytes, 0, gpus.pages()), result(bytes, 0, gpus.pages());
  constexpr std::uint64_t kFirst = 12;
  const auto count = [](std::span<std::byte> piece) { return piece.size() / 4; };
  send.memory().write([&](std::span<std::byte> piece, std::size_t at) {
    fill_input(spec, 1, at / 4, count(piece), piece.data());
  });
  result.memory().write([&](std::span<std::byte> piece, std::size_t at) {
    fill_expected(spec, kFirst + at / 4, count(piece), piece.data());
  });
  const Fingerprint fingerprint(send.memory());
  Findings good, bad_result, bad_send;
  check_result(spec, kFirst, result.memory(), good);
  check_send_unchanged(spec, 1, fingerprint, 0, bytes, good);
  EXPECT_EQ(good.wrong, 0u) << good.first;
  flip(result, kPiece + 4);
  flip(result, 2 * kPiece + 8);
  check_result(spec, kFirst, result.memory(), bad_result);
  EXPECT_EQ(bad_result.wrong, 2u);
  EXPECT_TRUE(bad_result.first.starts_with("index 1048577: ")) << bad_result.first;
  flip(send, 2 * kPiece + 4);
  check_send_unchanged(spec, 1, fingerprint, 0, bytes, bad_send);
  EXPECT_EQ(bad_send.wrong, 1u);
  EXPECT_NE(bad_send.first.find("from element 2097152: index 1: got"), std::string::npos)
      << bad_send.first;
}

}  // namespace
}  // namespace tutti::perf
