// SPDX-License-Identifier: Apache-2.0
// Cards and immediates, and what a peer's messages may touch.
#include "transports/verbs/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace tutti::verbs {
namespace {

using ::testing::HasSubstr;

Card sound_card() {
  Card card;
  card.arena_address = 4096;
  card.arena_bytes = 65536;
  card.landing_address = 1 << 20;
  card.queue_pair = 17;
  card.mtu = 3;
  return card;
}

Result<Card> read(const Card& card) {
  return read_card(std::as_bytes(std::span(&card, 1)), sound_card());
}

TEST(VerbsWire, ACardIsReadAsItWasWritten) {
  const auto card = read(sound_card());
  ASSERT_TRUE(card) << card.error().message;
  EXPECT_EQ(std::memcmp(&*card, std::as_bytes(std::span(&*card, 1)).data(), sizeof *card), 0);
  EXPECT_EQ(card->queue_pair, 17U);
}

TEST(VerbsWire, CardsThatCannotBeAreRefusedWithTheReason) {
  const auto refused = [](const char* why, auto&& change) {
    Card card = sound_card();
    change(card);
    const auto result = read(card);
    ASSERT_FALSE(result) << why;
    EXPECT_EQ(result.error().code, Code::kRemoteError);
    EXPECT_THAT(result.error().message, HasSubstr(why));
  };
  refused("another version", [](Card& card) { ++card.magic; });
  refused("do not mix", [](Card& card) { card.link_layer = LinkLayer::kInfiniBand; });
  refused("another size", [](Card& card) { card.arena_bytes *= 2; });
  refused("impossible numbers", [](Card& card) { card.queue_pair = kMostNumber24 + 1; });
  refused("impossible numbers", [](Card& card) { card.first_psn = UINT32_MAX; });
  refused("impossible numbers", [](Card& card) { card.mtu = 0; });
  refused("impossible numbers", [](Card& card) { card.mtu = 6; });
  refused("impossible numbers", [](Card& card) { card.zero[2] = 1; });
  refused("impossible numbers", [](Card& card) { card.arena_address = UINT64_MAX; });
  refused("impossible numbers", [](Card& card) { card.landing_address = UINT64_MAX - 100; });
  const Card card = sound_card();
  const auto shorter = read_card(std::as_bytes(std::span(&card, 1)).first(71), card);
  ASSERT_FALSE(shorter);
  EXPECT_THAT(shorter.error().message, HasSubstr("71 bytes instead of 72"));
}

TEST(VerbsWire, ImmediatesComeBack) {
  for (const Kind kind : {Kind::kHello, Kind::kSlot, Kind::kCells, Kind::kBye})
    for (const std::uint8_t index : std::initializer_list<std::uint8_t>{0, 3, 8, 15})
      for (const std::uint8_t cell : std::initializer_list<std::uint8_t>{0, 9, 15}) {
        const Immediate it{.kind = kind,
                           .index = index,
                           .first_cell = cell,
                           .done = 0x3d,
                           .consumed = 0xab,
                           .number = 0xfe};
        const Immediate back = decode(encode(it));
        EXPECT_EQ(encode(back), encode(it));
        EXPECT_EQ(back.first_cell, cell);
        EXPECT_EQ(back.index, index);
        EXPECT_EQ(back.done, 0x3d);
        EXPECT_EQ(back.consumed, 0xab);
        EXPECT_EQ(back.number, 0xfe);
      }
}

// A rank's side of one pair.
struct Side {
  std::unique_ptr<Landing> landing = std::make_unique<Landing>();
  std::unique_ptr<PairArea> pair = std::make_unique<PairArea>();
  Arrivals arrivals;
  bool take(const Immediate& it, std::uint64_t bytes = 0) {
    return arrivals.take(encode(it), bytes, *landing, *pair);
  }
};

TEST(VerbsWire, CellsAppearOnceTheyAreAllThere) {
  Side side;
  std::uint64_t words[] = {77, 88, 99};  // epoch, signature, payload
  std::memcpy(side.landing->cells + 5 * kCellBytes, words, sizeof words);
  EXPECT_EQ(side.pair->cells[5].epoch.load(std::memory_order_relaxed), 0U);
  ASSERT_TRUE(side.take({.kind = Kind::kCells, .index = 2, .first_cell = 5, .number = 1}, 24));
  EXPECT_EQ(side.pair->cells[5].epoch.load(std::memory_order_relaxed), 77U);
  EXPECT_EQ(side.pair->cells[5].signature.load(std::memory_order_relaxed), 88U);
  EXPECT_EQ(std::memcmp(side.pair->cells[5].payload, words + 2, 8), 0);
}

TEST(VerbsWire, SlotsAreCountedByIndexAcrossBothKinds) {
  Side side;
  ASSERT_TRUE(side.take({.kind = Kind::kSlot, .index = 1, .number = 1}));
  ASSERT_TRUE(side.take({.kind = Kind::kCells, .index = 1, .number = 2}, 16));
  ASSERT_TRUE(side.take({.kind = Kind::kSlot, .index = 0, .number = 1}));
  EXPECT_EQ(side.pair->words[1].produced.load(std::memory_order_relaxed), 1U);
  ASSERT_TRUE(side.take({.kind = Kind::kSlot, .index = 1, .number = 3}));
  EXPECT_EQ(side.pair->words[1].produced.load(std::memory_order_relaxed), 3U);
  EXPECT_EQ(side.pair->words[0].produced.load(std::memory_order_relaxed), 1U);
}

TEST(VerbsWire, TheCountOutlastsTheBitsThatTheImmediateHas) {
  Side side;
  constexpr std::uint64_t kMessages = 70'000;
  for (std::uint64_t number = 1; number <= kMessages; ++number)
    ASSERT_TRUE(side.take({.kind = Kind::kSlot, .number = static_cast<std::uint8_t>(number)}));
  EXPECT_EQ(side.pair->words[0].produced.load(std::memory_order_relaxed), kMessages);
}

TEST(VerbsWire, CreditsComeWithMessagesAndBesideThemAndNeverGoBack) {
  EXPECT_EQ(later_count(0, 64, 8), 64U);
  EXPECT_EQ(later_count(250, 4, 8), 260U);
  EXPECT_EQ(later_count(260, 250, 8), 260U);
  Side side;
  std::uint64_t number = 0;
  const auto message = [&](std::uint64_t consumed) {
    return side.take({.kind = Kind::kSlot,
                      .index = 3,
                      .consumed = static_cast<std::uint8_t>(consumed),
                      .number = static_cast<std::uint8_t>(++number)});
  };
  ASSERT_TRUE(message(60));
  EXPECT_EQ(side.arrivals.consumed(3, 0), 60U);
  EXPECT_EQ(side.arrivals.consumed(3, 100), 100U);
  ASSERT_TRUE(message(90));  // sent before, read after
  EXPECT_EQ(side.arrivals.consumed(3, 100), 100U);
  for (std::uint64_t consumed = 110; consumed < 2000; consumed += 50) {
    ASSERT_TRUE(message(consumed));
    EXPECT_EQ(side.arrivals.consumed(3, 100), consumed);
  }
  EXPECT_EQ(side.arrivals.consumed(2, 0), 0U);
}

// A message that was sent before the Returns and is taken after them.
TEST(VerbsWire, LateCreditsAreNoneThatThereAreNot) {
  for (std::uint64_t lag = 0; lag < 128; ++lag)
    for (const std::uint64_t consumed : {0U, 100U, 250U, 1000U}) {
      Side side;
      EXPECT_EQ(side.arrivals.consumed(3, consumed + lag), consumed + lag);
      ASSERT_TRUE(side.take({.kind = Kind::kSlot,
                             .index = 3,
                             .consumed = static_cast<std::uint8_t>(consumed),
                             .number = 1}));
      EXPECT_EQ(side.arrivals.consumed(3, 0), consumed + lag) << "lag " << lag;
    }
}

TEST(VerbsWire, DoneComesWithMessagesAndBesideThemAndNeverGoesBack) {
  Side side;
  std::uint64_t number = 0;
  const auto message = [&](std::uint64_t done) {
    return side.take({.kind = Kind::kSlot,
                      .done = static_cast<std::uint8_t>(done & 63),
                      .number = static_cast<std::uint8_t>(++number)});
  };
  ASSERT_TRUE(message(30));
  EXPECT_EQ(side.arrivals.done(0), 30U);
  EXPECT_EQ(side.arrivals.done(encode_done(1000, number)), 1000U);
  EXPECT_EQ(side.arrivals.done(encode_done(990, 0)), 1000U);
  for (std::uint64_t done = 1010; done < 3000; done += kMostUntold) {
    ASSERT_TRUE(message(done));
    EXPECT_EQ(side.arrivals.done(encode_done(1000, 1)), done);
  }
}

// Empty calls make `done` grow without messages: one that was sent before the Returns and is taken
// after them may be older by any number of operations.
TEST(VerbsWire, DoneIsNeverMoreThanTheSenderSaid) {
  for (std::uint64_t lag = 0; lag < 1000; ++lag)
    for (const std::uint64_t said : {0U, 1U, 70U, 127U, 5000U}) {
      Side side;
      const auto message = [&](std::uint64_t done, std::uint8_t number) {
        return side.take({.done = static_cast<std::uint8_t>(done & 63), .number = number});
      };
      if (said > 0) {
        EXPECT_EQ(side.arrivals.done(encode_done(said, 0)), said);
      }
      const std::uint64_t returned = encode_done(said + lag, 1);
      EXPECT_EQ(side.arrivals.done(returned), said) << "before the message";
      ASSERT_TRUE(message(said, 1));
      EXPECT_EQ(side.arrivals.done(returned), said + lag);
      ASSERT_TRUE(message(said + lag + kMostUntold, 2));
      EXPECT_EQ(side.arrivals.done(returned), said + lag + kMostUntold);
    }
}

TEST(VerbsWire, DoneCountsAlsoWhereTheCountOfImmediatesHasComeRound) {
  Side side;
  ASSERT_TRUE(side.take({.kind = Kind::kHello}));
  EXPECT_EQ(side.arrivals.done(encode_done(9, 2)), 0U);
  EXPECT_EQ(side.arrivals.done(encode_done(9, (1U << 24) + 2)), 0U);
  EXPECT_EQ(side.arrivals.done(encode_done(9, (1U << 24) + 1)), 9U);
  EXPECT_EQ(side.arrivals.done(encode_done((std::uint64_t{1} << 40) - 1, 1)),
            (std::uint64_t{1} << 40) - 1);
}

TEST(VerbsWire, WhatNoCorrectRankSendsIsRefused) {
  const auto refused = [](const Immediate& it, std::uint64_t bytes) {
    Side side;
    const bool taken = side.take(it, bytes);
    const PairArea untouched{};
    EXPECT_EQ(std::memcmp(side.pair.get(), &untouched, sizeof untouched), 0);
    return !taken;
  };
  EXPECT_TRUE(refused({.kind = Kind::kSlot, .number = 2}, 64));
  EXPECT_TRUE(refused({.kind = Kind::kSlot, .number = 0}, 64));
  for (const Kind kind : {Kind::kHello, Kind::kSlot, Kind::kCells, Kind::kBye})
    EXPECT_TRUE(refused({.kind = kind, .index = kMaxConnectionsPerPair, .number = 1}, 64));
  EXPECT_TRUE(refused({.kind = Kind::kCells, .number = 1}, 15));
  EXPECT_TRUE(refused({.kind = Kind::kCells, .number = 1}, 8193));
  EXPECT_TRUE(refused({.kind = Kind::kCells, .first_cell = 15, .number = 1}, 513));
  Side side;
  EXPECT_TRUE(side.take({.kind = Kind::kHello}));
  EXPECT_FALSE(side.take({.kind = Kind::kHello}));
  EXPECT_TRUE(side.take({.kind = Kind::kBye}));
  EXPECT_TRUE(side.arrivals.has_left());
  EXPECT_FALSE(side.take({.kind = Kind::kSlot, .number = 1}));
}

}  // namespace
}  // namespace tutti::verbs
