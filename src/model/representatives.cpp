// SPDX-License-Identifier: Apache-2.0
#include "model/representatives.hpp"

#include <numeric>

namespace tutti {
namespace {

// The step in which `count` things can be moved, if in multiples of `unit`; 0: not.
Rank step_of(Move move, Rank unit, Rank count) {
  if (move == Move::kNone || unit >= count || count % unit != 0) return 0;
  return unit;
}

bool shares_pools_between_nodes(const Network& network, Rank block) {
  const bool own_workers = network.pool_workers() >= network.pool_ranks();
  return !own_workers && block % network.pool_ranks() != 0;
}

}  // namespace

Representatives::Representatives(const Symmetry& symmetry, const Network& network)
    : symmetry_(symmetry), count_(network.ranks()) {
  const Rank block = network.block();
  const Rank group = symmetry.group;
  if (symmetry.paired > 0) {
    // Pairs take twice the ranks, so that they are moved by whole nodes where the others are.
    if (block > 0 && !shares_pools_between_nodes(network, block))
      member_step_ = step_of(symmetry.members, block, group);
  } else if (block > 0 && count_ % group == 0 && !shares_pools_between_nodes(network, block)) {
    const Rank groups = count_ / group;
    if (group % block == 0) {
      member_step_ = step_of(symmetry.members, block, group);
      group_step_ = step_of(symmetry.groups, 1, groups);
    } else {
      group_step_ = step_of(symmetry.groups, std::lcm(block, group) / group, groups);
    }
  }
  if (group_step_ != 0 || member_step_ != 0) block_ = block;
  for (Rank rank = 0; rank < count_; ++rank)
    if (of(rank) == rank) ranks_.push_back(rank);
}

Rank Representatives::of(Rank rank) const {
  if (symmetry_.paired > 0) {
    if (member_step_ == 0) return rank;
    const Rank ranks_each = rank < symmetry_.paired ? 2 : 1;
    const Rank member = rank % (ranks_each * symmetry_.group);
    return rank - member + member % (ranks_each * member_step_);
  }
  Rank group = rank / symmetry_.group, member = rank % symmetry_.group;
  if (group_step_ != 0) group %= group_step_;
  if (member_step_ != 0) member %= member_step_;
  return group * symmetry_.group + member;
}

std::uint32_t Representatives::index_of(Rank representative) const {
  if (symmetry_.paired > 0) {
    const Rank kept = member_step_ != 0 ? member_step_ : symmetry_.group;
    const Rank first = representative < symmetry_.paired ? 0 : symmetry_.paired;
    const Rank ranks_each = representative < symmetry_.paired ? 2 : 1;
    const Rank own = ranks_each * symmetry_.group, at = representative - first;
    return static_cast<std::uint32_t>(first / symmetry_.group * kept +
                                      at / own * ranks_each * kept + at % own);
  }
  const Rank group = representative / symmetry_.group, member = representative % symmetry_.group;
  const Rank members = member_step_ != 0 ? member_step_ : symmetry_.group;
  return static_cast<std::uint32_t>(group * members + member);
}

}  // namespace tutti
