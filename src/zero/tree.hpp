// SPDX-License-Identifier: Apache-2.0
// The order in which sums are made, as arithmetic on the number of the leaf that comes next.
//
// Canonical: a binary counter. A leaf goes on top of a stack; while the two topmost sums have the
// same number of leaves they are added, and after the last leaf the stack is added up from the top.
// The operand that came later is the right one. So leaves 0 and 1 are added, 2 and 3, then the two
// pairs; and a run of 2^k leaves that begins at a multiple of 2^k is a subtree, wherever it is
// summed. Fast: one sum, to which the leaves are added in turn.
//
// A stack of sums needs memory for positions 0, 1, ...; a leaf takes the position on top. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tutti/zero.hpp"

namespace tutti::zero::tree {

// How many sums are on the stack before the leaf, which is the position that the leaf takes.
[[nodiscard]] constexpr int position(Order order, std::uint64_t leaf) {
  return order == Order::kCanonical ? std::popcount(leaf) : static_cast<int>(leaf > 0);
}

// How many times the two topmost sums are added after the leaf, which is one of `leaves`.
[[nodiscard]] constexpr int additions(Order order, std::uint64_t leaf, std::uint64_t leaves) {
  if (order == Order::kFast) return static_cast<int>(leaf > 0);
  return leaf + 1 == leaves ? std::popcount(leaf) : std::countr_one(leaf);
}

// Positions that so many leaves take.
[[nodiscard]] constexpr int positions(Order order, std::uint64_t leaves) {
  return order == Order::kCanonical ? static_cast<int>(std::bit_width(leaves))
                                    : static_cast<int>(std::min<std::uint64_t>(leaves, 2));
}

// The same where a leaf that is followed by an addition takes none: it is added as it comes.
[[nodiscard]] constexpr int positions_of_sums(Order order, std::uint64_t leaves) {
  return std::max(1, positions(order, leaves) - 1);
}

}  // namespace tutti::zero::tree
