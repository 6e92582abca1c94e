// SPDX-License-Identifier: Apache-2.0
#include "model/rank_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

namespace tutti {

using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;

namespace {

Order by_number(std::size_t ranks) {
  Order order(ranks);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Result<RankOrder> as_ranks(const Order& order) {
  return RankOrder::make(std::vector<Rank>(order.begin(), order.end()));
}

// Returns what a rank's neighbours have in common: the host; on the only host the NUMA node or
// package; and on the only one of these the cache.
std::vector<std::uint32_t> groups_of(const Graph& graph, std::span<const DeviceId> devices) {
  std::vector<std::uint32_t> hosts, nodes, caches;
  for (const DeviceId device : devices) {
    hosts.push_back(graph.device(device).host);
    DeviceId node = graph.container(device, DeviceKind::kNuma);
    if (node == topology::kNoDevice) node = graph.container(device, DeviceKind::kPackage);
    nodes.push_back(node);
    caches.push_back(graph.container(device, DeviceKind::kCache));
  }
  const auto differ = [](const std::vector<std::uint32_t>& of) {
    return std::ranges::adjacent_find(of, std::not_equal_to<>()) != of.end();
  };
  return differ(hosts) ? hosts : differ(nodes) ? nodes : caches;
}

// The ring is closed: it begins with the whole group of its first rank.
void begin_with_a_group(Order& order, std::span<const std::uint32_t> group_of) {
  auto begin = order.end();
  while (begin != order.begin() && group_of[*(begin - 1)] == group_of[order.front()]) --begin;
  if (begin != order.begin()) std::rotate(order.begin(), begin, order.end());
}

std::size_t count_crossings(const Order& order, std::span<const std::uint32_t> group_of) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < order.size(); ++k)
    count += group_of[order[k]] != group_of[order[(k + 1) % order.size()]] ? 1 : 0;
  return count;
}

// "2x4+3", or empty.
std::string group_text(const Order& order, std::span<const std::uint32_t> group_of) {
  std::vector<std::size_t> sizes;
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (k == 0 || group_of[order[k]] != group_of[order[k - 1]]) sizes.push_back(0);
    ++sizes.back();
  }
  const std::set<std::uint32_t> different(group_of.begin(), group_of.end());
  if (sizes.size() < 2 || sizes.size() != different.size() || sizes.size() == order.size())
    return {};
  std::string text;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t same = i;
    while (same < sizes.size() && sizes[same] == sizes[i]) ++same;
    if (!text.empty()) text += '+';
    text += same - i == 1 ? fmt::to_string(sizes[i]) : fmt::format("{}x{}", same - i, sizes[i]);
    i = same;
  }
  return text;
}

// By number inside of hosts, which follow one another by their first ranks.
Order hosts_together(const Graph& graph, std::span<const DeviceId> devices) {
  std::map<std::uint32_t, std::size_t> first;  // by host
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    first.emplace(graph.device(devices[rank]).host, rank);
  Order order = by_number(devices.size());
  std::ranges::stable_sort(
      order, {}, [&](std::uint32_t rank) { return first.at(graph.device(devices[rank]).host); });
  return order;
}

Result<Order> tree_order(const Graph& graph, std::span<const DeviceId> devices,
                         const CostMatrix& costs) {
  const Algorithm& tree =
      **std::ranges::find(all_algorithms(), OrderKind::kTree, &Algorithm::order);
  TUTTI_TRY_ASSIGN(const Edges edges, edges_of(tree, static_cast<std::int32_t>(devices.size())));
  TUTTI_TRY_ASSIGN(Layout layout, lay_edges(graph, devices, edges));
  Order plain = by_number(devices.size());
  const bool better = edges_cost(costs, edges, layout.order) < edges_cost(costs, edges, plain);
  return better ? std::move(layout.order) : std::move(plain);
}

}  // namespace

Result<Edges> edges_of(const Algorithm& algorithm, std::int32_t ranks) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks};
  TUTTI_TRY(check_problem(algorithm, problem));
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (Rank rank = 0; rank < ranks; ++rank)
    for (const Lane& lane : algorithm.program(problem, rank).lanes)
      for (const Step& step : lane.steps)
        for (const Operand& operand : step.destinations) {
          if (operand.kind != OperandKind::kSend) continue;
          const auto [low, high] = std::minmax(rank, operand.peer);
          pairs.emplace(low, high);
        }
  return Edges(pairs.begin(), pairs.end());
}

Result<RankLayout> lay_ranks(const Graph& graph, std::span<const DeviceId> devices,
                             std::uint64_t most_searched) {
  RankLayout laid;
  const bool searched = devices.size() * graph.devices().size() <= most_searched;
  std::vector<Order> rings;
  if (searched) {
    TUTTI_TRY_ASSIGN(std::vector<Layout> layouts, lay_rings(graph, devices));
    for (Layout& layout : layouts) rings.push_back(std::move(layout.order));
  } else {
    for (const DeviceId device : devices)
      if (device >= graph.devices().size())
        return make_error(
            Code::kInvalidArgument,
            fmt::format("a rank is placed on device {}, which does not exist", device));
    rings.push_back(hosts_together(graph, devices));
  }
  Order tree = rings.front();
  if (searched && devices.size() <= kMostComparedRanks) {
    TUTTI_TRY_ASSIGN(const CostMatrix costs, hop_costs(graph, devices));
    const Order plain = by_number(devices.size());
    if (tour_cost(costs, rings.front()) >= tour_cost(costs, plain)) rings.front() = plain;
    TUTTI_TRY_ASSIGN(tree, tree_order(graph, devices, costs));
  }
  const std::vector<std::uint32_t> group_of = groups_of(graph, devices);
  for (Order& ring : rings)
    if (!std::ranges::is_sorted(ring)) begin_with_a_group(ring, group_of);
  laid.crossings_by_number = count_crossings(by_number(devices.size()), group_of);
  laid.crossings = count_crossings(rings.front(), group_of);
  laid.groups = group_text(rings.front(), group_of);
  laid.rings.clear();
  for (const Order& ring : rings) {
    TUTTI_TRY_ASSIGN(laid.rings.emplace_back(), as_ranks(ring));
  }
  TUTTI_TRY_ASSIGN(laid.tree, as_ranks(tree));
  return laid;
}

}  // namespace tutti
