// SPDX-License-Identifier: Apache-2.0
#include "lab/graph_network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/technology.hpp"
#include "topology/merge.hpp"

namespace tutti {

using topology::Crossing;
using topology::Device;
using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;
using topology::kNoDevice;
using topology::kNoHost;
using topology::Link;
using topology::LinkIndex;
using topology::Path;
using topology::PathClass;

namespace {

bool computes(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kHost:
    case DeviceKind::kPackage:
    case DeviceKind::kNuma:
    case DeviceKind::kCache:
    case DeviceKind::kCore:
    case DeviceKind::kGpu:
      return true;
    default:
      return false;
  }
}

// One core's copy at a distance; the links between are shared by all cores.
double copy_ns_per_byte(PathClass kind) {
  std::string_view name = "shm-machine";
  if (kind == PathClass::kSelf) name = "shm-core";
  if (kind == PathClass::kCache) name = "shm-l3";
  if (kind == PathClass::kNuma) name = "shm-numa";
  if (kind == PathClass::kPackage) name = "shm-package";
  const auto found = find_technology(name);
  return found ? 1 / (*found)->GBps : 0;
}

// Fills a route's links; of too many the narrowest stay, in the order of the way.
void set_links(Route& route, std::vector<LinkId> links, std::span<const double> ns_per_byte) {
  while (links.size() > Route::kMostLinks)
    links.erase(
        std::ranges::min_element(links, {}, [&](LinkId link) { return ns_per_byte[link]; }));
  route.link_count = static_cast<std::uint8_t>(links.size());
  std::ranges::copy(links, route.link_ids.begin());
}

}  // namespace

class GraphNetworkBuilder {
 public:
  GraphNetworkBuilder(const Graph& graph, std::span<const DeviceId> devices)
      : graph_(graph), devices_(devices) {}

  Result<GraphNetwork> build() {
    TUTTI_TRY(check());
    number_links();
    seat_ranks();
    if (ranks_of_.size() > 1) {
      TUTTI_TRY(find_networks());
      for (const auto& ranks : ranks_of_)
        for (const std::size_t rank : ranks) plug_in(rank);
      spread();
    }
    TUTTI_TRY(find_inside());
    TUTTI_TRY(check_ways());
    find_pools();
    find_block();
    return std::move(network_);
  }

