// SPDX-License-Identifier: Apache-2.0
// The table of choices: for each collective and size class the cheapest candidate, of every
// algorithm and of all.
//
// Rank 0 fills it once per communicator and it reaches all ranks with its hash, so nobody else
// prices and none can choose otherwise; a call is a look-up. Only what a user forces beyond an
// algorithm's name is priced by each rank for itself, from equal inputs.
//
// A size class holds the sizes nearest to 2^(k/2) bytes; it is priced there.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "plan/choice.hpp"

namespace tutti {

inline constexpr std::size_t kSizeClasses = 80;  // to 800 GB
// bytes >= 1. What is beyond the last class belongs to it.
[[nodiscard]] std::size_t size_class(std::uint64_t bytes);
[[nodiscard]] std::uint64_t class_bytes(std::size_t size_class);

// By size class: the number of an algorithm (listed_algorithms()) and of a shape (plan_shapes()).
class ChoiceRow {
 public:
  struct Entry {
    std::size_t algorithm, shape;
  };
  ChoiceRow() { entries_.fill(kNone); }
  [[nodiscard]] bool has(std::size_t size_class) const { return entries_[size_class] != kNone; }
  [[nodiscard]] bool empty() const;
  // Call it only if the class has an entry.
  [[nodiscard]] Entry at(std::size_t size_class) const {
    return {entries_[size_class] / 16u, entries_[size_class] % 16u};
  }
  void set(std::size_t size_class, Entry entry) {
    entries_[size_class] = static_cast<std::uint8_t>(16 * entry.algorithm + entry.shape);
  }

 private:
  static constexpr std::uint8_t kNone = 0xff;
  static_assert(kMaxAlgorithms <= 16 && kMostPlanShapes < 16, "an entry is a byte");
  std::array<std::uint8_t, kSizeClasses> entries_;
};

// Plain bytes: exchanged as they are between equal builds.
struct ChoiceTable {
  static constexpr std::size_t kAccesses = 3;  // PeerAccess
  struct Rows {
    std::array<ChoiceRow, kMaxAlgorithms> forced;  // by number
    ChoiceRow best;                                // of all
  };
  using Accesses = std::array<Rows, kAccesses>;
  std::array<Accesses, kCollectiveCount> by_collective;  // empty where none has an algorithm

  [[nodiscard]] Accesses& of(Collective collective) {
    return by_collective[static_cast<std::size_t>(collective)];
  }
  [[nodiscard]] const Accesses& of(Collective collective) const {
    return by_collective[static_cast<std::size_t>(collective)];
  }

  [[nodiscard]] std::uint64_t hash() const;
};

// A row of the contenders, priced at every class. An algorithm that is not listed stands in it as
// number 0. Where what is cheapest was measured on this machine (measured.hpp), the cheapest of
// those that were measured to be within 3 % of the fastest stands there instead.
[[nodiscard]] ChoiceRow make_row(const Settings& settings, std::span<const Contender> contenders,
                                 PeerAccess access, const MeasuredByName& measured = {});
// Rank 0's. Where the settings force an algorithm that is listed, only its rows are filled in, and
// none where they force a variant.
[[nodiscard]] Result<ChoiceTable> make_table(const Settings& settings, std::int32_t ranks,
                                             std::span<const MeasuredPlan> measured = {},
                                             std::span<const std::int32_t> hosts = {},
                                             const RankOrders* orders = nullptr);
// A row that may be asked for: of a problem, by what is named, with an access.
struct RowQuestion {
  Problem problem;
  const Forced& named;
  PeerAccess access;
};
// The row, if rank 0 made it; null otherwise. `configured`: what the table's settings force.
[[nodiscard]] const ChoiceRow* find_row(const ChoiceTable& table, const ForcedSet& configured,
                                        const RowQuestion& question);
// Collectives that some listed algorithm does among so many ranks.
[[nodiscard]] std::vector<Collective> chosen_collectives(std::int32_t ranks);
// Does it name only what there is for so many ranks, and is it the one that rank 0 made? A bad one
// is refused, never used.
[[nodiscard]] Status check_table(const ChoiceTable& table, const Settings& settings,
                                 std::int32_t ranks);

}  // namespace tutti
