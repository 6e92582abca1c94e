// SPDX-License-Identifier: Apache-2.0
// Representatives: which ranks of a network stand for all, under a symmetry of the algorithm.
//
// Of the symmetry's moves those count that take nodes to nodes and worker pools to pools. Every
// move but the one that moves nothing moves every node, so that the images of one message are on
// links of different nodes. Pure; any thread.
#pragma once

#include <vector>

#include "algorithms/symmetry.hpp"
#include "model/network.hpp"

namespace tutti {

class Representatives {
 public:
  Representatives(const Symmetry& symmetry, const Network& network);

  // Ascending; whole nodes where any rank is represented by another.
  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  [[nodiscard]] bool all() const { return static_cast<std::int32_t>(ranks_.size()) == count_; }
  // The rank that stands for this one, and its index in ranks().
  [[nodiscard]] Rank of(Rank rank) const;
  [[nodiscard]] std::uint32_t index_of(Rank representative) const;
  // Returns the rank to which the move of `rank` to its representative takes `other`.
  [[nodiscard]] Rank moved(Rank other, Rank rank) const {
    return symmetry_.moved(other, rank, of(rank), count_);
  }
  // Ranks of a node; 0: nothing is moved.
  [[nodiscard]] Rank block() const { return block_; }

 private:
  Symmetry symmetry_;
  std::int32_t count_;
  Rank block_ = 0;
  Rank group_step_ = 0;   // groups are moved by multiples of it; 0: not at all
  Rank member_step_ = 0;  // members likewise
  std::vector<Rank> ranks_;
};

}  // namespace tutti
