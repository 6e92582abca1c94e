// SPDX-License-Identifier: Apache-2.0
// The matrix for people, and all there is for programs.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "topo.hpp"

namespace tutti::info {

using topology::Device;
using topology::DeviceId;
using topology::DeviceKind;
using topology::Graph;
using topology::kNoDevice;
using topology::Link;
using topology::Path;
using topology::PathClass;

namespace {

using Json = nlohmann::ordered_json;

// CPUs and number of the NUMA node that a device is at, or that it is.
const Device* numa_of(const Graph& graph, DeviceId id) {
  const DeviceId numa = graph.container(id, DeviceKind::kNuma);
  return numa == kNoDevice ? nullptr : &graph.device(numa);
}

std::string cpus_of(const Graph& graph, DeviceId id) {
  if (!graph.device(id).cpus.empty()) return graph.device(id).cpus;
  const Device* const numa = numa_of(graph, id);
  return numa == nullptr || numa->cpus.empty() ? "-" : numa->cpus;
}

std::string numa_text(const Graph& graph, DeviceId id) {
  const Device* const numa = numa_of(graph, id);
  return numa == nullptr || numa->os_index < 0 ? "-" : std::to_string(numa->os_index);
}

// Returns the text beside a device's row: its model, a NIC's rate.
std::string remark(const Device& device) {
  if (device.kind == DeviceKind::kNic) return fmt::format("{:g} GB/s", device.rate_bytes_per_ns);
  return device.model;
}

std::string matrix(const Topo& topo) {
  const Graph& graph = topo.graph;
  std::vector<std::string> names;
  std::size_t first = 0, affinity = 12;
  for (const DeviceId id : topo.shown) {
    names.push_back(label(graph, id));
    first = std::max(first, names.back().size());
    affinity = std::max(affinity, cpus_of(graph, id).size());
  }
  const auto width = [&](std::size_t column) {
    std::size_t widest = names[column].size();
    for (const auto& row : topo.ways) widest = std::max(widest, row[column].name().size());
    return widest;
  };
  std::string text = fmt::format("{:<{}}", "", first);
  for (std::size_t j = 0; j < names.size(); ++j)
    text += fmt::format("  {:<{}}", names[j], width(j));
  text += fmt::format("  {:<{}}  NUMA  is\n", "CPU affinity", affinity);
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format("{:<{}}", names[i], first);
    for (std::size_t j = 0; j < names.size(); ++j)
      text += fmt::format("  {:<{}}", topo.ways[i][j].name(), width(j));
    text += fmt::format("  {:<{}}  {:<4}  {}", cpus_of(graph, topo.shown[i]), affinity,
                        numa_text(graph, topo.shown[i]), remark(graph.device(topo.shown[i])));
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

// To four digits, and no exponent beyond them.
std::string figure(double value) {
  return value < 1e4 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

// One line a class that occurs, with the figures of its ways.
std::string legend(const Topo& topo) {
  struct Range {
    double least_ns = 1e300, most_ns = 0, least = 1e300, most = 0;
  };
  std::map<PathClass, Range> ranges;
  for (const auto& row : topo.ways)
    for (const Path& path : row) {
      Range& range = ranges[path.kind];
      range.least_ns = std::min(range.least_ns, path.latency_ns);
      range.most_ns = std::max(range.most_ns, path.latency_ns);
      range.least = std::min(range.least, path.bytes_per_ns);
      range.most = std::max(range.most, path.bytes_per_ns);
    }
  const auto span = [](double least, double most) {
    return least == most ? figure(least) : figure(least) + "-" + figure(most);
  };
  std::string text =
      "\nLegend                                                        ns       GB/s\n";
  for (const auto& [kind, range] : ranges) {
    const bool figures = kind != PathClass::kSelf && kind != PathClass::kNone;
    text += fmt::format("  {:<5} {:<46} {:>11} {:>9}", name_of(kind), meaning_of(kind),
                        figures ? span(range.least_ns, range.most_ns) : "",
                        figures ? span(range.least, range.most) : "");
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string orders(const Topo& topo) {
  std::string text;
  for (const Drawn& drawn : topo.drawn) {
    text += fmt::format("\n{}: slowest hop {} GB/s, longest {} ns\n ", drawn.name,
                        figure(drawn.slowest_bytes_per_ns), figure(drawn.longest_ns));
    for (const auto& [from, to] : drawn.hops)
      text += drawn.closed ? fmt::format(" {}", label(topo.graph, from))
                           : fmt::format(" {}-{}", label(topo.graph, from), label(topo.graph, to));
    text += '\n';
  }
  return text;
}

std::string counts(const Graph& graph) {
  std::string text;
  for (int i = 0; i < topology::kDeviceKindCount; ++i) {
    const auto kind = static_cast<DeviceKind>(i);
    const std::size_t count = graph.count(kind);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(kind), count);
  }
  return text + "\n\n";
}

Json device_json(const Device& device, DeviceId id) {
  Json json{{"id", id}, {"kind", name_of(device.kind)}, {"name", device.name}};
  if (device.host != topology::kNoHost) json["host"] = device.host;
  if (device.parent != kNoDevice) json["parent"] = device.parent;
  if (device.os_index >= 0) json["os_index"] = device.os_index;
  if (!device.bus_id.empty()) json["bus_id"] = device.bus_id;
  if (!device.model.empty()) json["model"] = device.model;
  if (!device.cpus.empty()) json["cpus"] = device.cpus;
  if (device.parts != 1) json["parts"] = device.parts;
  if (device.rate_bytes_per_ns > 0) json["GBps"] = device.rate_bytes_per_ns;
  return json;
}

Json link_json(const Link& link) {
  return {{"a", link.a},
          {"b", link.b},
          {"kind", name_of(link.kind)},
          {"count", link.count},
          {"GBps", link.bytes_per_ns},
          {"latency_ns", link.latency_ns},
          {"GBps_from", name_of(link.bandwidth_from)},
          {"latency_from", name_of(link.latency_from)}};
}

}  // namespace

std::string topo_text(const Topo& topo) {
  std::string text = counts(topo.graph) + matrix(topo) + legend(topo) + orders(topo);
  for (const std::string& note : topo.graph.notes()) text += fmt::format("\nnote: {}\n", note);
  return text;
}

std::string topo_json(const Topo& topo) {
  Json json{{"devices", Json::array()}, {"links", Json::array()}, {"ways", Json::array()}};
  for (DeviceId id = 0; id < topo.graph.devices().size(); ++id)
    json["devices"].push_back(device_json(topo.graph.device(id), id));
  for (const Link& link : topo.graph.links()) json["links"].push_back(link_json(link));
  for (const auto& row : topo.ways)
    for (const Path& path : row) {
      if (path.from == path.to || !path.exists()) continue;
      Json links = Json::array();
      for (const topology::Crossing& crossing : path.crossings) links.push_back(crossing.link);
      json["ways"].push_back({{"from", path.from},
                              {"to", path.to},
                              {"class", path.name()},
                              {"latency_ns", path.latency_ns},
                              {"GBps", path.bytes_per_ns},
                              {"links", links}});
    }
  json["orders"] = Json::array();
  for (const Drawn& drawn : topo.drawn) {
    Json hops = Json::array();
    for (const auto& [from, to] : drawn.hops) hops.push_back({from, to});
    json["orders"].push_back({{"name", drawn.name},
                              {"hops", hops},
                              {"slowest_GBps", drawn.slowest_bytes_per_ns},
                              {"longest_ns", drawn.longest_ns}});
  }
  json["notes"] = topo.graph.notes();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::info
