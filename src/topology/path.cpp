// SPDX-License-Identifier: Apache-2.0
#include "topology/path.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <set>

namespace tutti::topology {
namespace {

struct Named {
  std::string_view name;
  std::string_view meaning;
};
constexpr std::array<Named, kPathClassCount> kClasses{{
    {"X", "the device itself"},
    {"NV#", "# NVLinks, directly or through an NVSwitch"},
    {"XG#", "# xGMI links"},
    {"C2C", "NVLink to the processor"},
    {"L3", "cores that share a cache"},
    {"PIX", "at most one PCIe switch"},
    {"PXB", "several PCIe switches, not a PCIe root"},
    {"PHB", "a PCIe root, usually the processor"},
    {"NUMA", "cores of one NUMA node"},
    {"NODE", "PCIe roots of one NUMA node"},
    {"PKG", "NUMA nodes of one package"},
    {"SYS", "the interconnect of packages or NUMA nodes"},
    {"NET", "the network"},
    {"-", "no path is known"},
}};

bool is_fabric(LinkKind kind) { return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi; }

// May a message that came in over link `in` go out over link `out`?
bool passes_on(DeviceKind kind, LinkKind in, LinkKind out) {
  switch (kind) {
    case DeviceKind::kCore:
    case DeviceKind::kGpu:
      return false;
    case DeviceKind::kNic:
      return (in == LinkKind::kNetwork) != (out == LinkKind::kNetwork);
    default:
      return true;
  }
}

// Dijkstra by (latency, narrowest link, index): the same way on every machine.
class Search {
 public:
  Search(const Graph& graph, DeviceId from, bool fabric_only)
      : graph_(graph), from_(from), fabric_only_(fabric_only), best_(graph.devices().size()) {
    best_[from] = {0, std::numeric_limits<double>::infinity(), kNoLink};
    open_.push({0, std::numeric_limits<double>::infinity(), from});
    while (!open_.empty()) {
      const Entry entry = open_.top();
      open_.pop();
      const Reached& reached = best_[entry.device];
      if (entry.latency_ns == reached.latency_ns && entry.bytes_per_ns == reached.bytes_per_ns)
        expand(entry);
    }
  }

  [[nodiscard]] bool reaches(DeviceId id) const { return id == from_ || best_[id].in != kNoLink; }
  [[nodiscard]] Path path_to(DeviceId to) const;

 private:
  static constexpr LinkIndex kNoLink = 0xffffffff;
  struct Reached {
    double latency_ns = std::numeric_limits<double>::infinity();
    double bytes_per_ns = 0;
    LinkIndex in = kNoLink;
    std::uint32_t entered = kNoHost;  // the host that the way entered from the network, if any
  };
  struct Entry {
    double latency_ns;
    double bytes_per_ns;
    DeviceId device;
    bool operator<(const Entry& other) const {  // the top of the queue is the greatest
      if (latency_ns != other.latency_ns) return latency_ns > other.latency_ns;
      if (bytes_per_ns != other.bytes_per_ns) return bytes_per_ns < other.bytes_per_ns;
      return device > other.device;
    }
  };

  void expand(const Entry& entry) {
    const Reached at = best_[entry.device];
    const Device& device = graph_.device(entry.device);
    for (const LinkIndex index : graph_.links_of(entry.device)) {
      const Link& link = graph_.link(index);
      if (fabric_only_ && !is_fabric(link.kind)) continue;
      if (at.in != kNoLink && !passes_on(device.kind, graph_.link(at.in).kind, link.kind)) continue;
      const DeviceId next = graph_.other_end(index, entry.device);
      const bool off_network =
          link.kind == LinkKind::kNetwork && device.kind == DeviceKind::kSwitch;
      // Out of its host and back in: the bus is there for that.
      if (off_network && graph_.device(next).host != kNoHost &&
          graph_.device(next).host == graph_.device(from_).host)
        continue;
      // Once off the network in another host, the way stays there.
      if (at.entered != kNoHost && link.kind == LinkKind::kNetwork) continue;
      const double latency_ns = at.latency_ns + link.latency_ns;
      const double bytes_per_ns = std::min(at.bytes_per_ns, link.bytes_per_ns);
      Reached& reached = best_[next];
      if (latency_ns > reached.latency_ns ||
          (latency_ns == reached.latency_ns && bytes_per_ns <= reached.bytes_per_ns))
        continue;
      reached = {latency_ns, bytes_per_ns, index,
                 off_network ? graph_.device(next).host : at.entered};
      open_.push({latency_ns, bytes_per_ns, next});
    }
  }

