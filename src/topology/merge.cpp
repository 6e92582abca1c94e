// SPDX-License-Identifier: Apache-2.0
#include "topology/merge.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "topology/figures.hpp"

namespace tutti::topology {
namespace {

class Merger {
 public:
  Merger(std::span<const Graph> hosts, const Cluster* description) : description_(description) {
    for (const Graph& host : hosts) copy(host);
  }

  Result<Graph> join() {
    TUTTI_TRY(check());
    for (std::uint32_t host = 0; host < graph_.hosts(); ++host) ports_.push_back(ports_of(host));
    if (graph_.hosts() < 2) return std::move(graph_);
    if (description_ != nullptr && !description_->torus.shape.empty())
      join_torus();
    else if (rails() > 1)
      for (std::size_t rail = 0; rail < rails(); ++rail) join_tree(rail);
    else
      join_tree(kAllRails);
    return std::move(graph_);
  }

 private:
  static constexpr std::size_t kAllRails = ~std::size_t{0};

  void copy(const Graph& host) {
    const auto first_device = static_cast<DeviceId>(graph_.devices().size());
    const std::uint32_t first_host = graph_.hosts();
    for (Device device : host.devices()) {
      if (device.host != kNoHost) device.host += first_host;
      if (device.parent != kNoDevice) device.parent += first_device;
      graph_.add_device(std::move(device));
    }
    for (Link link : host.links()) {
      link.a += first_device;
      link.b += first_device;
      graph_.add_link(link);
    }
    for (const std::string& note : host.notes()) graph_.add_note(note);
  }

  Status check() const {
    if (description_ == nullptr) return {};
    const auto hosts = static_cast<std::int64_t>(graph_.hosts());
    const std::string name = printable(description_->name, 64);
    if (description_->nodes < hosts)
      return make_error(
          Code::kInvalidArgument,
          fmt::format(
              "cluster {} is described with {} nodes, but the job has {} hosts; correct \"nodes\"",
              name, description_->nodes, hosts));
    std::int64_t torus = 1;
    for (const std::int32_t side : description_->torus.shape) torus *= side;
    if (!description_->torus.shape.empty() && torus < hosts)
      return make_error(Code::kInvalidArgument,
                        fmt::format("the torus of cluster {} has {} nodes, but the job has {} "
                                    "hosts; correct its \"shape\"",
                                    name, torus, hosts));
    return {};
  }

  std::vector<DeviceId> ports_of(std::uint32_t host) {
    std::vector<DeviceId> ports = fabric_nics(graph_, host);
    if (ports.empty() && graph_.hosts() > 1) ports = add_ports(host);
    return ports;
  }

  // Where nothing was discovered (a container's view, a file without NICs).
  std::vector<DeviceId> add_ports(std::uint32_t host) {
    const std::vector<DeviceId> numas = graph_.of_kind(DeviceKind::kNuma, host);
    const DeviceId home = numas.empty() ? graph_.of_kind(DeviceKind::kHost)[host] : numas.front();
    const std::int32_t count = description_ == nullptr ? 1 : description_->nics_per_node;
    std::vector<DeviceId> ports;
    for (std::int32_t i = 0; i < count; ++i) {
      const DeviceId parent =
          numas.empty() ? home : numas[static_cast<std::size_t>(i) % numas.size()];
      const Figure port = nic({}, 0);
      Device device{.kind = DeviceKind::kNic,
                    .host = host,
                    .parent = parent,
                    .os_index = i,
                    .rate_bytes_per_ns = port.bytes_per_ns,
                    .port_latency_ns = port.latency_ns};
      device.name = fmt::format("NIC{}", i);
      const Figure bus = root_to_numa();
      const DeviceId id = graph_.add_device(std::move(device));
      graph_.add_link({.a = parent,
                       .b = id,
                       .kind = LinkKind::kPci,
                       .bytes_per_ns = bus.bytes_per_ns,
                       .latency_ns = bus.latency_ns});
      ports.push_back(id);
    }
    return ports;
  }

  // As many as every host has ports.
  [[nodiscard]] std::size_t rails() const {
    if (description_ == nullptr || !description_->rails) return 1;
    std::size_t fewest = ports_.front().size();
    for (const auto& ports : ports_) fewest = std::min(fewest, ports.size());
    return fewest;
  }

  // A port's rate and half of its way, as described or as discovered.
  [[nodiscard]] Figure port(DeviceId nic) const {
    const Device& device = graph_.device(nic);
    if (description_ != nullptr && description_->nic.technology != nullptr)
      return {description_->nic.GBps, description_->nic.latency_ns / 2, Origin::kFile};
    return {device.rate_bytes_per_ns, device.port_latency_ns, Origin::kTable};
  }

  DeviceId add_switch(std::string name) {
    Device device{.kind = DeviceKind::kSwitch, .host = kNoHost};
    device.name = std::move(name);
    return graph_.add_device(std::move(device));
  }

  void plug(DeviceId nic, DeviceId into, double latency_ns) {
    const Figure figure = port(nic);
    graph_.add_link({.a = nic,
                     .b = into,
                     .kind = LinkKind::kNetwork,
                     .bytes_per_ns = figure.bytes_per_ns,
                     .latency_ns = figure.latency_ns + latency_ns,
                     .bandwidth_from = figure.from,
                     .latency_from = figure.from});
  }

