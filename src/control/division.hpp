// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job are divided among the roots of its unique ids, and who comes where.
//
// Each of n roots has a part of the ranks, one contiguous piece: the first p mod n parts have one
// rank more, as NCCL divides them. A part's ranks meet at its root. Its first rank, the leader,
// also comes to root 0, where the leaders learn of each other. With one root there is one part, the
// job. Pure.
#pragma once

#include <cstdint>

#include "control/exchange.hpp"

namespace tutti::control {

class Division {
 public:
  // 1 <= roots <= ranks.
  Division(std::int32_t ranks, std::int32_t roots) : ranks_(ranks), roots_(roots) {}

  [[nodiscard]] std::int32_t roots() const { return roots_; }
  [[nodiscard]] std::int32_t part_of(Rank rank) const;
  [[nodiscard]] Rank leader_of(std::int32_t part) const;
  [[nodiscard]] std::int32_t ranks_of(std::int32_t part) const {
    return ranks_ / roots_ + (part < ranks_ % roots_ ? 1 : 0);
  }
  [[nodiscard]] std::int32_t largest_part() const { return ranks_of(0); }
  [[nodiscard]] bool leads(Rank rank) const { return leader_of(part_of(rank)) == rank; }

  // Does this rank come to this root, and how many do?
  [[nodiscard]] bool comes_to(std::int32_t root, Rank rank) const {
    return part_of(rank) == root || (root == 0 && leads(rank));
  }
  [[nodiscard]] std::int32_t expected_at(std::int32_t root) const {
    return ranks_of(root) + (root == 0 ? roots_ - 1 : 0);
  }

  // The ranks of this rank's part, and the leaders, of whom it is one.
  [[nodiscard]] Circle part_circle(Rank rank) const;
  [[nodiscard]] Circle leader_circle(Rank leader) const;

 private:
  std::int32_t ranks_, roots_;
};

// Returns the addresses that a root sends to `rank`, which comes there.
[[nodiscard]] Contacts contacts_at(const Division& division, std::int32_t root, Rank rank,
                                   const std::function<const Member&(Rank)>& member_of);

}  // namespace tutti::control
