// SPDX-License-Identifier: Apache-2.0
#include "model/layout.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "topology/merge.hpp"
#include "topology/path.hpp"

namespace tutti {

using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;
using topology::kNoHost;
using topology::Path;

namespace {

// Dearer than any way there is: hosts that nothing joins come last.
constexpr double kNoWay_ns = 1e15;

double hop_cost_ns(const Path& path, const LayoutOptions& options) {
  if (!path.exists()) return kNoWay_ns;
  if (path.bytes_per_ns <= 0) return 0;  // one device
  return path.latency_ns + options.hop_bytes / path.bytes_per_ns;
}

// A part of a graph, so that ways through it do not walk the rest: those of large clusters took
// seconds.
struct Part {
  Graph graph;
  std::map<DeviceId, DeviceId> id_of;  // by the whole's
};

// Hosts are kept wherever something of theirs is; what is left out between is skipped.
template <typename Keep>
Part part_of(const Graph& whole, Keep keep) {
  Part part;
  std::map<std::uint32_t, std::uint32_t> host_of;  // by the whole's
  for (DeviceId id = 0; id < whole.devices().size(); ++id) {
    topology::Device device = whole.device(id);
    if (!keep(device)) continue;
    DeviceId parent = device.parent;
    while (parent != topology::kNoDevice && !part.id_of.contains(parent))
      parent = whole.device(parent).parent;
    device.parent = parent == topology::kNoDevice ? parent : part.id_of.at(parent);
    if (device.kind == DeviceKind::kHost) host_of[device.host] = part.graph.hosts();
    if (device.host != kNoHost) device.host = host_of.at(device.host);
    part.id_of[id] = part.graph.add_device(std::move(device));
  }
  for (topology::Link link : whole.links()) {
    const auto a = part.id_of.find(link.a), b = part.id_of.find(link.b);
    if (a == part.id_of.end() || b == part.id_of.end()) continue;
    link.a = a->second;
    link.b = b->second;
    part.graph.add_link(link);
  }
  return part;
}

class LayoutSearch {
 public:
  LayoutSearch(const Graph& graph, std::span<const DeviceId> devices, const LayoutOptions& options)
      : graph_(graph), devices_(devices), options_(options) {}

  Status seat() {
    if (devices_.empty())
      return make_error(Code::kInvalidArgument, "there are no ranks; give the device of each rank");
    std::map<std::uint32_t, std::size_t> index;
    for (std::uint32_t rank = 0; rank < devices_.size(); ++rank) {
      if (devices_[rank] >= graph_.devices().size() ||
          graph_.device(devices_[rank]).host == kNoHost)
        return make_error(
            Code::kInvalidArgument,
            fmt::format("rank {} is placed on device {}, which no host of the graph has", rank,
                        devices_[rank]));
      const std::uint32_t host = graph_.device(devices_[rank]).host;
      const auto [at, fresh] = index.emplace(host, hosts_.size());
      if (fresh) hosts_.push_back({host, {}, {}});
      hosts_[at->second].ranks.push_back(rank);
    }
    if (hosts_.size() > 1)
      for (Host& host : hosts_) host.nics = topology::fabric_nics(graph_, host.id);
    return {};
  }

  std::vector<Layout> rings() {
    order_hosts();
    for (Host& host : hosts_)
      host.part = std::make_shared<const Part>(
          part_of(graph_, [&](const topology::Device& device) { return device.host == host.id; }));
    std::size_t count = hosts_.size() > 1 ? options_.most_rings : 1;
    for (const Host& host : hosts_)
      if (hosts_.size() > 1) count = std::min(count, host.nics.size());
    std::vector<Layout> layouts;
    for (std::size_t rail = 0; rail < std::max<std::size_t>(count, 1); ++rail) {
      Layout layout;
      for (const std::size_t at : host_order_) {
        const Host& host = hosts_[at];
        const bool nic = rail < count && hosts_.size() > 1;
        if (nic) layout.nics.push_back(host.nics[rail]);
        for (const std::uint32_t rank : inside(host, nic ? host.nics[rail] : topology::kNoDevice))
          layout.order.push_back(rank);
      }
      layouts.push_back(std::move(layout));
    }
    return layouts;
  }

 private:
  struct Host {
    std::uint32_t id;
    std::vector<std::uint32_t> ranks;  // ascending
    std::vector<DeviceId> nics;
    std::shared_ptr<const Part> part = nullptr;  // itself; once asked for
  };

