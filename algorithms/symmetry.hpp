// Symmetry: moves of ranks that take a schedule to itself, so that a few ranks stand for all.
//
// The ranks are groups of `group` consecutive ones; rank r is member r mod group of group r /
// group. A move takes whole groups to groups, or the members of every group alike. That it is a
// symmetry says: the program of a moved rank is the rank's own with every peer moved as well,
// steps, sends, waits and numbers of chunks the same, in the same order. Chunks may be others, tags
// of one pair of ranks others in the same order, and sources of a sum stand in another order.
// Declared by the families; tests/algorithms/symmetry_test.cpp compares the programs.
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
  Rank group = 1;  // ranks of a group; divides the ranks there are

  // Where the move that takes `from` to `to` takes `rank`. There must be such a move.
  [[nodiscard]] Rank moved(Rank rank, Rank from, Rank to, Rank ranks) const {
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
