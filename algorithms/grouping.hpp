// SPDX-License-Identifier: Apache-2.0
// Consecutive ranks in groups: what a hierarchy works by. Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/types.hpp"

namespace tutti {

class Grouping {
 public:
  explicit Grouping(std::vector<std::int32_t> sizes) : sizes_(std::move(sizes)) {
    firsts_.resize(sizes_.size());
    std::exclusive_scan(sizes_.begin(), sizes_.end(), firsts_.begin(), 0);
    different_ = sizes_;
    std::ranges::sort(different_);
    different_.erase(std::unique(different_.begin(), different_.end()), different_.end());
  }

  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(sizes_.size()); }
  [[nodiscard]] const std::vector<std::int32_t>& sizes() const { return sizes_; }
  // Each size once, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& different_sizes() const { return different_; }
  [[nodiscard]] std::int32_t size(std::int32_t group) const { return sizes_[at(group)]; }
  [[nodiscard]] Rank first(std::int32_t group) const { return firsts_[at(group)]; }
  [[nodiscard]] std::int32_t ranks() const { return firsts_.back() + sizes_.back(); }
  [[nodiscard]] std::int32_t group_of(Rank rank) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), rank);
    return static_cast<std::int32_t>(after - firsts_.begin()) - 1;
  }
  // As many rails as the largest group has ranks; rank i of a group of s serves those from
  // i*rails/s on, as a cut of columns does (compose.hpp).
  [[nodiscard]] std::int32_t rails() const { return different_.back(); }
  [[nodiscard]] std::int32_t first_rail(std::int32_t group, std::int32_t index) const {
    return static_cast<std::int32_t>(std::int64_t{index} * rails() / size(group));
  }
  [[nodiscard]] Rank server(std::int32_t group, std::int32_t rail) const {
    std::int32_t index = static_cast<std::int32_t>(std::int64_t{rail} * size(group) / rails());
    while (index + 1 < size(group) && first_rail(group, index + 1) <= rail) ++index;
    return first(group) + index;
  }

 private:
  static std::size_t at(std::int32_t group) { return static_cast<std::size_t>(group); }
  std::vector<std::int32_t> sizes_, different_;
  std::vector<Rank> firsts_;
};

// Equal groups of the least divisor of p from ceil(sqrt(p)) on, if it is less than twice that; else
// of ceil(sqrt(p)) and the rest.
[[nodiscard]] std::vector<std::int32_t> default_groups(std::int32_t p);

// Equal groups of the least divisor of p from ceil(sqrt(p)) on, which may be p.
[[nodiscard]] std::vector<std::int32_t> default_equal_groups(std::int32_t p);

// "4+4+1", "2x4", "2x4+1": sizes of the groups. kInvalidArgument.
[[nodiscard]] Result<std::vector<std::int32_t>> parse_groups(std::string_view text);

}  // namespace tutti
