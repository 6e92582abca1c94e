// SPDX-License-Identifier: Apache-2.0
// RankOrder: which rank takes which place of a schedule.
//
// A schedule speaks of places 0..p-1; rank_at(k) does what it says of place k. Empty, it is the
// order of the ranks' numbers. Immutable; any thread.
#pragma once

#include <span>
#include <vector>

#include "base/result.hpp"

namespace tutti {

class RankOrder {
 public:
  RankOrder() = default;
  // kInvalidArgument: not each of 0..n-1 once. The order of the numbers becomes the empty one.
  [[nodiscard]] static Result<RankOrder> make(std::vector<Rank> rank_at);

  [[nodiscard]] bool is_by_number() const { return rank_at_.empty(); }
  [[nodiscard]] Rank rank_at(Rank place) const {
    return is_by_number() ? place : rank_at_[static_cast<std::size_t>(place)];
  }
  [[nodiscard]] Rank place_of(Rank rank) const {
    return is_by_number() ? rank : place_of_[static_cast<std::size_t>(rank)];
  }
  // Empty where it is by number.
  [[nodiscard]] std::span<const Rank> ranks() const { return rank_at_; }
  auto operator<=>(const RankOrder&) const = default;

 private:
  std::vector<Rank> rank_at_, place_of_;
};

}  // namespace tutti
