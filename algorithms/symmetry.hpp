// SPDX-License-Identifier: Apache-2.0
// Symmetry: moves of ranks that take a schedule to itself, so that a few ranks stand for all.
//
// The ranks are groups of `group` consecutive ones; rank r is member r mod group of group r /
// group. A move takes whole groups to groups, or the members of every group alike. That it is a
// symmetry says: the program of a moved rank is the rank's own with every peer moved as well,
// steps, sends, waits and numbers of chunks the same, in the same order. Chunks may be others, tags
// of one pair of ranks others in the same order, and sources of a sum stand in another order.
//
// Where a number of ranks is folded to a power of two (fold.hpp), the first `paired` ranks are
// pairs that stand where the others stand alone: groups of `group` pairs, then groups of `group`
// ranks. A move takes the members of every group alike, both ranks of a pair together. Declared by
// the families; tests/algorithms/symmetry_test.cpp compares the programs.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace tutti {

enum class Move : std::uint8_t {
  kNone,
  kShift,        // by any number, modulo how many there are
  kExclusiveOr,  // with any number, of a power of two of them
};

struct Symmetry {
  Move groups = Move::kNone;
  Move members = Move::kNone;
  Rank group = 1;   // ranks of a group; divides the ranks there are
  Rank paired = 0;  // with members moved by kExclusiveOr alone; whole groups of pairs

  // Returns the rank to which the move of `from` to `to` takes `rank`. There must be such a move.
  [[nodiscard]] Rank moved(Rank rank, Rank from, Rank to, Rank ranks) const {
    if (paired > 0) {
      const Rank bits = from < paired ? (from ^ to) / 2 : from ^ to;
      return rank ^ (rank < paired ? 2 * bits : bits);
    }
    return apply(groups, rank / group, from / group, to / group, ranks / group) * group +
           apply(members, rank % group, from % group, to % group, group);
  }
  bool operator==(const Symmetry&) const = default;

 private:
  [[nodiscard]] static Rank apply(Move move, Rank index, Rank from, Rank to, Rank count) {
    if (move == Move::kShift) {
      const Rank shifted = index + to - from;
      return shifted < 0 ? shifted + count : shifted >= count ? shifted - count : shifted;
    }
    return move == Move::kExclusiveOr ? index ^ from ^ to : index;
  }
};

}  // namespace tutti