  // The tour over a host's ranks, and over its NIC where there is one: cut there.
  std::vector<std::uint32_t> inside(const Host& host, DeviceId nic) {
    const std::size_t first = nic == topology::kNoDevice ? 0 : 1;
    const std::size_t places = host.ranks.size() + first;
    CostMatrix costs(places);
    const auto at = [&](DeviceId id) { return host.part->id_of.at(id); };
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      const std::vector<Path> from =
          topology::paths_from(host.part->graph, at(devices_[host.ranks[i]]));
      for (std::size_t j = 0; j < i; ++j)
        costs.set(first + i, first + j, hop_cost_ns(from[at(devices_[host.ranks[j]])], options_));
      if (first == 1) costs.set(0, first + i, hop_cost_ns(from[at(nic)], options_));
    }
    std::vector<std::uint32_t> order;
    for (const std::uint32_t place : best_tour(costs))
      if (place >= first) order.push_back(host.ranks[place - first]);
    return order;
  }

  // Few hosts by the search, many as the switches come.
  void order_hosts() {
    host_order_.resize(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i) host_order_[i] = i;
    constexpr std::size_t kMostSearched = 64;
    const bool plugged = std::ranges::none_of(hosts_, [](const Host& h) { return h.nics.empty(); });
    if (hosts_.size() < 4 || !plugged) return;
    if (hosts_.size() > kMostSearched) {
      order_by_switches();
      return;
    }
    const Part network = part_of(graph_, [](const topology::Device& device) {
      return device.kind == DeviceKind::kHost || device.kind == DeviceKind::kNic ||
             device.kind == DeviceKind::kSwitch;
    });
    CostMatrix costs(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::vector<Path> from =
          topology::paths_from(network.graph, network.id_of.at(hosts_[i].nics.front()));
      for (std::size_t j = 0; j < i; ++j)
        costs.set(i, j, hop_cost_ns(from[network.id_of.at(hosts_[j].nics.front())], options_));
    }
    const Order order = best_tour(costs);
    host_order_.assign(order.begin(), order.end());
  }

  // Depth first through the switches from the first host's: hosts below one switch follow another.
  void order_by_switches() {
    std::map<DeviceId, std::size_t> host_of;  // by first NIC
    for (std::size_t i = 0; i < hosts_.size(); ++i) host_of[hosts_[i].nics.front()] = i;
    std::vector<bool> seen(graph_.devices().size());
    std::vector<std::size_t> order;
    std::vector<DeviceId> open{hosts_.front().nics.front()};
    while (!open.empty()) {
      const DeviceId at = open.back();
      open.pop_back();
      if (seen[at]) continue;
      seen[at] = true;
      if (host_of.contains(at)) order.push_back(host_of[at]);
      const auto links = graph_.links_of(at);
      // The last pushed is looked at first: hosts before further switches, ascending.
      for (const bool nics : {false, true})
        for (auto link = links.rbegin(); link != links.rend(); ++link) {
          const DeviceId next = graph_.other_end(*link, at);
          if (graph_.link(*link).kind == topology::LinkKind::kNetwork &&
              (graph_.device(next).kind == DeviceKind::kNic) == nics)
            open.push_back(next);
        }
    }
    if (order.size() == hosts_.size()) host_order_ = std::move(order);
  }

  const Graph& graph_;
  std::span<const DeviceId> devices_;
  const LayoutOptions& options_;
  std::vector<Host> hosts_;
  std::vector<std::size_t> host_order_;
};

}  // namespace

Result<std::vector<Layout>> lay_rings(const Graph& graph, std::span<const DeviceId> devices,
                                      const LayoutOptions& options) {
  LayoutSearch search(graph, devices, options);
  TUTTI_TRY(search.seat());
  return search.rings();
}

Result<CostMatrix> hop_costs(const Graph& graph, std::span<const DeviceId> devices,
                             const LayoutOptions& options) {
  if (devices.size() > kMostPlaces)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} ranks are too many: at most {} can be compared pair by pair",
                                  devices.size(), kMostPlaces));
  CostMatrix costs(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] >= graph.devices().size())
      return make_error(Code::kInvalidArgument,
                        fmt::format("rank {} is not placed on any device", i));
    const std::vector<Path> from = topology::paths_from(graph, devices[i]);
    for (std::size_t j = 0; j < i; ++j) costs.set(i, j, hop_cost_ns(from[devices[j]], options));
  }
  return costs;
}

Result<Layout> lay_edges(const Graph& graph, std::span<const DeviceId> devices, const Edges& edges,
                         const LayoutOptions& options) {
  for (const auto& [a, b] : edges)
    if (a >= devices.size() || b >= devices.size())
      return make_error(Code::kInvalidArgument,
                        fmt::format("an edge joins ranks {} and {}, but there are {} ranks", a, b,
                                    devices.size()));
  TUTTI_TRY_ASSIGN(std::vector<Layout> rings, lay_rings(graph, devices, options));
  Layout layout = std::move(rings.front());
  if (devices.size() > kMostPlaces) return layout;
  TUTTI_TRY_ASSIGN(const CostMatrix costs, hop_costs(graph, devices, options));
  const int rounds = devices.size() > kMostTreeRanks ? 0 : 8;
  layout.order = improve_edges(costs, edges, std::move(layout.order), rounds);
  return layout;
}

}  // namespace tutti
