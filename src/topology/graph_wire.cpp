// SPDX-License-Identifier: Apache-2.0
// Graphs as bytes. Doubles travel as the bits of IEEE 754.
#include <fmt/core.h>

#include <bit>
#include <cmath>

#include "base/wire.hpp"
#include "topology/graph.hpp"

namespace tutti::topology {
namespace {

constexpr std::uint16_t kVersion = 2;
// The least bytes of a device and a link, which bound the counts before anything is allocated.
constexpr std::size_t kLeastDeviceBytes = 1 + 3 * 4 + 4 + 2 * 8 + 4 * 2;
constexpr std::size_t kLeastLinkBytes = 2 * 4 + 1 + 4 + 2 * 8 + 2;

void write_number(Writer& writer, double value) {
  writer.number(std::bit_cast<std::uint64_t>(value));
}

tl::unexpected<Error> malformed(std::string_view what, std::size_t index) {
  return make_error(Code::kRemoteError,
                    fmt::format("a host's topology is malformed: {} of entry {}; install the same "
                                "release of Tutti on all hosts",
                                what, index));
}

// Finite and from `least` on.
Result<double> read_number(Reader& reader, double least, std::string_view what, std::size_t index) {
  const auto value = std::bit_cast<double>(reader.number<std::uint64_t>());
  if (!std::isfinite(value) || value < least) return malformed(what, index);
  return value;
}

template <typename Kind>
Result<Kind> read_kind(Reader& reader, int count, std::string_view what, std::size_t index) {
  const auto value = reader.number<std::uint8_t>();
  if (value >= count) return malformed(what, index);
  return static_cast<Kind>(value);
}

// The rules of Device: a parent before it and of its host; only hosts and switches have none.
bool has_place(const Graph& graph, const Device& device) {
  const bool root = device.kind == DeviceKind::kHost || device.kind == DeviceKind::kSwitch;
  if (root) return device.parent == kNoDevice;
  return device.parent < graph.devices().size() && device.host < graph.hosts() &&
         graph.device(device.parent).host == device.host;
}

Result<Device> read_device(Reader& reader, const Graph& graph, std::size_t index) {
  Device device;
  TUTTI_TRY_ASSIGN(device.kind, read_kind<DeviceKind>(reader, kDeviceKindCount, "kind", index));
  device.host = reader.number<std::uint32_t>();
  device.parent = reader.number<std::uint32_t>();
  device.os_index = reader.number<std::int32_t>();
  device.parts = reader.number<std::uint32_t>();
  TUTTI_TRY_ASSIGN(device.rate_bytes_per_ns, read_number(reader, 0, "rate", index));
  TUTTI_TRY_ASSIGN(device.port_latency_ns, read_number(reader, 0, "latency", index));
  for (std::string* text : {&device.name, &device.bus_id, &device.model, &device.cpus})
    *text = reader.text(Graph::kMostTextBytes);
  if (!reader.ok()) return malformed("a field", index);
  if (!has_place(graph, device)) return malformed("host or parent", index);
  return device;
}

Result<Link> read_link(Reader& reader, const Graph& graph, std::size_t index) {
  Link link;
  link.a = reader.number<std::uint32_t>();
  link.b = reader.number<std::uint32_t>();
  const std::size_t devices = graph.devices().size();
  if (link.a >= devices || link.b >= devices || link.a == link.b) return malformed("end", index);
  TUTTI_TRY_ASSIGN(link.kind, read_kind<LinkKind>(reader, kLinkKindCount, "kind", index));
  link.count = reader.number<std::uint32_t>();
  TUTTI_TRY_ASSIGN(link.bytes_per_ns, read_number(reader, 0, "bandwidth", index));
  if (link.bytes_per_ns == 0) return malformed("bandwidth", index);
  TUTTI_TRY_ASSIGN(link.latency_ns, read_number(reader, 0, "latency", index));
  TUTTI_TRY_ASSIGN(link.bandwidth_from, read_kind<Origin>(reader, kOriginCount, "origin", index));
  TUTTI_TRY_ASSIGN(link.latency_from, read_kind<Origin>(reader, kOriginCount, "origin", index));
  if (!reader.ok()) return malformed("a field", index);
  return link;
}

Result<std::uint32_t> read_count(Reader& reader, std::size_t least_bytes) {
  const auto count = reader.number<std::uint32_t>();
  if (!reader.ok() || count > Graph::kMostDevices || count > reader.left() / least_bytes)
    return malformed("the number of entries", count);
  return count;
}

}  // namespace

std::vector<std::byte> encode(const Graph& graph) {
  Writer writer;
  writer.number(kVersion);
  writer.number(static_cast<std::uint32_t>(graph.devices().size()));
  for (const Device& device : graph.devices()) {
    writer.number(static_cast<std::uint8_t>(device.kind));
    writer.number(device.host);
    writer.number(device.parent);
    writer.number(device.os_index);
    writer.number(device.parts);
    write_number(writer, device.rate_bytes_per_ns);
    write_number(writer, device.port_latency_ns);
    for (const std::string* text : {&device.name, &device.bus_id, &device.model, &device.cpus})
      writer.text(*text, Graph::kMostTextBytes);
  }
  writer.number(static_cast<std::uint32_t>(graph.links().size()));
  for (const Link& link : graph.links()) {
    writer.number(link.a);
    writer.number(link.b);
    writer.number(static_cast<std::uint8_t>(link.kind));
    writer.number(link.count);
    write_number(writer, link.bytes_per_ns);
    write_number(writer, link.latency_ns);
    writer.number(static_cast<std::uint8_t>(link.bandwidth_from));
    writer.number(static_cast<std::uint8_t>(link.latency_from));
  }
  return writer.take();
}

Result<Graph> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto version = reader.number<std::uint16_t>();
  if (version != kVersion)
    return make_error(
        Code::kRemoteError,
        fmt::format("a host's topology has form {} and this library reads {}; install "
                    "the same release of Tutti on all hosts",
                    version, kVersion));
  Graph graph;
  TUTTI_TRY_ASSIGN(const std::uint32_t devices, read_count(reader, kLeastDeviceBytes));
  for (std::uint32_t i = 0; i < devices; ++i) {
    TUTTI_TRY_ASSIGN(Device device, read_device(reader, graph, i));
    graph.add_device(std::move(device));
  }
  TUTTI_TRY_ASSIGN(const std::uint32_t links, read_count(reader, kLeastLinkBytes));
  for (std::uint32_t i = 0; i < links; ++i) {
    TUTTI_TRY_ASSIGN(const Link link, read_link(reader, graph, i));
    graph.add_link(link);
  }
  TUTTI_TRY(reader.finish());
  return graph;
}

}  // namespace tutti::topology