  const Graph& graph_;
  DeviceId from_;
  bool fabric_only_;
  std::vector<Reached> best_;
  std::priority_queue<Entry> open_;
};

// Derives a path's class from its devices and links.
struct Summary {
  int nvlinks = 0, xgmi = 0, c2c = 0, pci = 0, network = 0, interconnect = 0, others = 0;
  std::uint32_t fewest = std::numeric_limits<std::uint32_t>::max();
  int switches = 0;  // of PCIe
  std::set<DeviceId> roots, numas, caches;
};

Summary summarise(const Graph& graph, const Path& path) {
  Summary sum;
  const auto see = [&](DeviceId id) {
    const DeviceKind kind = graph.device(id).kind;
    if (kind == DeviceKind::kPciSwitch) ++sum.switches;
    if (kind == DeviceKind::kPciRoot) sum.roots.insert(id);
    if (kind == DeviceKind::kNuma) sum.numas.insert(id);
    if (kind == DeviceKind::kCache) sum.caches.insert(id);
  };
  see(path.from);
  for (const Crossing& crossing : path.crossings) {
    const Link& link = graph.link(crossing.link);
    see(crossing.forward ? link.b : link.a);
    sum.nvlinks += link.kind == LinkKind::kNvlink;
    sum.xgmi += link.kind == LinkKind::kXgmi;
    sum.c2c += link.kind == LinkKind::kC2c;
    sum.pci += link.kind == LinkKind::kPci;
    sum.network += link.kind == LinkKind::kNetwork;
    sum.interconnect += link.kind == LinkKind::kInterconnect;
    if (is_fabric(link.kind)) sum.fewest = std::min(sum.fewest, link.count);
  }
  return sum;
}

PathClass class_of(const Graph& graph, const Path& path) {
  if (path.from == path.to) return PathClass::kSelf;
  const Summary sum = summarise(graph, path);
  const int all = static_cast<int>(path.crossings.size());
  if (sum.network > 0) return PathClass::kNet;
  if (sum.nvlinks == all) return PathClass::kNvlink;
  if (sum.xgmi == all) return PathClass::kXgmi;
  const bool far = sum.numas.size() > 1;
  if (sum.interconnect > 0) return PathClass::kSys;
  if (sum.pci > 0) {
    if (far) return PathClass::kSys;
    if (sum.roots.size() > 1) return PathClass::kNode;
    if (!sum.roots.empty() || !sum.numas.empty()) return PathClass::kPhb;
    return sum.switches > 1 ? PathClass::kPxb : PathClass::kPix;
  }
  if (sum.c2c + sum.nvlinks > 0) return far ? PathClass::kSys : PathClass::kC2c;
  if (far) return PathClass::kPackage;
  if (sum.numas.empty() && sum.caches.size() == 1) return PathClass::kCache;
  return PathClass::kNuma;
}

Path Search::path_to(DeviceId to) const {
  Path path;
  path.from = from_;
  path.to = to;
  if (!reaches(to)) return path;
  if (to != from_) {
    path.latency_ns = best_[to].latency_ns;
    path.bytes_per_ns = best_[to].bytes_per_ns;
  }
  for (DeviceId at = to; at != from_;) {
    const LinkIndex in = best_[at].in;
    path.crossings.push_back({in, graph_.link(in).b == at});
    at = graph_.other_end(in, at);
  }
  std::ranges::reverse(path.crossings);
  path.kind = class_of(graph_, path);
  if (path.kind == PathClass::kNvlink || path.kind == PathClass::kXgmi)
    path.count = summarise(graph_, path).fewest;
  return path;
}

bool on_fabric(const Graph& graph, DeviceId id) {
  return std::ranges::any_of(graph.links_of(id),
                             [&](LinkIndex index) { return is_fabric(graph.link(index).kind); });
}

}  // namespace

std::string Path::name() const {
  std::string text(name_of(kind));
  if (text.ends_with('#')) text = fmt::format("{}{}", text.substr(0, text.size() - 1), count);
  return text;
}

std::vector<Path> paths_from(const Graph& graph, DeviceId from) {
  const Search ways(graph, from, false);
  const bool gpu = graph.device(from).kind == DeviceKind::kGpu && on_fabric(graph, from);
  const Search fabric(graph, from, gpu);
  std::vector<Path> paths;
  paths.reserve(graph.devices().size());
  for (DeviceId to = 0; to < graph.devices().size(); ++to) {
    const bool direct =
        gpu && graph.device(to).kind == DeviceKind::kGpu && to != from && fabric.reaches(to);
    paths.push_back(direct ? fabric.path_to(to) : ways.path_to(to));
  }
  return paths;
}

Path path_between(const Graph& graph, DeviceId from, DeviceId to) {
  if (graph.device(from).kind == DeviceKind::kGpu && graph.device(to).kind == DeviceKind::kGpu &&
      from != to && on_fabric(graph, from)) {
    const Search fabric(graph, from, true);
    if (fabric.reaches(to)) return fabric.path_to(to);
  }
  return Search(graph, from, false).path_to(to);
}

std::vector<LinkIndex> shared_links(const Path& one, const Path& other) {
  std::vector<LinkIndex> shared;
  for (const Crossing& crossing : one.crossings)
    if (std::ranges::find(other.crossings, crossing) != other.crossings.end())
      shared.push_back(crossing.link);
  return shared;
}

std::string_view name_of(PathClass kind) { return kClasses[static_cast<std::size_t>(kind)].name; }
std::string_view meaning_of(PathClass kind) {
  return kClasses[static_cast<std::size_t>(kind)].meaning;
}

}  // namespace tutti::topology
