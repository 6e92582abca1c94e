// SPDX-License-Identifier: Apache-2.0
#include "model/tour.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti {
namespace {

Order identity(std::size_t places) {
  Order order(places);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

// Depth first over all tours from place 0, cut off where no better one can follow.
class ExactTour {
 public:
  explicit ExactTour(const CostMatrix& costs)
      : costs_(costs), best_(identity(costs.places())), best_cost_(tour_cost(costs, best_)) {
    at_.push_back(0);
    used_.assign(costs.places(), false);
    used_[0] = true;
    extend({});
  }
  [[nodiscard]] Order best() && { return std::move(best_); }

 private:
  void extend(OrderCost so_far) {
    if (so_far >= best_cost_) return;
    if (at_.size() == costs_.places()) {
      const OrderCost whole = tour_cost(costs_, at_);
      if (whole < best_cost_) {
        best_ = at_;
        best_cost_ = whole;
      }
      return;
    }
    const std::uint32_t here = at_.back();
    for (std::uint32_t next = 1; next < costs_.places(); ++next) {
      if (used_[next]) continue;
      const double hop = costs_.at(here, next);
      used_[next] = true;
      at_.push_back(next);
      extend({std::max(so_far.slowest, hop), so_far.sum + hop});
      at_.pop_back();
      used_[next] = false;
    }
  }

  const CostMatrix& costs_;
  Order best_;
  OrderCost best_cost_;
  Order at_;
  std::vector<bool> used_;
};

Order nearest_next(const CostMatrix& costs) {
  Order order{0};
  std::vector<bool> used(costs.places());
  used[0] = true;
  while (order.size() < costs.places()) {
    std::uint32_t best = 0;
    for (std::uint32_t next = 1; next < costs.places(); ++next)
      if (!used[next] && (best == 0 || costs.at(order.back(), next) < costs.at(order.back(), best)))
        best = next;
    used[best] = true;
    order.push_back(best);
  }
  return order;
}

// The costs of a tour's hops, counted: the slowest after an exchange is found among the few
// distinct ones.
class TwoOpt {
 public:
  TwoOpt(const CostMatrix& costs, Order order) : costs_(costs), order_(std::move(order)) {
    for (std::size_t k = 0; k < order_.size(); ++k) ++counts_[hop(k)];
    cost_ = tour_cost(costs_, order_);
  }

  Order improved() && {
    constexpr int kMostRounds = 20;
    bool gained = true;
    for (int round = 0; gained && round < kMostRounds; ++round) {
      gained = false;
      for (std::size_t i = 1; i + 1 < order_.size(); ++i)
        for (std::size_t j = i + 1; j < order_.size(); ++j) gained = try_reverse(i, j) || gained;
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] std::size_t after(std::size_t k) const { return (k + 1) % order_.size(); }
  [[nodiscard]] double hop(std::size_t k) const { return costs_.at(order_[k], order_[after(k)]); }

  // Turns order[i..j] around if that is better.
  bool try_reverse(std::size_t i, std::size_t j) {
    const double out[] = {hop(i - 1), hop(j)};
    const double in[] = {costs_.at(order_[i - 1], order_[j]),
                         costs_.at(order_[i], order_[after(j)])};
    const double sum = cost_.sum - out[0] - out[1] + in[0] + in[1];
    for (const double each : out) --counts_[each];
    for (const double each : in) ++counts_[each];
    const auto slowest = std::find_if(counts_.rbegin(), counts_.rend(),
                                      [](const auto& entry) { return entry.second > 0; });
    // Sums of the same hops in another order may differ in the last bits; that is no gain.
    const OrderCost cost{slowest->first, sum};
    if (cost.slowest < cost_.slowest ||
        (cost.slowest == cost_.slowest && cost.sum < cost_.sum * (1 - 1e-12))) {
      std::reverse(order_.begin() + static_cast<std::ptrdiff_t>(i),
                   order_.begin() + static_cast<std::ptrdiff_t>(j) + 1);
      cost_ = cost;
      return true;
    }
    for (const double each : out) ++counts_[each];
    for (const double each : in) --counts_[each];
    return false;
  }

  const CostMatrix& costs_;
  Order order_;
  OrderCost cost_;
  std::map<double, int> counts_;
};

// Position after position, cut off where no better placing can follow.
class ExactEdges {
 public:
  ExactEdges(const CostMatrix& costs, const Edges& edges, Order first)
      : costs_(costs),
        back_(costs.places()),
        best_(std::move(first)),
        best_cost_(edges_cost(costs, edges, best_)),
        used_(costs.places()) {
    for (const auto& [a, b] : edges) back_[std::max(a, b)].push_back(std::min(a, b));
    extend({});
  }
  [[nodiscard]] Order best() && { return std::move(best_); }

 private:
  void extend(OrderCost so_far) {
    if (so_far >= best_cost_) return;
    if (at_.size() == costs_.places()) {
      best_ = at_;
      best_cost_ = so_far;
      return;
    }
    const std::vector<std::uint32_t>& neighbours = back_[at_.size()];
    for (std::uint32_t place = 0; place < costs_.places(); ++place) {
      if (used_[place]) continue;
      OrderCost cost = so_far;
      for (const std::uint32_t other : neighbours) {
        cost.slowest = std::max(cost.slowest, costs_.at(at_[other], place));
        cost.sum += costs_.at(at_[other], place);
      }
      used_[place] = true;
      at_.push_back(place);
      extend(cost);
      at_.pop_back();
      used_[place] = false;
    }
  }

  const CostMatrix& costs_;
  std::vector<std::vector<std::uint32_t>> back_;  // by position: its neighbours before it
  Order best_;
  OrderCost best_cost_;
  Order at_;
  std::vector<bool> used_;
};

}  // namespace

OrderCost tour_cost(const CostMatrix& costs, std::span<const std::uint32_t> order) {
  OrderCost cost;
  if (order.size() < 2) return cost;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const double hop = costs.at(order[k], order[(k + 1) % order.size()]);
    cost.slowest = std::max(cost.slowest, hop);
    cost.sum += hop;
  }
  return cost;
}

Order best_tour(const CostMatrix& costs) {
  const std::size_t places = costs.places();
  if (places < 4 || places > kMostPlaces) return identity(places);  // of three all tours are one
  if (places <= kExactPlaces) return ExactTour(costs).best();
  Order best = TwoOpt(costs, identity(places)).improved();
  Order other = TwoOpt(costs, nearest_next(costs)).improved();
  return tour_cost(costs, other) < tour_cost(costs, best) ? other : best;
}

OrderCost edges_cost(const CostMatrix& costs, const Edges& edges,
                     std::span<const std::uint32_t> order) {
  OrderCost cost;
  for (const auto& [a, b] : edges) {
    const double hop = costs.at(order[a], order[b]);
    cost.slowest = std::max(cost.slowest, hop);
    cost.sum += hop;
  }
  return cost;
}

Order improve_edges(const CostMatrix& costs, const Edges& edges, Order order, int most_rounds) {
  const Order plain = identity(costs.places());
  if (edges_cost(costs, edges, plain) <= edges_cost(costs, edges, order)) order = plain;
  if (order.size() < kExactPlaces) return ExactEdges(costs, edges, std::move(order)).best();
  OrderCost cost = edges_cost(costs, edges, order);
  bool gained = true;
  for (int round = 0; gained && round < most_rounds; ++round) {
    gained = false;
    for (std::size_t i = 0; i < order.size(); ++i)
      for (std::size_t j = i + 1; j < order.size(); ++j) {
        std::swap(order[i], order[j]);
        const OrderCost other = edges_cost(costs, edges, order);
        if (other < cost) {
          cost = other;
          gained = true;
        } else {
          std::swap(order[i], order[j]);
        }
      }
  }
  return order;
}

}  // namespace tutti
