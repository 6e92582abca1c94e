// SPDX-License-Identifier: Apache-2.0
// Fold: how algorithms for a power of two of ranks take any other number.
//
// Of p = q + e ranks, q the largest power of two, the first 2e pair up. The odd one of each pair
// gives its contribution to the even one, sits out, and gets the result at the end. The others are
// numbered 0..q-1 in rank order. (Thakur, Rabenseifner, Gropp 2005, section 4.) Costs at most two
// messages of n more in a row.
#pragma once

#include <bit>
#include <cstdint>

#include "algorithms/symmetry.hpp"
#include "base/types.hpp"

namespace tutti {

struct Fold {
  Rank ranks = 1;

  [[nodiscard]] std::int32_t size() const {
    return static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)));
  }
  [[nodiscard]] int rounds() const { return std::countr_zero(static_cast<std::uint32_t>(size())); }
  [[nodiscard]] std::int32_t excess() const { return ranks - size(); }
  [[nodiscard]] bool is_paired(Rank rank) const { return rank < 2 * excess(); }
  [[nodiscard]] bool sits_out(Rank rank) const { return is_paired(rank) && rank % 2 == 1; }
  // Converts the number of a rank that does not sit out, and back.
  [[nodiscard]] std::int32_t index_of(Rank rank) const {
    return is_paired(rank) ? rank / 2 : rank - excess();
  }
  [[nodiscard]] Rank rank_of(std::int32_t index) const {
    return index < excess() ? 2 * index : index + excess();
  }
  // Of a schedule in which ranks with indices that differ in one bit exchange: exclusive-ors of the
  // index, by numbers that leave the pairs among themselves.
  [[nodiscard]] Symmetry symmetry() const {
    if (excess() == 0) return {.groups = Move::kExclusiveOr};
    const Rank kept = excess() & -excess();
    if (kept == 1) return {};
    return {.members = Move::kExclusiveOr, .group = kept, .paired = 2 * excess()};
  }
};

}  // namespace tutti