 private:
  Status check() const {
    if (devices_.empty())
      return make_error(Code::kInvalidArgument, "there are no ranks; give the device of each rank");
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      if (devices_[rank] >= graph_.devices().size())
        return make_error(
            Code::kInvalidArgument,
            fmt::format("rank {} is placed on device {}, but the graph has {} devices", rank,
                        devices_[rank], graph_.devices().size()));
      const Device& device = graph_.device(devices_[rank]);
      if (!computes(device.kind))
        return make_error(
            Code::kInvalidArgument,
            fmt::format("rank {} is placed on {}, which is a {}; place it on a core or a GPU", rank,
                        device.name, name_of(device.kind)));
    }
    return {};
  }

  // A link belongs to the host of either end; those between switches come last.
  [[nodiscard]] std::uint32_t host_of(const Link& link) const {
    return std::min(graph_.device(link.a).host, graph_.device(link.b).host);
  }
  void number_links() {
    std::vector<LinkIndex> order(graph_.links().size());
    for (LinkIndex i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](LinkIndex i) { return host_of(graph_.link(i)); });
    first_id_.resize(order.size());
    for (const LinkIndex index : order) {
      first_id_[index] = static_cast<LinkId>(network_.links_.size());
      network_.links_.insert(network_.links_.end(), 2, 1 / graph_.link(index).bytes_per_ns);
    }
  }

  void seat_ranks() {
    std::vector<std::int64_t> index(graph_.hosts(), -1);  // of hosts with ranks
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      const std::uint32_t host = graph_.device(devices_[rank]).host;
      if (index[host] < 0) {
        index[host] = static_cast<std::int64_t>(ranks_of_.size());
        ranks_of_.emplace_back();
        hosts_.push_back(host);
      }
      const auto at = static_cast<std::size_t>(index[host]);
      GraphNetwork::Seat seat;
      seat.host = static_cast<std::uint32_t>(at);
      seat.local = ranks_of_[at].size();
      network_.seats_.push_back(std::move(seat));
      ranks_of_[at].push_back(rank);
    }
    for (const auto& ranks : ranks_of_) network_.counts_.push_back(ranks.size());
  }

  [[nodiscard]] GraphNetwork::Part part(const Path& path) const {
    GraphNetwork::Part part{.latency_ns = path.latency_ns, .exists = path.exists()};
    if (path.bytes_per_ns > 0) part.ns_per_byte = 1 / path.bytes_per_ns;
    for (const Crossing& crossing : path.crossings)
      part.links.push_back(first_id_[crossing.link] + (crossing.forward ? 0 : 1));
    return part;
  }
  // The same way backwards.
  static GraphNetwork::Part reversed(GraphNetwork::Part part) {
    std::ranges::reverse(part.links);
    for (LinkId& id : part.links) id ^= 1;
    return part;
  }

  // Switches, and which of them reach one another: each such set is a network.
  Status find_networks() {
    switches_ = graph_.of_kind(DeviceKind::kSwitch);
    if (switches_.size() > GraphNetwork::kMostSwitches)
      return make_error(Code::kNotSupported,
                        fmt::format("the network has {} switches, and at most {} can be searched; "
                                    "describe the cluster in a file (TUTTI_CLUSTER)",
                                    switches_.size(), GraphNetwork::kMostSwitches));
    const std::size_t count = switches_.size();
    network_.switches_ = count;
    network_of_.assign(count, 0);
    std::vector<bool> known(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<Path> paths = topology::paths_from(graph_, switches_[i]);
      for (std::size_t j = 0; j < count; ++j) {
        // Through a host there is no way: networks that only a host joins are two.
        const Path& path = paths[switches_[j]];
        GraphNetwork::Part between = part(path);
        between.exists = path.exists() && crosses_switches_alone(path);
        if (between.exists && !known[j]) {
          network_of_[j] = known[i] ? network_of_[i] : networks_;
          known[j] = true;
        }
        network_.between_.push_back(std::move(between));
      }
      networks_ = 1 + *std::max_element(network_of_.begin(),
                                        network_of_.begin() + static_cast<std::ptrdiff_t>(i + 1));
    }
    return {};
  }
  [[nodiscard]] bool crosses_switches_alone(const Path& path) const {
    return std::ranges::all_of(path.crossings, [&](const Crossing& crossing) {
      const Link& link = graph_.link(crossing.link);
      return graph_.device(link.a).kind == DeviceKind::kSwitch &&
             graph_.device(link.b).kind == DeviceKind::kSwitch;
    });
  }

  struct Plug {
    LinkIndex link;
    std::size_t into;
  };
  [[nodiscard]] std::vector<Plug> plugs_of(DeviceId nic) const {
    std::vector<Plug> plugs;
    for (const LinkIndex index : graph_.links_of(nic)) {
      const auto found = std::ranges::find(switches_, graph_.other_end(index, nic));
      if (found != switches_.end())
        plugs.push_back({index, static_cast<std::size_t>(found - switches_.begin())});
    }
    return plugs;
  }

  // Finds the rank's nearest port in each network, and then the nearest networks.
  void plug_in(std::size_t rank) {
    GraphNetwork::Seat& seat = network_.seats_[rank];
    seat.out.resize(networks_);
    seat.in.resize(networks_);
    seat.switches.resize(networks_);
    const std::uint32_t host = graph_.device(devices_[rank]).host;
    const auto found = paths_.find(devices_[rank]);
    const std::vector<Path>& paths =
        found != paths_.end()
            ? found->second
            : paths_.emplace(devices_[rank], topology::paths_from(graph_, devices_[rank]))
                  .first->second;
    struct Choice {
      GraphNetwork::Part part;
      std::size_t into;
    };
    std::vector<std::vector<Choice>> nearest(networks_);
    for (const DeviceId nic : graph_.of_kind(DeviceKind::kNic, host))
      for (const Plug& plug : plugs_of(nic)) {
        if (!paths[nic].exists()) continue;
        Choice choice{part(paths[nic]), plug.into};
        const Link& link = graph_.link(plug.link);
        choice.part.latency_ns += link.latency_ns;
        choice.part.ns_per_byte = std::max(choice.part.ns_per_byte, 1 / link.bytes_per_ns);
        choice.part.links.push_back(first_id_[plug.link] + (link.a == nic ? 0 : 1));
        auto& best = nearest[network_of_[plug.into]];
        if (!best.empty() && nearer(choice.part, best.front().part)) best.clear();
        if (best.empty() || !nearer(best.front().part, choice.part))
          best.push_back(std::move(choice));
      }
    for (std::size_t network = 0; network < networks_; ++network) {
      if (nearest[network].empty()) continue;
      // Ranks that are as near to several ports take them in turn.
      const auto& choices = nearest[network];
      const Choice& mine =
          choices[turns_[{host, network, choices.front().into}]++ % choices.size()];
      seat.out[network] = mine.part;
      seat.in[network] = reversed(mine.part);
      seat.switches[network] = mine.into;
    }
  }
  static bool nearer(const GraphNetwork::Part& one, const GraphNetwork::Part& other) {
    return one.latency_ns < other.latency_ns ||
           (one.latency_ns == other.latency_ns && one.ns_per_byte < other.ns_per_byte);
  }

  // Chooses the network over which a rank sends: the nearest; ranks that are equally near to
  // several take turns.
  void spread() {
    for (const auto& ranks : ranks_of_) {
      std::map<std::vector<std::uint32_t>, std::size_t> turns;
      for (const std::size_t rank : ranks) {
        GraphNetwork::Seat& seat = network_.seats_[rank];
        std::vector<std::uint32_t> best;
        for (std::uint32_t network = 0; network < networks_; ++network) {
          if (!seat.out[network].exists) continue;
          if (!best.empty() && nearer(seat.out[network], seat.out[best.front()])) best.clear();
          if (best.empty() || !nearer(seat.out[best.front()], seat.out[network]))
            best.push_back(network);
        }
        if (!best.empty()) seat.network = best[turns[best]++ % best.size()];
      }
    }
  }

  Status find_inside() {
    for (std::size_t host = 0; host < ranks_of_.size(); ++host) {
      const auto& ranks = ranks_of_[host];
      std::vector<Route> routes;
      routes.reserve(ranks.size() * ranks.size());
      for (const std::size_t from : ranks) {
        const auto found = paths_.find(devices_[from]);
        const std::vector<Path> paths =
            found != paths_.end() ? found->second : topology::paths_from(graph_, devices_[from]);
        for (const std::size_t to : ranks) {
          const Path& path = paths[devices_[to]];
          if (!path.exists()) return no_way(from, to);
          routes.push_back(inside_route(path));
        }
      }
      network_.inside_.push_back(std::move(routes));
    }
    return {};
  }

  [[nodiscard]] Route inside_route(const Path& path) const {
    GraphNetwork::Part way = part(path);
    Route route;
    const bool gpus = graph_.device(path.from).kind == DeviceKind::kGpu &&
                      graph_.device(path.to).kind == DeviceKind::kGpu;
    route.hop = gpus ? Hop::kDevice : Hop::kShared;
    route.latency_ns = way.latency_ns;
    route.ns_per_byte = way.ns_per_byte;
    if (!gpus) route.ns_per_byte = std::max(route.ns_per_byte, copy_ns_per_byte(path.kind));
    set_links(route, std::move(way.links), network_.links_);
    return route;
  }

  [[nodiscard]] tl::unexpected<Error> no_way(std::size_t from, std::size_t to) const {
    return make_error(Code::kInvalidArgument,
                      fmt::format("no path is known from rank {} on {} to rank {} on {}; describe "
                                  "the network in a cluster file (TUTTI_CLUSTER)",
                                  from, graph_.device(devices_[from]).name, to,
                                  graph_.device(devices_[to]).name));
  }

  // Every pair of hosts, by the networks of their ranks.
  [[nodiscard]] Status check_ways() const {
    if (ranks_of_.size() < 2) return {};
    for (const auto& ranks : ranks_of_)
      for (const std::size_t rank : ranks) {
        const auto& mine = network_.seats_[rank];
        for (const auto& others : ranks_of_) {
          const auto& other = network_.seats_[others.front()];
          if (other.host == mine.host) continue;
          if (mine.out.empty() || !mine.out[mine.network].exists || !other.in[mine.network].exists)
            return no_way(rank, others.front());
        }
      }
    return {};
  }

  // Ranks k*n to (k+1)*n on host k, for all hosts; n, or 0.
  [[nodiscard]] std::size_t ranks_in_order() const {
    const std::size_t count = ranks_of_.front().size();
    for (std::size_t host = 0; host < ranks_of_.size(); ++host) {
      if (ranks_of_[host].size() != count) return 0;
      for (std::size_t i = 0; i < count; ++i)
        if (ranks_of_[host][i] != host * count + i) return 0;
    }
    return count;
  }

  void find_pools() {
    const bool accelerators = std::ranges::any_of(
        devices_, [&](DeviceId id) { return graph_.device(id).kind == DeviceKind::kGpu; });
    const std::size_t count = ranks_in_order();
    if (accelerators || count == 0) return;  // a worker each
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const std::uint32_t host : hosts_) {
      const std::size_t cores = graph_.of_kind(DeviceKind::kCore, host).size();
      fewest = std::min(fewest, cores == 0 ? count : cores);
    }
    network_.pool_ranks_ = static_cast<std::int32_t>(count);
    network_.pool_workers_ = static_cast<std::int32_t>(fewest);
  }

  // Are this host's routes those of host 0, its links in the place of host 0's?
  void find_block() {
    const std::size_t count = ranks_in_order();
    if (count == 0 || hosts_.size() != graph_.hosts()) return;
    for (const GraphNetwork::Part& between : network_.between_)
      if (!between.links.empty()) return;  // levels of switches: some hosts are nearer than others
    const std::size_t stride = links_of(hosts_[0]);
    for (std::size_t host = 0; host < hosts_.size(); ++host)
      if (links_of(hosts_[host]) != stride || !alike(host, host * stride)) return;
    for (std::size_t i = stride; i < network_.links_.size(); ++i)
      if (network_.links_[i] != network_.links_[i % stride]) return;
    network_.block_ = static_cast<Rank>(count);
  }
  [[nodiscard]] std::size_t links_of(std::uint32_t host) const {
    return 2 * static_cast<std::size_t>(std::ranges::count_if(
                   graph_.links(), [&](const Link& link) { return host_of(link) == host; }));
  }
  [[nodiscard]] bool alike(std::size_t host, std::size_t offset) const {
    const auto same_links = [&](std::span<const LinkId> first, std::span<const LinkId> here) {
      return std::ranges::equal(first, here, {}, {},
                                [&](LinkId id) { return static_cast<LinkId>(id - offset); });
    };
    const auto& first = network_.inside_[0];
    const auto& here = network_.inside_[host];
    for (std::size_t i = 0; i < first.size(); ++i)
      if (first[i].hop != here[i].hop || first[i].latency_ns != here[i].latency_ns ||
          first[i].ns_per_byte != here[i].ns_per_byte ||
          !same_links(first[i].links(), here[i].links()))
        return false;
    for (std::size_t i = 0; i < ranks_of_[0].size(); ++i) {
      const auto& a = network_.seats_[ranks_of_[0][i]];
      const auto& b = network_.seats_[ranks_of_[host][i]];
      if (a.network != b.network || a.switches != b.switches) return false;
      for (std::size_t k = 0; k < a.out.size(); ++k)
        if (a.out[k].exists != b.out[k].exists || a.out[k].latency_ns != b.out[k].latency_ns ||
            !same_links(a.out[k].links, b.out[k].links))
          return false;
    }
    return true;
  }

  const Graph& graph_;
  std::span<const DeviceId> devices_;
  GraphNetwork network_;
  std::vector<LinkId> first_id_;                    // by LinkIndex: of its direction from a to b
  std::vector<std::vector<std::size_t>> ranks_of_;  // by host with ranks
  std::vector<std::uint32_t> hosts_;                // the graph's, by host with ranks
  std::vector<DeviceId> switches_;
  std::vector<std::uint32_t> network_of_;  // by switch
  std::uint32_t networks_ = 0;
  std::map<DeviceId, std::vector<Path>> paths_;  // from ranks' devices
  std::map<std::tuple<std::uint32_t, std::size_t, std::size_t>, std::size_t> turns_;
};

