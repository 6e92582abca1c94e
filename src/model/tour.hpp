// SPDX-License-Identifier: Apache-2.0
// The search for a good order: a matrix of costs in, a permutation out.
//
// What counts first is the slowest hop, for a ring in many slices is no faster; then the sum, which
// is what a short message waits for. Exact up to kExact places; beyond that the better of the given
// order and of going to the nearest, improved by reversing parts (2-opt) until nothing gains.
// Deterministic: of equals the one of smaller indices. Pure; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// Costs of hops between places: at(i, j) == at(j, i).
class CostMatrix {
 public:
  explicit CostMatrix(std::size_t places) : places_(places), costs_(places * places) {}
  [[nodiscard]] std::size_t places() const { return places_; }
  [[nodiscard]] double at(std::size_t i, std::size_t j) const { return costs_[i * places_ + j]; }
  void set(std::size_t i, std::size_t j, double cost) {
    costs_[i * places_ + j] = costs_[j * places_ + i] = cost;
  }

 private:
  std::size_t places_;
  std::vector<double> costs_;
};

struct OrderCost {
  double slowest = 0;
  double sum = 0;
  friend auto operator<=>(const OrderCost&, const OrderCost&) = default;
};

using Order = std::vector<std::uint32_t>;  // order[k]: the place that stands k-th
using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // of positions

inline constexpr std::size_t kExactPlaces = 9;    // eight devices and a NIC
inline constexpr std::size_t kMostPlaces = 1024;  // beyond, the given order stays

// Returns the cost of the closed tour order[0], order[1], ..., order[0].
[[nodiscard]] OrderCost tour_cost(const CostMatrix& costs, std::span<const std::uint32_t> order);
// Begins with place 0. Never worse than 0, 1, 2, ...
[[nodiscard]] Order best_tour(const CostMatrix& costs);

// Returns the cost of a graph of positions, of which position k is taken by order[k].
[[nodiscard]] OrderCost edges_cost(const CostMatrix& costs, const Edges& edges,
                                   std::span<const std::uint32_t> order);
// Below kExactPlaces the best there is; else the better of `order` and 0, 1, 2, ..., improved by
// exchanging two places until nothing gains or `most_rounds` are over.
[[nodiscard]] Order improve_edges(const CostMatrix& costs, const Edges& edges, Order order,
                                  int most_rounds = 8);

}  // namespace tutti
