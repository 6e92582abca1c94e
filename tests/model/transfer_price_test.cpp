// SPDX-License-Identifier: Apache-2.0
// What sends and receives take, compared with the formula and with each other.
#include "model/transfer_price.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

constexpr HostCosts kCosts{.alpha_ns = 100,
                           .step_ns = 10,
                           .beta_ns_per_byte = 0.5,
                           .message_ns_per_byte = 0.25,
                           .switch_ns = 1000};
constexpr double kCopy = 2 * 0.5 + 0.25;  // of a byte, into a slot or out of it
constexpr double kCall = kCallSteps * 10;
constexpr std::uint64_t kSlot = 1000;
constexpr std::uint32_t kSlots = 4;
constexpr LinkCost kWire{
    .alpha_ns = 10'000, .beta_ns_per_byte = 8, .overhead_ns = 500, .overhead_ns_per_byte = 1};

TransferFlow flow(bool sends, std::uint64_t bytes, bool far = false) {
  TransferFlow made{.sends = sends, .far = far};
  made.add(bytes, kSlot);
  return made;
}

double price(const std::vector<TransferFlow>& flows, std::int32_t ranks = 2, std::int32_t cores = 2,
             std::uint64_t to_self_bytes = 0) {
  return price_transfers(kCosts, {.flows = flows,
                                  .calls = flows.size() + (to_self_bytes > 0 ? 2 : 0),
                                  .to_self_bytes = to_self_bytes,
                                  .slots = kSlots,
                                  .ranks = ranks,
                                  .cores = cores,
                                  .wire = kWire});
}

TEST(TransferPrice, NothingTakesNothing) { EXPECT_EQ(price({}), 0); }

TEST(TransferPrice, AnEmptyMessageTakesALatencyAndAStepAtEachEnd) {
  EXPECT_DOUBLE_EQ(price({flow(true, 0)}), kCall + 100 + 2 * 10);
  EXPECT_DOUBLE_EQ(price({flow(false, 0)}), kCall + 100 + 2 * 10);
  EXPECT_DOUBLE_EQ(price({flow(true, 0, true)}), kCall + 10'000 + 2 * 10)
      << "a wire's alpha holds the overhead of both ends";
}

TEST(TransferPrice, OneMessageIsCopiedAtBothEndsOneAfterTheOther) {
  EXPECT_DOUBLE_EQ(price({flow(true, 600)}), kCall + 100 + 2 * (10 + 600 * kCopy));
}

TEST(TransferPrice, FurtherMessagesAreCopiedAtBothEndsAtTheSameTime) {
  const double slot = 10 + kSlot * kCopy;
  EXPECT_DOUBLE_EQ(price({flow(true, 10 * kSlot)}), kCall + 100 + 2 * slot + 9 * slot);
}

TEST(TransferPrice, ARankThatSendsAndReceivesCopiesBoth) {
  const double slot = 10 + kSlot * kCopy;
  EXPECT_DOUBLE_EQ(price({flow(true, 10 * kSlot), flow(false, 10 * kSlot)}),
                   2 * kCall + 100 + 20 * slot);
}

TEST(TransferPrice, NeverFallsWithMoreBytes) {
  for (const bool far : {false, true})
    for (const bool receives : {false, true}) {
      double before = 0;
      for (std::uint64_t bytes = 0; bytes < 12 * kSlot; ++bytes) {
        std::vector<TransferFlow> flows{flow(true, bytes, far)};
        if (receives) flows.push_back(flow(false, bytes, far));
        const double now = price(flows);
        ASSERT_GT(now, before) << bytes << " bytes";
        before = now;
      }
    }
}

TEST(TransferPrice, MorePeersTakeMore) {
  for (const bool far : {false, true})
    for (const std::uint64_t bytes : {std::uint64_t{1}, kSlot, 20 * kSlot}) {
      std::vector<TransferFlow> flows;
      double before = 0;
      for (int peers = 1; peers <= 8; ++peers) {
        flows.push_back(flow(true, bytes, far));
        const double now = price(flows);
        ASSERT_GT(now, before) << peers << " peers, " << bytes << " bytes";
        before = now;
      }
    }
}

TEST(TransferPrice, ManyCallsToOnePeerWaitForItsSlots) {
  constexpr HostCosts kLatencyAlone{.alpha_ns = 100};
  TransferFlow many{.sends = true};
  for (int call = 0; call < 41; ++call) many.add(1, kSlot);
  const std::vector<TransferFlow> flows{many};
  EXPECT_DOUBLE_EQ(price_transfers(kLatencyAlone, {.flows = flows, .slots = kSlots}),
                   100 + 40 * 100.0 / kSlots);
}

TEST(TransferPrice, BetweenHostsThePortMovesBothDirectionsAtOnce) {
  constexpr std::uint64_t kLarge = 1000 * kSlot;
  constexpr HostCosts kFree{};
  constexpr LinkCost kBytesAlone{.beta_ns_per_byte = 8};
  const auto on_wire = [&](const std::vector<TransferFlow>& flows) {
    return price_transfers(kFree, {.flows = flows, .slots = kSlots, .wire = kBytesAlone});
  };
  EXPECT_DOUBLE_EQ(on_wire({flow(true, kLarge, true)}), 8.0 * kLarge);
  EXPECT_DOUBLE_EQ(on_wire({flow(true, kLarge, true), flow(false, kLarge, true)}), 8.0 * kLarge);
  EXPECT_DOUBLE_EQ(on_wire({flow(true, kLarge, true), flow(true, kLarge, true)}), 16.0 * kLarge);
  EXPECT_DOUBLE_EQ(on_wire({flow(true, kLarge, false)}), 0) << "within a host there is no wire";
}

TEST(TransferPrice, ToItselfARankCopiesOnce) {
  EXPECT_DOUBLE_EQ(price({}, 1, 2, 5000), 2 * kCall + 5000 * 2 * 0.5);
  // Beside a message, it keeps the core busy.
  EXPECT_GT(price({flow(true, 600)}, 2, 2, 5000), price({}, 2, 2, 5000));
}

TEST(TransferPrice, RanksOfOneCoreTakeTurns) {
  const std::vector<TransferFlow> both{flow(true, 10 * kSlot), flow(false, 10 * kSlot)};
  const double alone = price(both, 4, 4), shared = price(both, 8, 4);
  const double turns = 3 * 2 * 1000;  // ten messages by four slots, for two ranks
  EXPECT_DOUBLE_EQ(shared, 2 * (alone - 100) + 100 + turns);
}

}  // namespace
}  // namespace tutti
