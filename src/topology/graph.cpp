// SPDX-License-Identifier: Apache-2.0
#include "topology/graph.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace tutti::topology {
namespace {

constexpr std::array<std::string_view, kDeviceKindCount> kDeviceKinds{
    "host",       "package", "NUMA node", "cache", "core",  "PCI root",
    "PCI switch", "GPU",     "NVSwitch",  "NIC",   "switch"};
constexpr std::array<std::string_view, kLinkKindCount> kLinkKinds{
    "on die", "interconnect", "PCIe", "NVLink", "xGMI", "C2C", "network"};
constexpr std::array<std::string_view, kOriginCount> kOrigins{"measured", "file", "table",
                                                              "default"};

void cut(std::string& text) {
  if (text.size() > Graph::kMostTextBytes) text.resize(Graph::kMostTextBytes);
}

}  // namespace

DeviceId Graph::add_device(Device device) {
  for (std::string* text : {&device.name, &device.bus_id, &device.model, &device.cpus}) cut(*text);
  if (device.kind == DeviceKind::kHost) device.host = hosts_++;
  devices_.push_back(std::move(device));
  adjacent_.emplace_back();
  return static_cast<DeviceId>(devices_.size() - 1);
}

void Graph::add_link(const Link& link) {
  const auto index = static_cast<LinkIndex>(links_.size());
  links_.push_back(link);
  adjacent_[link.a].push_back(index);
  adjacent_[link.b].push_back(index);
}

void Graph::rename(DeviceId id, std::string name, std::int32_t os_index) {
  cut(name);
  devices_[id].name = std::move(name);
  devices_[id].os_index = os_index;
}

void Graph::set_link(LinkIndex index, double bytes_per_ns, double latency_ns, Origin from) {
  Link& link = links_[index];
  link.bytes_per_ns = bytes_per_ns;
  link.latency_ns = latency_ns;
  link.bandwidth_from = link.latency_from = from;
}

std::vector<DeviceId> Graph::of_kind(DeviceKind kind, std::uint32_t host) const {
  std::vector<DeviceId> found;
  for (DeviceId id = 0; id < devices_.size(); ++id)
    if (devices_[id].kind == kind && (host == kNoHost || devices_[id].host == host))
      found.push_back(id);
  return found;
}

DeviceId Graph::container(DeviceId id, DeviceKind kind) const {
  while (id != kNoDevice && devices_[id].kind != kind) id = devices_[id].parent;
  return id;
}

bool holds_cpu(std::string_view cpus, std::uint32_t cpu) {
  while (!cpus.empty()) {
    const std::string_view range = cpus.substr(0, cpus.find(','));
    cpus.remove_prefix(std::min(cpus.size(), range.size() + 1));
    const char* const end = range.data() + range.size();
    std::uint32_t first = 0;
    const auto [stop, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc()) return false;
    std::uint32_t last = first;
    if (stop != end && (*stop != '-' || std::from_chars(stop + 1, end, last).ec != std::errc()))
      return false;
    if (cpu >= first && cpu <= last) return true;
  }
  return false;
}

DeviceId core_of(const Graph& graph, std::uint32_t host, std::uint32_t cpu) {
  for (DeviceId id = 0; id < graph.devices().size(); ++id) {
    const Device& device = graph.device(id);
    if (device.kind == DeviceKind::kCore && device.host == host && holds_cpu(device.cpus, cpu))
      return id;
  }
  return kNoDevice;
}

std::string_view name_of(DeviceKind kind) { return kDeviceKinds[static_cast<std::size_t>(kind)]; }
std::string_view name_of(LinkKind kind) { return kLinkKinds[static_cast<std::size_t>(kind)]; }
std::string_view name_of(Origin origin) { return kOrigins[static_cast<std::size_t>(origin)]; }

}  // namespace tutti::topology