  [[nodiscard]] double level_latency_ns(std::size_t level) const {
    if (description_ == nullptr || level >= description_->switches.size()) return 0;
    return description_->switches[level].latency_ns;
  }

  // A switch is crossed at its level's latency: half of it on the link below, half above.
  void join_tree(std::size_t rail) {
    const std::string of_rail = rail == kAllRails ? "" : fmt::format(" of rail {}", rail);
    std::vector<DeviceId> below;       // by group of the level
    std::vector<double> bytes_per_ns;  // of all ports in the group
    const std::size_t levels = description_ == nullptr ? 0 : description_->switches.size();
    std::uint32_t nodes_per_group = graph_.hosts();
    if (levels > 0)
      nodes_per_group = static_cast<std::uint32_t>(description_->switches[0].nodes_per_group);
    for (std::uint32_t host = 0; host < graph_.hosts(); ++host) {
      if (host / nodes_per_group >= below.size()) {
        below.push_back(add_switch(fmt::format("switch {}{}", below.size(), of_rail)));
        bytes_per_ns.push_back(0);
      }
      const auto& ports = ports_[host];
      for (std::size_t i = 0; i < ports.size(); ++i) {
        if (rail != kAllRails && i != rail) continue;
        plug(ports[i], below.back(), level_latency_ns(0) / 2);
        bytes_per_ns.back() += port(ports[i]).bytes_per_ns;
      }
    }
    for (std::size_t level = 1; below.size() > 1; ++level) {
      const std::uint32_t wider =
          level < levels ? static_cast<std::uint32_t>(description_->switches[level].nodes_per_group)
                         : graph_.hosts();
      raise(level, std::max(1u, wider / nodes_per_group), of_rail, below, bytes_per_ns);
      nodes_per_group = std::max(wider, nodes_per_group);
      if (level >= levels) break;
    }
  }

  // Joins groups of switches by a level above them.
  void raise(std::size_t level, std::uint32_t switches_per_group, const std::string& of_rail,
             std::vector<DeviceId>& below, std::vector<double>& bytes_per_ns) {
    std::vector<DeviceId> above;
    std::vector<double> sums;
    const bool last = level >= description_->switches.size();
    const double over = description_->switches[level - 1].oversubscription;
    for (std::size_t i = 0; i < below.size(); ++i) {
      if (above.empty() || (!last && i / switches_per_group >= above.size())) {
        above.push_back(
            add_switch(fmt::format("level {} switch {}{}", level, above.size(), of_rail)));
        sums.push_back(0);
      }
      graph_.add_link({.a = below[i],
                       .b = above.back(),
                       .kind = LinkKind::kNetwork,
                       .bytes_per_ns = bytes_per_ns[i] / over,
                       .latency_ns = (level_latency_ns(level - 1) + level_latency_ns(level)) / 2,
                       .bandwidth_from = Origin::kFile,
                       .latency_from = Origin::kFile});
      sums.back() += bytes_per_ns[i];
    }
    below = std::move(above);
    bytes_per_ns = std::move(sums);
  }

  // A router in every host, with a link to the next one along each dimension.
  void join_torus() {
    const Torus& torus = description_->torus;
    std::vector<DeviceId> routers;
    for (std::uint32_t host = 0; host < graph_.hosts(); ++host) {
      routers.push_back(add_switch(fmt::format("router {}", host)));
      for (const DeviceId nic : ports_[host]) plug(nic, routers.back(), 0);
    }
    std::size_t stride = 1;
    for (const std::int32_t length : torus.shape) {
      const auto side = static_cast<std::size_t>(length);
      for (std::size_t node = 0; node < routers.size(); ++node) {
        const std::size_t at = node / stride % side;
        const std::size_t next = node - at * stride + (at + 1) % side * stride;
        // Of two, forward and back are one link.
        if (side < 2 || (side == 2 && at == 1) || next >= routers.size()) continue;
        graph_.add_link({.a = routers[node],
                         .b = routers[next],
                         .kind = LinkKind::kNetwork,
                         .bytes_per_ns = torus.link_GBps,
                         .latency_ns = torus.hop_ns,
                         .bandwidth_from = Origin::kFile,
                         .latency_from = Origin::kFile});
      }
      stride *= side;
    }
  }

  const Cluster* description_;
  Graph graph_;
  std::vector<std::vector<DeviceId>> ports_;  // by host
};

}  // namespace

std::vector<DeviceId> fabric_nics(const Graph& graph, std::uint32_t host) {
  std::vector<DeviceId> nics = graph.of_kind(DeviceKind::kNic, host);
  double fastest = 0;
  for (const DeviceId id : nics) fastest = std::max(fastest, graph.device(id).rate_bytes_per_ns);
  std::erase_if(nics, [&](DeviceId id) {
    const double rate = graph.device(id).rate_bytes_per_ns;
    return rate <= 0 || rate < fastest / 2;
  });
  return nics;
}

Result<Graph> merge(std::span<const Graph> hosts, const Cluster* description) {
  return Merger(hosts, description).join();
}

}  // namespace tutti::topology
