// SPDX-License-Identifier: Apache-2.0
#include "schedule/rank_order.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tutti {

Result<RankOrder> RankOrder::make(std::vector<Rank> rank_at) {
  RankOrder order;
  order.place_of_.assign(rank_at.size(), kNoRank);
  for (std::size_t place = 0; place < rank_at.size(); ++place) {
    const Rank rank = rank_at[place];
    const bool there = rank >= 0 && static_cast<std::size_t>(rank) < rank_at.size();
    if (!there || order.place_of_[static_cast<std::size_t>(rank)] != kNoRank)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("an order of {} ranks has rank {} at position {}, {}", rank_at.size(), rank,
                      place, there ? "which it already has" : "which does not exist"));
    order.place_of_[static_cast<std::size_t>(rank)] = static_cast<Rank>(place);
  }
  if (std::ranges::is_sorted(rank_at)) return RankOrder();
  order.rank_at_ = std::move(rank_at);
  return order;
}

}  // namespace tutti
