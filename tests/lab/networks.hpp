// SPDX-License-Identifier: Apache-2.0
// Networks for the tests of this folder: equal nodes of ranks with ports and shared adapters.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/costs.hpp"
#include "model/network.hpp"

namespace tutti::networks {

struct Shape {
  std::int32_t ranks = 2;
  std::int32_t node = 1;      // ranks of a node
  std::int32_t adapters = 0;  // of a node, each with a link out and one in; 0: no link at all
  double inside_ns = 500, between_ns = 2000;  // latencies
  double inside_ns_per_byte = 0.02, between_ns_per_byte = 0.08;
  bool bus = false;  // every message that enters or leaves memory of a node crosses one link
  std::int32_t workers = 0;  // of a node, if fewer than its ranks
  bool alike = true;         // does it say that its nodes are alike?
};

// Links of a node: out and in of each rank, out and in of each adapter, the bus.
class Nodes final : public Network {
 public:
  explicit Nodes(const Shape& shape) : shape_(shape) {
    for (std::int32_t node = 0; node < shape.ranks / shape.node; ++node) {
      for (std::int32_t i = 0; i < 2 * shape.node; ++i) links_.push_back(shape.inside_ns_per_byte);
      for (std::int32_t i = 0; i < 2 * shape.adapters; ++i)
        links_.push_back(shape.between_ns_per_byte);
      links_.push_back(shape.inside_ns_per_byte / 2);
    }
  }

  [[nodiscard]] std::int32_t ranks() const override { return shape_.ranks; }
  [[nodiscard]] std::span<const double> link_ns_per_byte() const override { return links_; }
  [[nodiscard]] Rank block() const override { return shape_.alike ? shape_.node : 0; }
  [[nodiscard]] std::int32_t pool_ranks() const override { return shape_.node; }
  [[nodiscard]] std::int32_t pool_workers() const override {
    return shape_.workers > 0 ? shape_.workers : shape_.node;
  }
  [[nodiscard]] Route route(Rank from, Rank to) const override {
    const Rank node = from / shape_.node, other = to / shape_.node;
    const bool inside = node == other;
    Route route{.hop = inside ? Hop::kShared : Hop::kNetwork,
                .latency_ns = inside ? shape_.inside_ns : shape_.between_ns,
                .ns_per_byte = inside ? shape_.inside_ns_per_byte : shape_.between_ns_per_byte};
    if (shape_.adapters == 0) return route;
    const auto add = [&](Rank at, std::int32_t link) {
      route.link_ids[route.link_count++] = static_cast<LinkId>(at * links_of_node() + link);
    };
    const std::int32_t bus = links_of_node() - 1;
    if (shape_.bus) add(node, bus);
    add(node, 2 * (from % shape_.node));
    if (!inside) add(node, 2 * (shape_.node + from % shape_.node % shape_.adapters));
    if (!inside) add(other, 2 * (shape_.node + to % shape_.node % shape_.adapters) + 1);
    add(other, 2 * (to % shape_.node) + 1);
    if (shape_.bus) add(other, bus);
    return route;
  }

 private:
  [[nodiscard]] std::int32_t links_of_node() const {
    return 2 * shape_.node + 2 * shape_.adapters + 1;
  }
  Shape shape_;
  std::vector<double> links_;
};

// No two costs alike, so that a term in the wrong place shows.
inline Costs costs() {
  Costs costs;
  costs.hops[0] = {.alpha_ns = 300, .efficiency = 1};
  costs.hops[1] = {.alpha_ns = 700, .efficiency = 0.9};
  costs.hops[2] = {.alpha_ns = 1500, .efficiency = 0.8};
  costs.step_ns = 40;
  costs.operand_ns_per_byte = 0.01;
  costs.remote_ns = 90;
  costs.remote_ns_per_byte = 0.015;
  costs.switch_ns = 250;
  costs.start_ns = 1000;
  costs.gap_ns = 20;
  return costs;
}

}  // namespace tutti::networks
