// SPDX-License-Identifier: Apache-2.0
// The tree over slots, and which configurations sum along it: each shape that is called canonical
// is played with sums as texts, "(0+1)", and must give the text of one rank.
#include "zero/slots.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "zero/tree.hpp"

namespace tutti::zero {
namespace {

using ::testing::HasSubstr;

// The sum of leaves in order, and the most that the stack held.
std::string summed(Order order, const std::vector<std::string>& leaves, int* deepest = nullptr) {
  std::vector<std::string> stack;
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    EXPECT_EQ(tree::position(order, leaf), static_cast<int>(stack.size()));
    stack.push_back(leaves[leaf]);
    if (deepest != nullptr) *deepest = std::max(*deepest, static_cast<int>(stack.size()));
    for (int left = tree::additions(order, leaf, leaves.size()); left > 0; --left) {
      const std::string top = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + "+" + top + ")";
    }
  }
  EXPECT_EQ(stack.size(), 1U);
  return stack.front();
}

std::vector<std::string> numbers(Range range) {
  std::vector<std::string> texts;
  for (std::uint64_t slot = range.begin; slot < range.end; ++slot)
    texts.push_back(std::to_string(slot));
  return texts;
}

// As the engine does it: slots, then microsteps if they are summed by each rank, then ranks of a
// group, then groups, then microsteps if they are reduced one by one.
std::string played(const SlotShape& shape) {
  const bool several = shape.each_microstep && shape.microsteps > 1;
  std::vector<std::string> reductions;
  for (int reduction = 0; reduction < (several ? shape.microsteps : 1); ++reduction) {
    std::vector<std::string> groups;
    for (int group = 0; group < shape.ranks / shape.group_ranks; ++group) {
      std::vector<std::string> ranks;
      for (int i = 0; i < shape.group_ranks; ++i) {
        std::vector<std::string> leaves;
        const int first = several ? reduction : 0,
                  last = several ? reduction + 1 : shape.microsteps;
        for (int micro = first; micro < last; ++micro)
          for (const std::string& leaf : numbers(shape.of(group * shape.group_ranks + i, micro)))
            leaves.push_back(leaf);
        ranks.push_back(summed(Order::kCanonical, leaves));
      }
      groups.push_back(summed(Order::kCanonical, ranks));
    }
    reductions.push_back(summed(Order::kCanonical, groups));
  }
  return summed(Order::kCanonical, reductions);
}

TEST(ZeroTree, IsABinaryCounter) {
  EXPECT_EQ(summed(Order::kCanonical, numbers({0, 1})), "0");
  EXPECT_EQ(summed(Order::kCanonical, numbers({0, 4})), "((0+1)+(2+3))");
  EXPECT_EQ(summed(Order::kCanonical, numbers({0, 7})), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(summed(Order::kFast, numbers({0, 4})), "(((0+1)+2)+3)");
}

TEST(ZeroTree, PositionsAreWhatTheStackTakes) {
  for (const Order order : {Order::kCanonical, Order::kFast})
    for (std::uint64_t leaves = 1; leaves <= 70; ++leaves) {
      int deepest = 0;
      static_cast<void>(summed(order, numbers({0, leaves}), &deepest));
      EXPECT_EQ(tree::positions(order, leaves), deepest) << leaves;
    }
}

TEST(ZeroSlots, EachSlotHasOneRankAndMicrostep) {
  for (const bool each : {false, true}) {
    const SlotShape shape{24, 3, 4, 4, each};
    std::vector<int> seen(24);
    for (int rank = 0; rank < 4; ++rank)
      for (int micro = 0; micro < 3; ++micro)
        for (std::uint64_t slot = shape.of(rank, micro).begin; slot < shape.of(rank, micro).end;
             ++slot)
          ++seen[slot];
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

// Canonical if and only if the game gives the tree of one rank.
TEST(ZeroSlots, CanonicalShapesSumAlongTheTree) {
  int canonical = 0;
  for (int slots = 1; slots <= 48; ++slots)
    for (int ranks = 1; ranks <= slots; ++ranks)
      for (int micro = 1; ranks * micro <= slots; ++micro)
        for (int group = 1; group <= ranks; ++group)
          for (const bool each : {false, true}) {
            if (ranks % group != 0) continue;
            const SlotShape shape{slots, micro, ranks, group, each};
            EXPECT_EQ(shape.each() > 0, slots % (ranks * micro) == 0);
            if (shape.each() == 0) continue;
            const bool same =
                played(shape) ==
                summed(Order::kCanonical, numbers({0, static_cast<std::uint64_t>(slots)}));
            canonical += shape.is_canonical() ? 1 : 0;
            // More shapes happen to fit than the rule admits, like 3 microsteps of 1 slot.
            EXPECT_TRUE(same || !shape.is_canonical())
                << slots << " slots " << ranks << " ranks " << micro << " microsteps, groups of "
                << group << (each ? ", each" : "");
          }
  EXPECT_GT(canonical, 300);
}

TEST(ZeroSlots, NamedShapesOfTheDocumentationFit) {
  for (const int ranks : {1, 2, 4, 8})
    EXPECT_TRUE((SlotShape{8, 1, ranks, ranks, false}.is_canonical()));
  for (const int ranks : {1, 3, 6, 12})
    EXPECT_TRUE((SlotShape{12, 1, ranks, ranks, false}.is_canonical()));
  for (const int ranks : {2, 4})
    EXPECT_FALSE((SlotShape{12, 1, ranks, ranks, false}.is_canonical()));
  for (const int micro : {1, 2, 4}) {
    EXPECT_TRUE((SlotShape{8, micro, 2, 2, false}.is_canonical()));
    EXPECT_TRUE((SlotShape{8, micro, 2, 2, true}.is_canonical()));
  }
  EXPECT_FALSE((SlotShape{12, 1, 6, 3, false}.is_canonical()));
  EXPECT_TRUE((SlotShape{12, 1, 6, 2, false}.is_canonical()));
}

TEST(ZeroSlots, WhatDoesNotFitIsToldWithWhatWould) {
  EXPECT_EQ(why_not({8, 1, 4, 4, false}, Order::kCanonical), "");
  EXPECT_EQ(why_not({12, 1, 4, 4, false}, Order::kFast), "");
  const std::string order = why_not({12, 1, 4, 4, false}, Order::kCanonical);
  EXPECT_THAT(order, HasSubstr("12 slots cannot be summed in canonical order by 4 ranks"));
  EXPECT_THAT(order, HasSubstr("slots would do: 4, 8, 16, 32, 64"));
  EXPECT_THAT(order, HasSubstr("ranks would do: 1, 3, 6, 12"));
  EXPECT_THAT(order, HasSubstr("kFast"));
  const std::string parts = why_not({8, 1, 3, 3, false}, Order::kFast);
  EXPECT_THAT(parts, HasSubstr("8 slots cannot be dealt out equally to 3 ranks"));
  EXPECT_THAT(parts, HasSubstr("slots would do: 3, 6, 9"));
}

}  // namespace
}  // namespace tutti::zero
