// SPDX-License-Identifier: Apache-2.0
#include "lab/cluster_network.hpp"

#include <algorithm>
#include <array>

namespace tutti {
namespace {

double ns_per_byte(double GBps) { return GBps > 0 ? 1 / GBps : 0; }

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

void add(Route& route, LinkId id) {
  if (route.link_count < Route::kMostLinks) route.link_ids[route.link_count++] = id;
}

}  // namespace

ClusterNetwork::ClusterNetwork(Cluster cluster) : cluster_(std::move(cluster)) {
  const double port = cluster_.pcie == nullptr ? cluster_.nic.GBps
                                               : std::min(cluster_.nic.GBps, cluster_.pcie->GBps);
  nic_ns_per_byte_ = ns_per_byte(port);
  rails_ = cluster_.rails ? cluster_.nics_per_node : 1;
  add_node_links();
  add_group_links();
}

// Out of and into each GPU (or a link for each ordered pair, or the host's memory); out of and into
// each NIC; both ways of each dimension of a torus.
void ClusterNetwork::add_node_links() {
  const std::int32_t ranks = cluster_.ranks_per_node, nics = cluster_.nics_per_node;
  std::vector<double> node;
  const auto append = [&](std::int32_t count, double cost) {
    node.insert(node.end(), static_cast<std::size_t>(count), cost);
  };
  if (cluster_.gpu == nullptr) {
    append(1, ns_per_byte(cluster_.memory_GBps));
  } else if (cluster_.switched) {
    append(2 * ranks, ns_per_byte(cluster_.intra.GBps));
  } else {
    append(ranks * ranks, ns_per_byte(cluster_.intra.GBps) * std::max(1, ranks - 1));
  }
  first_nic_ = static_cast<std::int32_t>(node.size());
  append(2 * nics, nic_ns_per_byte_);
  first_torus_ = static_cast<std::int32_t>(node.size());
  append(2 * static_cast<std::int32_t>(cluster_.torus.shape.size()),
         ns_per_byte(cluster_.torus.link_GBps));
  links_per_node_ = static_cast<std::int32_t>(node.size());
  links_.reserve(node.size() * static_cast<std::size_t>(cluster_.nodes));
  for (std::int32_t i = 0; i < cluster_.nodes; ++i)
    links_.insert(links_.end(), node.begin(), node.end());
}

// Up and down links of groups, one a rail; and whether any node may take any other's place.
void ClusterNetwork::add_group_links() {
  bool alike = cluster_.torus.shape.empty();
  for (const SwitchLevel& level : cluster_.switches) {
    const bool crossed = level.nodes_per_group < cluster_.nodes;
    const bool limits = crossed && level.oversubscription > 1;
    first_group_.push_back(limits ? static_cast<LinkId>(links_.size()) : 0);
    if (crossed && level.nodes_per_group > 1) alike = false;
    if (!limits) continue;
    if (level.nodes_per_group == 1) alike = false;  // their links stand apart from their nodes'
    const std::int32_t groups = ceil_div(cluster_.nodes, level.nodes_per_group);
    const double ports = static_cast<double>(level.nodes_per_group) * cluster_.nics_per_node;
    const double up = nic_ns_per_byte_ / ports * rails_ * level.oversubscription;
    links_.insert(links_.end(),
                  2 * static_cast<std::size_t>(groups) * static_cast<std::size_t>(rails_), up);
  }
  block_ = alike ? cluster_.ranks_per_node : 0;
}

LinkId ClusterNetwork::link(std::int32_t node, std::int32_t index) const {
  return static_cast<LinkId>(node) * static_cast<LinkId>(links_per_node_) +
         static_cast<LinkId>(index);
}

Route ClusterNetwork::route(Rank from, Rank to) const {
  const std::int32_t size = cluster_.ranks_per_node;
  const Way way{from / size, from % size, to / size, to % size};
  Route route;
  if (way.from_node == way.to_node) {
    route_inside(way, route);
  } else {
    route_between(way, route);
  }
  return route;
}

void ClusterNetwork::route_inside(const Way& way, Route& route) const {
  route.latency_ns = cluster_.intra.latency_ns;
  route.ns_per_byte = ns_per_byte(cluster_.intra.GBps);
  if (cluster_.gpu == nullptr) {
    route.hop = Hop::kShared;
    add(route, link(way.from_node, 0));
    return;
  }
  route.hop = Hop::kDevice;
  if (cluster_.switched) {
    add(route, link(way.from_node, way.from));
    add(route, link(way.from_node, cluster_.ranks_per_node + way.to));
  } else {
    route.ns_per_byte *= std::max(1, cluster_.ranks_per_node - 1);
    add(route, link(way.from_node, way.from * cluster_.ranks_per_node + way.to));
  }
}

void ClusterNetwork::route_between(const Way& way, Route& route) const {
  const std::int32_t nics = cluster_.nics_per_node;
  route.hop = Hop::kNetwork;
  route.latency_ns = cluster_.nic.latency_ns;
  route.ns_per_byte = nic_ns_per_byte_;
  add(route, link(way.from_node, first_nic_ + way.from % nics));
  add(route, link(way.to_node, first_nic_ + nics + way.to % nics));
  if (!cluster_.torus.shape.empty()) {
    route.latency_ns += cluster_.torus.hop_ns * add_torus(way, route);
  } else {
    add_switches(way, route);
  }
}

// Up through each level until both ends hang below one switch, and down again.
void ClusterNetwork::add_switches(const Way& way, Route& route) const {
  const std::int32_t nics = cluster_.nics_per_node;
  const std::int32_t from_rail = cluster_.rails ? way.from % nics : 0;
  const std::int32_t to_rail = cluster_.rails ? way.to % nics : 0;
  for (std::size_t i = 0; i < cluster_.switches.size(); ++i) {
    const SwitchLevel& level = cluster_.switches[i];
    const std::int32_t from = way.from_node / level.nodes_per_group;
    const std::int32_t to = way.to_node / level.nodes_per_group;
    const bool meet = from == to && from_rail == to_rail;
    route.latency_ns += meet ? level.latency_ns : 2 * level.latency_ns;
    if (meet) return;
    if (first_group_[i] == 0) continue;
    const auto id = [&](std::int32_t group, std::int32_t rail, std::int32_t down) {
      return first_group_[i] + static_cast<LinkId>((group * rails_ + rail) * 2 + down);
    };
    add(route, id(from, from_rail, 0));
    add(route, id(to, to_rail, 1));
  }
}

// Dimension by dimension, the shorter way around, forward where both are as long.
std::int32_t ClusterNetwork::add_torus(const Way& way, Route& route) const {
  struct Leg {
    std::int32_t stride, side, start, distance, direction;
    // Returns the coordinate of the node that is k hops further in this dimension.
    [[nodiscard]] std::int32_t at(std::int32_t k) const {
      return (direction == 0 ? start + k : start - k + side) % side * stride;
    }
  };
  std::array<Leg, Cluster::kMostDimensions> legs{};
  const std::vector<std::int32_t>& shape = cluster_.torus.shape;
  std::int32_t stride = 1, hops = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int32_t side = shape[i], start = way.from_node / stride % side;
    const std::int32_t ahead = (way.to_node / stride % side - start + side) % side;
    const bool back = 2 * ahead > side;
    legs[i] = {stride, side, start, back ? side - ahead : ahead, back ? 1 : 0};
    hops += legs[i].distance;
    stride *= side;
  }
  const std::int32_t told =
      std::min(hops, static_cast<std::int32_t>(Route::kMostLinks) - route.link_count);
  for (std::int32_t n = 0; n < told; ++n) {
    auto hop = static_cast<std::int32_t>(std::int64_t{n} * hops / told);
    std::int32_t node = way.from_node;
    std::size_t i = 0;
    for (; hop >= legs[i].distance; ++i) {
      hop -= legs[i].distance;
      node += legs[i].at(legs[i].distance) - legs[i].at(0);
    }
    node += legs[i].at(hop) - legs[i].at(0);
    add(route, link(node, first_torus_ + 2 * static_cast<std::int32_t>(i) + legs[i].direction));
  }
  return hops;
}

std::int32_t ClusterNetwork::pool_ranks() const {
  return cluster_.gpu == nullptr ? cluster_.ranks_per_node : 1;
}

std::int32_t ClusterNetwork::pool_workers() const {
  if (cluster_.gpu != nullptr) return 1;
  return cluster_.cores_per_node > 0 ? cluster_.cores_per_node : cluster_.ranks_per_node;
}

}  // namespace tutti
