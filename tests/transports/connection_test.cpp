// SPDX-License-Identifier: Apache-2.0
// The operations on a connection, both ends in one thread over plain memory: layout, wrap-around,
// credits, and what a lying peer can and cannot do. Concurrency: interleaving_test.cpp.
#include "transports/connection.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "transports/connection_ops.hpp"

namespace tutti {
namespace {

// Both ends of one pair's connections in this process's memory.
struct Pair {
  std::unique_ptr<Cell[]> cells = std::make_unique<Cell[]>(kCellsPerPair);
  std::unique_ptr<Cell[]> short_cells = std::make_unique<Cell[]>(kShortCellsPerPair);
  alignas(64) std::byte arena[8 * 1024] = {};
  ConnectionWords words{};
  ConnectionState sent, received;

  [[nodiscard]] Connection flagged(ConnectionState& state, std::uint32_t slots,
                                   std::uint32_t cells_per_slot) {
    Connection c;
    c.protocol = Protocol::kFlagged;
    c.slots = slots;
    c.cells_per_slot = cells_per_slot;
    c.cells = cells.get();
    c.words = &words;
    c.state = &state;
    return c;
  }
  [[nodiscard]] Connection with_short_cells(ConnectionState& state, std::uint32_t slots) {
    Connection c = flagged(state, slots, 2);
    c.short_cells = short_cells.get();
    c.other_slots = kShortCellsPerPair;
    return c;
  }
  [[nodiscard]] Connection slotted(ConnectionState& state, std::uint32_t slots,
                                   std::uint64_t slot_bytes) {
    Connection c;
    c.protocol = Protocol::kSlots;
    c.slots = slots;
    c.slot_bytes = slot_bytes;
    c.arena = arena;
    c.words = &words;
    c.state = &state;
    return c;
  }
};

void pass(Connection& sender, Connection& receiver, std::uint64_t value) {
  ASSERT_TRUE(can_send(sender));
  std::memcpy(send_slot(sender).base, &value, sizeof value);
  ASSERT_FALSE(can_recv(receiver));
  commit(sender, value ^ 7, sizeof value);
  ASSERT_TRUE(can_recv(receiver));
  EXPECT_EQ(recv_signature(receiver), value ^ 7);
  std::uint64_t got = 0;
  std::memcpy(&got, recv_slot(receiver).base, sizeof got);
  EXPECT_EQ(got, value);
  release(receiver);
}

TEST(ConnectionLayout, CellsForCountsWholeCellsAndOneForNothing) {
  EXPECT_EQ(cells_for(0), 1U);
  EXPECT_EQ(cells_for(1), 1U);
  EXPECT_EQ(cells_for(kCellPayloadBytes - 1), 1U);
  EXPECT_EQ(cells_for(kCellPayloadBytes), 1U);
  EXPECT_EQ(cells_for(kCellPayloadBytes + 1), 2U);
  EXPECT_EQ(cells_for(16 * kCellPayloadBytes), 16U);
}

TEST(ConnectionLayout, FirstPayloadLineIsTheEpochsLine) {
  EXPECT_EQ(offsetof(Cell, payload) + 48, kCacheLineBytes);
}

TEST(ConnectionLayout, SlotViewsFollowStrideAndWrap) {
  Pair pair;
  Connection c = pair.flagged(pair.sent, 3, 2);
  pair.sent.next = 7;
  begin_operation(c, 1);
  EXPECT_EQ(send_slot(c).base, pair.cells[2].payload);
  EXPECT_EQ(send_slot(c).segment_bytes, 496U);
  EXPECT_EQ(send_slot(c).segment_stride, 512U);
  EXPECT_EQ(capacity_bytes(c), 992U);
  Connection s = pair.slotted(pair.sent, 4, 1024);
  begin_operation(s, 1);
  EXPECT_EQ(send_slot(s).base, pair.arena + 3 * 1024 + 64);
  EXPECT_EQ(send_slot(s).segment_bytes, 960U);
  EXPECT_EQ(capacity_bytes(s), 960U);
}

TEST(ConnectionLayout, ShortCellsAreInThePlaceOfTheOthersAndGoAgain) {
  Pair pair;
  Connection c = pair.with_short_cells(pair.sent, 8);
  pair.sent.next = 13;
  use_short_cells(c, true);
  begin_operation(c, 1);
  EXPECT_EQ(c.slots, 64U);
  EXPECT_EQ(send_slot(c).base, pair.short_cells[13].payload);
  EXPECT_EQ(capacity_bytes(c), 496U);
  for (const bool twice : {false, true}) {
    use_short_cells(c, false);
    begin_operation(c, 2);
    EXPECT_EQ(c.slots, 8U) << twice;
    EXPECT_EQ(send_slot(c).base, pair.cells[2 * 5].payload);
  }
  Connection without = pair.flagged(pair.sent, 8, 2);
  use_short_cells(without, true);
  EXPECT_EQ(without.slots, 8U);
  EXPECT_EQ(capacity_bytes(without), 992U);
}

TEST(ConnectionLayout, EpochsOfOperationsDoNotMeet) {
  EXPECT_NE(make_epoch(1, 0), 0U);
  EXPECT_LT(make_epoch(1, (1U << 24) - 2), make_epoch(2, 0));
}

TEST(ConnectionLayout, ProtocolsHaveNames) {
  EXPECT_STREQ(name_of(Protocol::kFlagged), "flagged");
  EXPECT_STREQ(name_of(Protocol::kSlots), "slots");
  EXPECT_STREQ(name_of(Protocol::kDirect), "direct");
}

TEST(ConnectionMessages, PassOverManyOperationsAndWraps) {
  for (const std::uint32_t slots : {1U, 2U, 3U, 8U}) {
    Pair pair;
    Connection out[] = {pair.flagged(pair.sent, slots, 2), pair.slotted(pair.sent, slots, 1024)};
    Connection in[] = {pair.flagged(pair.received, slots, 2),
                       pair.slotted(pair.received, slots, 1024)};
    for (std::uint64_t operation = 1; operation < 40; ++operation) {
      Connection& sender = out[operation % 3 == 0];
      Connection& receiver = in[operation % 3 == 0];
      begin_operation(sender, operation);
      begin_operation(receiver, operation);
      for (std::uint64_t i = 0; i < operation % 7; ++i) pass(sender, receiver, operation * 10 + i);
    }
  }
}

// Of each kind so many as have cells, whatever lay in the others before.
TEST(ConnectionMessages, AlternateBetweenShortCellsAndOthers) {
  Pair pair;
  Connection sender = pair.with_short_cells(pair.sent, 8);
  Connection receiver = pair.with_short_cells(pair.received, 8);
  for (std::uint64_t operation = 1; operation < 50; ++operation) {
    const bool is_short = operation % 3 != 0;
    for (Connection* const end : {&sender, &receiver}) {
      use_short_cells(*end, is_short);
      begin_operation(*end, operation);
    }
    const std::uint64_t most = is_short ? 64 : 8;
    for (std::uint64_t i = 0; i < most; ++i) {
      ASSERT_TRUE(can_send(sender)) << operation << ' ' << i;
      std::memcpy(send_slot(sender).base, &i, sizeof i);
      commit(sender, operation, sizeof i);
    }
    EXPECT_FALSE(can_send(sender)) << operation;
    for (std::uint64_t i = 0; i < most - operation % 2; ++i) {
      ASSERT_TRUE(can_recv(receiver)) << operation << ' ' << i;
      EXPECT_EQ(recv_signature(receiver), operation);
      EXPECT_EQ(std::memcmp(recv_slot(receiver).base, &i, sizeof i), 0);
      release(receiver);
    }
    if (operation % 2 == 0) continue;
    ASSERT_TRUE(can_send(sender));  // beside the one that has not been read
    commit(sender, operation, 0);
    release(receiver);
    release(receiver);
  }
}

TEST(ConnectionMessages, EveryUsedCellCarriesTheEpochAndNoOther) {
  Pair pair;
  Connection sender = pair.flagged(pair.sent, 2, 4);
  begin_operation(sender, 5);
  commit(sender, 9, kCellPayloadBytes + 1);
  EXPECT_EQ(pair.cells[0].epoch.load(std::memory_order_relaxed), make_epoch(5, 0));
  EXPECT_EQ(pair.cells[1].epoch.load(std::memory_order_relaxed), make_epoch(5, 0));
  EXPECT_EQ(pair.cells[1].signature.load(std::memory_order_relaxed), 9U);
  EXPECT_EQ(pair.cells[2].epoch.load(std::memory_order_relaxed), 0U);
}

TEST(ConnectionMessages, SlotHeaderSaysSignatureAndBytes) {
  Pair pair;
  Connection sender = pair.slotted(pair.sent, 2, 1024);
  begin_operation(sender, 1);
  commit(sender, 11, 777);
  EXPECT_EQ(slot_header(sender, 0).signature, 11U);
  EXPECT_EQ(slot_header(sender, 0).bytes, 777U);
}

TEST(ConnectionCredits, SenderThatIsAheadInAnOperationWithMoreSlotsIsNotCorrupt) {
  // Other memory, so no wait for done: the sender may be one operation ahead with more slots.
  Pair pair;
  Connection receiver = pair.slotted(pair.received, 2, 512);
  Connection first = pair.slotted(pair.sent, 2, 512);
  begin_operation(receiver, 1);
  begin_operation(first, 1);
  commit(first, 1, 8);
  commit(first, 1, 8);
  Connection second = pair.slotted(pair.sent, 8, 512);
  second.arena += 2 * 512;
  begin_operation(second, 2);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(can_send(second));
    commit(second, 2, 8);
  }
  EXPECT_FALSE(can_send(second));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(can_recv(receiver));
    EXPECT_EQ(recv_signature(receiver), 1U);
    release(receiver);
  }
  EXPECT_FALSE(is_corrupt(receiver));
}

