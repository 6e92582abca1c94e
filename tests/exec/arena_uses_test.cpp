// SPDX-License-Identifier: Apache-2.0
#include "exec/arena_uses.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/seed.hpp"

namespace tutti::test {
namespace {

TEST(ArenaUses, PlansThatAlternateWaitForNobody) {
  ArenaUses arena(1 << 20);
  ArenaUses::Use& scatter = arena.add(300 << 10);
  ArenaUses::Use& gather = arena.add(300 << 10);
  for (std::uint64_t operation = 1; operation < 10; operation += 2) {
    EXPECT_EQ(scatter.barrier(), 0u);
    scatter.last_operation = operation;
    EXPECT_EQ(gather.barrier(), 0u);
    gather.last_operation = operation + 1;
  }
}

TEST(ArenaUses, AFullArenaBeginsAgainAndWaitsForWhatItOverlaps) {
  ArenaUses arena(1 << 20);
  ArenaUses::Use& first = arena.add(600 << 10);
  ArenaUses::Use& second = arena.add(400 << 10);
  first.last_operation = 1;
  second.last_operation = 2;
  ArenaUses::Use& third = arena.add(500 << 10);
  EXPECT_EQ(third.begin, 0u);
  EXPECT_EQ(third.barrier(), 1u) << "not of the second, which lies elsewhere";
  third.last_operation = 3;
  EXPECT_EQ(first.barrier(), 3u);
  EXPECT_EQ(second.barrier(), 0u);
  arena.remove(third);
  EXPECT_EQ(first.barrier(), 3u) << "its readers may be reading still";
  EXPECT_EQ(arena.add(1 << 20).barrier(), 3u);
}

// Against the definition: whoever used a byte of the range before.
TEST(ArenaUses, BarriersAreThoseOfTheLastUsersOfEachByte) {
  constexpr std::uint64_t kArena = 64 << 10;
  const unsigned seed = draw_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ArenaUses arena(kArena);
  std::vector<ArenaUses::Use*> plans;
  struct Touch {
    const ArenaUses::Use* plan;
    std::uint64_t begin, end, operation;
  };
  std::vector<Touch> touches;
  for (std::uint64_t operation = 1; operation < 2000; ++operation) {
    if (plans.empty() || random() % 8 == 0) plans.push_back(&arena.add(1 + random() % kArena));
    if (plans.size() > 12) {
      const auto gone = plans.begin() + static_cast<std::ptrdiff_t>(random() % plans.size());
      arena.remove(**gone);
      for (Touch& touch : touches)
        if (touch.plan == *gone) touch.plan = nullptr;  // a later plan may get its address
      plans.erase(gone);
    }
    ArenaUses::Use& use = *plans[random() % plans.size()];
    ASSERT_LE(use.end, kArena);
    std::uint64_t needed = 0;
    for (const Touch& touch : touches)
      if (touch.plan != &use && touch.begin < use.end && use.begin < touch.end)
        needed = std::max(needed, touch.operation);
    ASSERT_GE(use.barrier(), needed);
    ASSERT_LT(use.barrier(), operation);
    use.last_operation = operation;
    touches.push_back({&use, use.begin, use.end, operation});
  }
}

}  // namespace
}  // namespace tutti::test
