// SPDX-License-Identifier: Apache-2.0
// The ring of a pair's sends and receives, both ends in one thread: places, room, credits, lies.
#include "transports/pair_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "transports/connection.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kBytes = 32 << 10;

// Both ends of a ring in memory of its own.
struct Pair {
  alignas(kCacheLineBytes) std::byte memory[kBytes] = {};
  ConnectionWords words{};
  PairRing sender = make_ring(memory, kBytes, &words.consumed), receiver = sender;
  const std::uint64_t most = sender.message_bytes();

  // False: there is no room.
  bool send(std::uint64_t bytes, int value) {
    if (!can_send(sender, bytes)) return false;
    std::memset(send_place(sender, bytes), value, bytes);
    commit(sender, bytes + 1, bytes);
    return true;
  }
  void receive(std::uint64_t bytes, int value) {
    ASSERT_TRUE(can_recv(receiver));
    ASSERT_EQ(recv_signature(receiver), bytes + 1);
    const std::byte* const payload = recv_place(receiver, bytes);
    ASSERT_TRUE(std::all_of(payload, payload + bytes,
                            [value](std::byte each) { return each == std::byte(value); }));
    release(receiver, bytes);
  }
};

TEST(PairRing, SmallMessagesLieInTheirCell) {
  Pair pair;
  ASSERT_TRUE(pair.send(kRingCellPayloadBytes, 7));
  EXPECT_EQ(pair.sender.cells[0].payload[0], std::byte{7});
  EXPECT_EQ(pair.sender.state.bytes, 0U);
  ASSERT_TRUE(pair.send(kRingCellPayloadBytes + 1, 8));
  EXPECT_EQ(pair.sender.memory[0], std::byte{8});
  EXPECT_EQ(pair.sender.state.bytes, kRingCellPayloadBytes / 64 * 64 + 64);
  pair.receive(kRingCellPayloadBytes, 7);
  pair.receive(kRingCellPayloadBytes + 1, 8);
  EXPECT_FALSE(can_recv(pair.receiver));
}

// Of all sizes, with as many under way as fit, over many laps.
TEST(PairRing, PassesOverManyLaps) {
  Pair pair;
  const auto bytes_of = [&pair](std::uint64_t k) { return k * 37 % (pair.most + 1); };
  std::uint64_t sent = 0, received = 0;
  while (received < 5000) {
    while (sent < 5000 && pair.send(bytes_of(sent), static_cast<int>(sent % 251))) ++sent;
    ASSERT_GT(sent, received);
    const std::uint64_t some = received + 1 + (sent - received) / 2;
    for (; received < some && received < sent; ++received)
      ASSERT_NO_FATAL_FAILURE(pair.receive(bytes_of(received), static_cast<int>(received % 251)));
  }
}

TEST(PairRing, AsManySmallMessagesAsCellsAreUnderWay) {
  Pair pair;
  for (std::uint32_t i = 0; i < kMostRingCells; ++i) ASSERT_TRUE(pair.send(8, 1));
  EXPECT_FALSE(pair.send(8, 1));
  pair.receive(8, 1);
  EXPECT_TRUE(pair.send(8, 1));
  EXPECT_FALSE(pair.send(8, 1));
}

TEST(PairRing, ALargeMessageWaitsForBytesAndSmallOnesPassInTheirCells) {
  Pair pair;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pair.send(pair.most, i));
  EXPECT_FALSE(pair.send(pair.most, 4));
  EXPECT_FALSE(pair.send(kRingCellPayloadBytes + 1, 4));
  EXPECT_TRUE(pair.send(kRingCellPayloadBytes, 4));
  pair.receive(pair.most, 0);
  EXPECT_TRUE(pair.send(pair.most, 5));
}

TEST(PairRing, ConsumedBeyondSentOrBackwardsIsCorrupt) {
  for (const std::uint64_t lie : {std::uint64_t{100}, std::uint64_t{1}}) {
    Pair pair;
    for (std::uint32_t i = 0; i < kMostRingCells; ++i) ASSERT_TRUE(pair.send(8, 1));
    pair.receive(8, 1);
    pair.receive(8, 1);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(pair.send(8, 1));
    pair.words.consumed.store(lie, std::memory_order_release);
    EXPECT_FALSE(pair.send(8, 1));
    EXPECT_TRUE(is_corrupt(pair.sender));
    pair.words.consumed.store(kMostRingCells, std::memory_order_release);
    EXPECT_FALSE(pair.send(8, 1)) << "for good";
  }
}

TEST(PairRing, AnyOtherNumberIsNoMessage) {
  Pair pair;
  for (const std::uint64_t lie : {std::uint64_t{2}, ~std::uint64_t{0}, kMostRingCells + 1}) {
    pair.sender.cells[0].number.store(lie, std::memory_order_release);
    EXPECT_FALSE(can_recv(pair.receiver));
  }
}

// Of little memory: fewer cells, and still a message each way of waiting.
TEST(PairRing, HasAtMostHalfOfItsMemoryInCells) {
  alignas(kCacheLineBytes) std::byte memory[4096] = {};
  ConnectionWords words{};
  for (const std::uint64_t bytes : {4096UL, 8192UL, 64UL << 10, 256UL << 10}) {
    const PairRing ring = make_ring(memory, bytes, &words.consumed);
    EXPECT_TRUE(std::has_single_bit(ring.cell_count));
    EXPECT_LE(ring.cell_count * kRingCellBytes, bytes / 2);
    EXPECT_EQ(ring.cell_count * kRingCellBytes + ring.memory_bytes, bytes);
    EXPECT_GT(ring.message_bytes(), kRingCellPayloadBytes);
  }
  PairRing sender = make_ring(memory, sizeof memory, &words.consumed), receiver = sender;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(can_send(sender, sender.message_bytes()));
    commit(sender, 1, sender.message_bytes());
    ASSERT_TRUE(can_recv(receiver));
    release(receiver, sender.message_bytes());
  }
}

}  // namespace
}  // namespace tutti
