// SPDX-License-Identifier: Apache-2.0
// What a spec may not be beyond what the conformance suite tries: sizes that no test's arena has.
// And where the slots of sends and receives lie.
#include "transports/spec_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "transports/pair_slots.hpp"

namespace tutti {
namespace {

TEST(SpecCheck, ASlotIsNoLargerThanAMessageCanBe) {
  constexpr SpecLimits kLimits{.ranks = 2, .arena_bytes = std::uint64_t{64} << 30};
  ConnectionSpec spec{.source = 0,
                      .destination = 1,
                      .protocol = Protocol::kSlots,
                      .slots = 2,
                      .slot_bytes = kMaxSlotBytes};
  EXPECT_TRUE(check_spec(spec, kLimits));
  for (const std::uint64_t bytes :
       {kMaxSlotBytes + 64, (std::uint64_t{1} << 32) + 64, std::uint64_t{32} << 30}) {
    spec.slot_bytes = bytes;
    const Status status = check_spec(spec, kLimits);
    ASSERT_FALSE(status) << bytes;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(status.error().message, "connection 0 -> 1 #0: slots may not be larger than 2 GiB");
  }
}

TEST(SpecCheck, ShortCellsArePartOfThePairs) {
  constexpr SpecLimits kLimits{.ranks = 2, .arena_bytes = 4096};
  ConnectionSpec spec{.source = 0, .destination = 1, .slots = 2};
  for (const auto& [index, slots, good] :
       {std::tuple{0U, 64U, true}, std::tuple{1U, 32U, true}, std::tuple{7U, 8U, true},
        std::tuple{1U, 64U, false}, std::tuple{0U, 65U, false}, std::tuple{7U, 9U, false},
        std::tuple{7U, 0x20000000U, false}}) {
    spec.index = index;
    spec.short_slots = slots;
    EXPECT_EQ(check_spec(spec, kLimits).has_value(), good) << index << ' ' << slots;
  }
}

TEST(PairSlots, LieBehindThePlansPartAndApart) {
  for (const std::int32_t ranks : {2, 3, 8, 100, 5000})
    for (const std::uint64_t plans : {0UL, 1000UL, 64UL << 10, 2UL << 20, 1UL << 30}) {
      const PairSlots slots(ranks, plans);
      const SpecLimits limits{.ranks = ranks, .arena_bytes = slots.arena_bytes()};
      std::uint64_t end = plans;
      for (Rank source = 0; source < ranks; ++source) {
        const ConnectionSpec spec = slots.spec(source, (source + 1) % ranks);
        ASSERT_TRUE(check_spec(spec, limits)) << ranks << " ranks, " << plans << " bytes";
        EXPECT_GE(spec.slot_bytes, PairSlots::kLeastSlotBytes);
        EXPECT_LE(spec.slot_bytes, PairSlots::kMostSlotBytes);
        ASSERT_GE(spec.arena_offset_bytes, end);
        end = spec.arena_offset_bytes + spec.slots * spec.slot_bytes;
      }
      EXPECT_EQ(end, slots.arena_bytes());
      // No more than half of the plans' part, unless slots could not be smaller.
      const std::uint64_t least =
          PairSlots::kSlots * PairSlots::kLeastSlotBytes * static_cast<std::uint64_t>(ranks);
      EXPECT_LE(slots.arena_bytes(), plans + kCacheLineBytes + std::max(plans / 2, least));
    }
  EXPECT_EQ(PairSlots(4, 2 << 20).spec(0, 1).slot_bytes, 64U << 10);
}

}  // namespace
}  // namespace tutti