TEST(ConnectionCredits, SenderThatWentToFewerSlotsWaits) {
  Pair pair;
  Connection wide = pair.flagged(pair.sent, 8, 1);
  begin_operation(wide, 1);
  for (int i = 0; i < 8; ++i) commit(wide, 1, 8);
  Connection narrow = pair.slotted(pair.sent, 2, 512);
  begin_operation(narrow, 2);
  EXPECT_FALSE(can_send(narrow));
  pair.words.consumed.store(6, std::memory_order_relaxed);
  EXPECT_FALSE(can_send(narrow));
  pair.words.consumed.store(7, std::memory_order_relaxed);
  EXPECT_TRUE(can_send(narrow));
  EXPECT_FALSE(is_corrupt(narrow));
}

TEST(ConnectionLies, ConsumedBeyondSentOrBackwardsIsCorrupt) {
  for (const std::uint64_t lie : {std::uint64_t{3}, std::uint64_t{0}, UINT64_MAX}) {
    Pair pair;
    pair.sent = {.next = 2, .seen = 1};
    Connection sender = pair.flagged(pair.sent, 1, 1);
    begin_operation(sender, 1);
    pair.words.consumed.store(lie, std::memory_order_relaxed);
    EXPECT_FALSE(can_send(sender)) << lie;
    EXPECT_TRUE(is_corrupt(sender)) << lie;
    pair.words.consumed.store(2, std::memory_order_relaxed);
    EXPECT_FALSE(can_send(sender)) << "corrupt must be sticky";
  }
}

