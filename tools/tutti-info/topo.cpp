// SPDX-License-Identifier: Apache-2.0
#include "topo.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "algorithms/algorithm.hpp"
#include "topology/cluster.hpp"
#include "topology/hwloc_reader.hpp"
#include "topology/merge.hpp"
#include "topology/nccl_reader.hpp"

namespace tutti::info {

using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;
using topology::Path;

namespace {

// Beyond this a matrix is no longer read, nor a picture looked at.
constexpr std::size_t kMostRows = 32;
constexpr std::size_t kMostSeats = 256;

Result<std::vector<Graph>> read_hosts(const TopoFlags& flags) {
  std::vector<Graph> hosts;
  const auto add = [&hosts](Result<Graph> graph) -> Status {
    TUTTI_TRY_ASSIGN(Graph read, std::move(graph));
    hosts.push_back(std::move(read));
    return {};
  };
  for (const std::string& file : flags.hwloc) TUTTI_TRY(add(topology::read_hwloc_file(file)));
  for (const std::string& file : flags.nccl) TUTTI_TRY(add(topology::read_nccl_file(file)));
  for (const std::string& text : flags.synthetic) TUTTI_TRY(add(topology::read_synthetic(text)));
  if (hosts.empty())
    TUTTI_TRY(add(topology::read_host([](const char* name) { return std::getenv(name); })));
  return hosts;
}

Result<Graph> read_graph(const TopoFlags& flags) {
  TUTTI_TRY_ASSIGN(const std::vector<Graph> hosts, read_hosts(flags));
  if (flags.cluster.empty()) return topology::merge(hosts, nullptr);
  if (hosts.size() < 2)
    return make_error(Code::kInvalidArgument,
                      "--cluster describes the network between hosts, but only one host is given; "
                      "give --hwloc, --nccl or --synthetic once for each host");
  TUTTI_TRY_ASSIGN(const Cluster cluster, read_cluster(flags.cluster));
  return topology::merge(hosts, &cluster);
}

// The finest devices of which there are not more than `most`: cores, caches, NUMA nodes, packages.
std::vector<DeviceId> cpu_places(const Graph& graph, std::size_t most) {
  for (const DeviceKind kind :
       {DeviceKind::kCore, DeviceKind::kCache, DeviceKind::kNuma, DeviceKind::kPackage}) {
    std::vector<DeviceId> found = graph.of_kind(kind);
    if (!found.empty() && found.size() <= most) return found;
  }
  return graph.of_kind(DeviceKind::kHost);
}

std::vector<DeviceId> rows(const Graph& graph) {
  std::vector<DeviceId> shown = graph.of_kind(DeviceKind::kGpu);
  if (shown.empty()) shown = cpu_places(graph, kMostRows);
  for (const DeviceId nic : graph.of_kind(DeviceKind::kNic)) shown.push_back(nic);
  return shown;
}

Drawn measured(const Graph& graph, Drawn drawn) {
  for (const auto& [from, to] : drawn.hops) {
    const Path path = path_between(graph, from, to);
    drawn.longest_ns = std::max(drawn.longest_ns, path.latency_ns);
    if (path.bytes_per_ns > 0 &&
        (drawn.slowest_bytes_per_ns == 0 || path.bytes_per_ns < drawn.slowest_bytes_per_ns))
      drawn.slowest_bytes_per_ns = path.bytes_per_ns;
  }
  return drawn;
}

Status draw_rings(Topo& topo) {
  TUTTI_TRY_ASSIGN(const std::vector<Layout> rings, lay_rings(topo.graph, topo.seats));
  for (const Layout& ring : rings) {
    Drawn drawn{.name = "ring", .closed = true};
    if (!ring.nics.empty()) drawn.name += " by " + topo.graph.device(ring.nics.front()).name;
    for (std::size_t k = 0; k < ring.order.size(); ++k)
      drawn.hops.emplace_back(topo.seats[ring.order[k]],
                              topo.seats[ring.order[(k + 1) % ring.order.size()]]);
    topo.drawn.push_back(measured(topo.graph, std::move(drawn)));
  }
  return {};
}

// Returns which rank sends to which in a schedule; tag by tag, for the double tree is two.
Result<std::vector<Edges>> edges_of(const std::string& algorithm, std::size_t ranks) {
  TUTTI_TRY_ASSIGN(const Algorithm* found, find_algorithm(algorithm));
  TUTTI_TRY_ASSIGN(const Schedule schedule,
                   build_schedule(*found, {.collective = Collective::kAllReduce,
                                           .ranks = static_cast<std::int32_t>(ranks)}));
  std::vector<std::set<std::pair<std::uint32_t, std::uint32_t>>> sets(schedule.shape.tags);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    for (const Lane& lane : schedule.ranks[rank].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& operand : step.destinations) {
          if (operand.kind != OperandKind::kSend || operand.tag >= sets.size()) continue;
          const auto peer = static_cast<std::uint32_t>(operand.peer);
          sets[operand.tag].insert({std::min(rank, peer), std::max(rank, peer)});
        }
  std::vector<Edges> edges;
  for (const auto& set : sets) edges.emplace_back(set.begin(), set.end());
  return edges;
}

Status draw_trees(Topo& topo) {
  TUTTI_TRY_ASSIGN(const std::vector<Edges> trees, edges_of("tree", topo.seats.size()));
  Edges all;
  for (const Edges& tree : trees) all.insert(all.end(), tree.begin(), tree.end());
  // Both trees are one schedule, so one order serves both.
  TUTTI_TRY_ASSIGN(const Layout layout, lay_edges(topo.graph, topo.seats, all));
  for (std::size_t i = 0; i < trees.size(); ++i) {
    Drawn drawn{.name = fmt::format("tree {}", i)};
    for (const auto& [a, b] : trees[i])
      drawn.hops.emplace_back(topo.seats[layout.order[a]], topo.seats[layout.order[b]]);
    topo.drawn.push_back(measured(topo.graph, std::move(drawn)));
  }
  return {};
}

}  // namespace

std::string label(const Graph& graph, DeviceId id) {
  const topology::Device& device = graph.device(id);
  if (graph.hosts() < 2 || device.host == topology::kNoHost) return device.name;
  return fmt::format("{}:{}", device.host, device.name);
}

Result<Topo> look_at_topology(const TopoFlags& flags) {
  Topo topo;
  TUTTI_TRY_ASSIGN(topo.graph, read_graph(flags));
  topo.shown = rows(topo.graph);
  if (topo.shown.size() > 4 * kMostRows) topo.shown.resize(4 * kMostRows);
  for (const DeviceId from : topo.shown) {
    std::vector<Path> all = paths_from(topo.graph, from);
    std::vector<Path> here;
    for (const DeviceId to : topo.shown) here.push_back(std::move(all[to]));
    topo.ways.push_back(std::move(here));
  }
  topo.seats = topo.graph.of_kind(DeviceKind::kGpu);
  if (topo.seats.empty()) topo.seats = cpu_places(topo.graph, kMostSeats);
  if (topo.seats.size() > 1 && topo.seats.size() <= kMostSeats) {
    TUTTI_TRY(draw_rings(topo));
    TUTTI_TRY(draw_trees(topo));
  }
  return topo;
}

}  // namespace tutti::info
