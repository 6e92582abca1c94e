// SPDX-License-Identifier: Apache-2.0
// Which slots of the global batch a rank computes, and which numbers of slots, ranks and microsteps
// can be summed in canonical order: those where what one rank sums by itself, and what one group of
// ranks does, is a whole subtree of the tree over slots (tree.hpp). Pure.
#pragma once

#include <string>

#include "tutti/zero.hpp"

namespace tutti::zero {

struct SlotShape {
  int slots = 1, microsteps = 1, ranks = 1;
  int group_ranks = 1;          // ranks that are summed before the groups are: shard_ranks
  bool each_microstep = false;  // are the ranks summed after each microstep, or once a step?

  // Slots of one rank and one microstep; 0 where the slots cannot be dealt out equally.
  [[nodiscard]] int each() const;
  // The slots of a rank's microstep. Of sync-once a rank has consecutive slots in all microsteps
  // together, else all ranks have them in each microstep.
  [[nodiscard]] Range of(int rank, int microstep) const;
  [[nodiscard]] bool is_canonical() const;
};

// Empty if the shape serves the order; else what is wrong, and which numbers would do.
[[nodiscard]] std::string why_not(const SlotShape& shape, Order order);

}  // namespace tutti::zero