Result<GraphNetwork> GraphNetwork::make(const Graph& graph, std::span<const DeviceId> devices) {
  return GraphNetworkBuilder(graph, devices).build();
}

Route GraphNetwork::route(Rank from, Rank to) const {
  const Seat& source = seats_[static_cast<std::size_t>(from)];
  const Seat& target = seats_[static_cast<std::size_t>(to)];
  if (source.host == target.host)
    return inside_[source.host][source.local * counts_[source.host] + target.local];
  const std::uint32_t network = source.network;
  const Part& out = source.out[network];
  const Part& in = target.in[network];
  const Part& between = between_[source.switches[network] * switches_ + target.switches[network]];
  Route route;
  route.hop = Hop::kNetwork;
  route.latency_ns = out.latency_ns + between.latency_ns + in.latency_ns;
  route.ns_per_byte = std::max({out.ns_per_byte, between.ns_per_byte, in.ns_per_byte});
  const std::size_t all = out.links.size() + between.links.size() + in.links.size();
  if (all > Route::kMostLinks) {
    std::vector<LinkId> links = out.links;
    links.insert(links.end(), between.links.begin(), between.links.end());
    links.insert(links.end(), in.links.begin(), in.links.end());
    set_links(route, std::move(links), links_);
    return route;
  }
  LinkId* end = std::ranges::copy(out.links, route.link_ids.begin()).out;
  end = std::ranges::copy(between.links, end).out;
  std::ranges::copy(in.links, end);
  route.link_count = static_cast<std::uint8_t>(all);
  return route;
}

}  // namespace tutti
