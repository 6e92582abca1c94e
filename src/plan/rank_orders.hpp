// SPDX-License-Identifier: Apache-2.0
// The orders in which plans take a communicator's ranks: one for rings, which may be several, and
// one for trees. Rank 0's go to all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "base/result.hpp"
#include "schedule/rank_order.hpp"

namespace tutti {

// Says which rank takes which position, by algorithm; equal on all ranks. Immutable; any thread.
class RankOrders {
 public:
  static constexpr std::size_t kMostRings = 8;

  RankOrders() = default;
  // rings: 1 to kMostRings; more are left out.
  RankOrders(std::vector<RankOrder> rings, RankOrder tree);

  // The rings' for all but trees, one a replica (PlanOptions::orders); by number where everybody
  // talks to everybody, so that what is summed in the order of ranks stays so. O(log ranks) to
  // O(ranks).
  [[nodiscard]] const std::vector<RankOrder>& of(const Algorithm& algorithm,
                                                 std::int32_t ranks) const;
  [[nodiscard]] bool are_by_number() const;
  // "0 2 1 3 in rings, by number in trees"; of many ranks the first ones.
  [[nodiscard]] std::string text() const;
  // As bytes of one length for so many ranks, and 0 where they are by number.
  [[nodiscard]] static std::size_t encoded_bytes(std::int32_t ranks);
  [[nodiscard]] std::vector<std::byte> encode(std::int32_t ranks) const;
  [[nodiscard]] std::uint64_t hash(std::int32_t ranks) const;
  // kInvalidUsage: no orders of so many ranks, or not those with that hash; from rank 0.
  [[nodiscard]] static Result<RankOrders> decode(std::span<const std::byte> bytes,
                                                 std::int32_t ranks, std::uint64_t hash);
  bool operator==(const RankOrders&) const = default;

 private:
  std::vector<RankOrder> rings_{RankOrder()};
  std::vector<RankOrder> tree_{RankOrder()};  // one
};

}  // namespace tutti