TEST(ConnectionLies, ProducedTooFarOrBackwardsIsCorrupt) {
  for (const std::uint64_t lie : {std::uint64_t{5 + kMaxSlots + 1}, std::uint64_t{4}, UINT64_MAX}) {
    Pair pair;
    pair.received = {.next = 5, .seen = 5};
    Connection receiver = pair.slotted(pair.received, 2, 512);
    begin_operation(receiver, 1);
    pair.words.produced.store(lie, std::memory_order_relaxed);
    EXPECT_FALSE(can_recv(receiver)) << lie;
    EXPECT_TRUE(is_corrupt(receiver)) << lie;
  }
}

TEST(ConnectionLies, AnyOtherEpochIsNoMessage) {
  Pair pair;
  Connection receiver = pair.flagged(pair.received, 2, 1);
  begin_operation(receiver, 3);
  for (const std::uint64_t lie :
       {make_epoch(2, 0), make_epoch(3, 1), make_epoch(4, 0), UINT64_MAX}) {
    pair.cells[0].epoch.store(lie, std::memory_order_relaxed);
    EXPECT_FALSE(can_recv(receiver)) << lie;
  }
  pair.cells[0].epoch.store(make_epoch(3, 0), std::memory_order_relaxed);
  EXPECT_TRUE(can_recv(receiver));
}

}  // namespace
}  // namespace tutti
