// SPDX-License-Identifier: Apache-2.0
// Rank layout: the orders in which a job's ranks stand in rings and trees, and the groups of
// neighbours that a hierarchy takes.
//
// Orders are those of layout.hpp; the order of the ranks' numbers stays where nothing is better.
// Groups are the hosts, on a single host its NUMA nodes, and on a single node its shared caches,
// where each stands in one piece of the ring. Deterministic. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "model/layout.hpp"
#include "schedule/rank_order.hpp"

namespace tutti {

struct RankLayout {
  // One ring for each NIC that every host has, the best first; one on a single host.
  std::vector<RankOrder> rings{RankOrder()};
  RankOrder tree;
  // Sizes of the groups along the ring as hierarchical takes them, "2x4" or "4+3"; empty: one
  // group, or none that stands in one piece.
  std::string groups;
  // Hops of a ring from one host, NUMA node or cache to another: by number, and as it stands.
  std::size_t crossings_by_number = 0, crossings = 0;
};

// Above this many ranks trees take the ring's order, and the ring is not held against the one by
// number: all costs of all pairs would take longer than a start may.
inline constexpr std::size_t kMostComparedRanks = 64;
// The limit of ranks times devices. Above it, hosts stay together and their ranks follow their
// numbers. 1,024 ranks on 128 hosts, 2.8 million, take 0.14 s (2 GHz EPYC, Release).
inline constexpr std::uint64_t kMostSearched = 100'000'000;

// devices[r]: where rank r sits. Errors as of lay_rings().
[[nodiscard]] Result<RankLayout> lay_ranks(const topology::Graph& graph,
                                           std::span<const topology::DeviceId> devices,
                                           std::uint64_t most_searched = kMostSearched);

// Returns the pairs of ranks that exchange messages in an algorithm's all-reduce, each pair once.
[[nodiscard]] Result<Edges> edges_of(const Algorithm& algorithm, std::int32_t ranks);

}  // namespace tutti
