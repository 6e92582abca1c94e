// SPDX-License-Identifier: Apache-2.0
// Layout: in what order ranks stand in a ring or hang in a tree, by the graph and not by number.
//
// An order says which rank takes a place of a schedule: order[k] does what the schedule says of
// rank k. Ranks of one host stay together; inside a host the search of tour.hpp goes from device to
// device; hosts follow one another by the switches between them. With several hosts each host's
// part of the ring begins and ends near the NIC that it enters and leaves by, one ring a rail.
//
// Deterministic: all ranks that hold the same graph find the same order. Pure; any thread.
#pragma once

#include <span>
#include <vector>

#include "model/tour.hpp"
#include "topology/graph.hpp"

namespace tutti {

struct LayoutOptions {
  // A hop costs its latency and this many bytes at its bandwidth: middle-sized messages, which both
  // matter to.
  double hop_bytes = 1 << 20;
  std::size_t most_rings = 8;
};

// A ring, or the tree of one set of edges, over all ranks.
struct Layout {
  Order order;
  // The NIC of each host that its part enters and leaves by, by host with ranks; empty on one host.
  std::vector<topology::DeviceId> nics;
};

// devices[r]: where rank r sits, as of GraphNetwork::make. One ring for each NIC that every host
// has, at least one and at most most_rings; the first is the one to take where only one is wanted.
// kInvalidArgument: no ranks, or a device that is not in the graph.
[[nodiscard]] Result<std::vector<Layout>> lay_rings(const topology::Graph& graph,
                                                    std::span<const topology::DeviceId> devices,
                                                    const LayoutOptions& options = {});

// `edges`: of the schedule, between its ranks (a tree's, or any other's). From the first ring's
// order, by exchanging ranks; above kMostTreeRanks the ring's order stays where it is better than
// the ranks' own. Errors as lay_rings().
inline constexpr std::size_t kMostTreeRanks = 256;
[[nodiscard]] Result<Layout> lay_edges(const topology::Graph& graph,
                                       std::span<const topology::DeviceId> devices,
                                       const Edges& edges, const LayoutOptions& options = {});

// Returns the cost in ns of a hop between the devices of every two ranks, as lay_rings() counts it;
// for tests and displays. At most kMostPlaces ranks, kInvalidArgument otherwise.
[[nodiscard]] Result<CostMatrix> hop_costs(const topology::Graph& graph,
                                           std::span<const topology::DeviceId> devices,
                                           const LayoutOptions& options = {});

}  // namespace tutti
