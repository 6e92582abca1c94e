// Graphs as bytes. Doubles travel as the bits of IEEE 754.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/text.hpp"
#include "base/wire.hpp"
#include "topology/graph.hpp"

namespace tutti::topology {
namespace {

constexpr std::uint16_t kVersion = 1;
// What a device and a link need at least: bounds the counts before anything is allocated.
constexpr std::size_t kLeastDeviceBytes = 1 + 3 * 4 + 4 + 2 * 8 + 4 * 4;
constexpr std::size_t kLeastLinkBytes = 2 * 4 + 1 + 4 + 2 * 8 + 2;

void write_number(Writer& writer, double value) { writer.u64(std::bit_cast<std::uint64_t>(value)); }

tl::unexpected<Error> malformed(std::string_view what, std::size_t index) {
  return make_error(Code::kRemoteError,
                    fmt::format("a host's topology is malformed: {} of entry {}; is the same "
                                "release of Tutti on all hosts?",
                                what, index));
}

// Finite and from `least` on.
Result<double> read_number(Reader& reader, double least, std::string_view what, std::size_t index) {
  TUTTI_TRY_ASSIGN(const std::uint64_t bits, reader.u64());
  const double value = std::bit_cast<double>(bits);
  if (!std::isfinite(value) || value < least) return malformed(what, index);
  return value;
}

template <typename Kind>
Result<Kind> read_kind(Reader& reader, int count, std::string_view what, std::size_t index) {
  TUTTI_TRY_ASSIGN(const std::uint8_t value, reader.u8());
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
  TUTTI_TRY_ASSIGN(device.host, reader.u32());
  TUTTI_TRY_ASSIGN(device.parent, reader.u32());
  TUTTI_TRY_ASSIGN(device.os_index, reader.i32());
  TUTTI_TRY_ASSIGN(device.parts, reader.u32());
  TUTTI_TRY_ASSIGN(device.rate_bytes_per_ns, read_number(reader, 0, "rate", index));
  TUTTI_TRY_ASSIGN(device.port_latency_ns, read_number(reader, 0, "latency", index));
  for (std::string* text : {&device.name, &device.bus_id, &device.model, &device.cpus}) {
    TUTTI_TRY_ASSIGN(*text, reader.text(Graph::kMostTextBytes));
    *text = printable(*text, Graph::kMostTextBytes);
  }
  if (!has_place(graph, device)) return malformed("host or parent", index);
  return device;
}

Result<Link> read_link(Reader& reader, const Graph& graph, std::size_t index) {
  Link link;
  TUTTI_TRY_ASSIGN(link.a, reader.u32());
  TUTTI_TRY_ASSIGN(link.b, reader.u32());
  const std::size_t devices = graph.devices().size();
  if (link.a >= devices || link.b >= devices || link.a == link.b) return malformed("end", index);
  TUTTI_TRY_ASSIGN(link.kind, read_kind<LinkKind>(reader, kLinkKindCount, "kind", index));
  TUTTI_TRY_ASSIGN(link.count, reader.u32());
  TUTTI_TRY_ASSIGN(link.bytes_per_ns, read_number(reader, 0, "bandwidth", index));
  if (link.bytes_per_ns == 0) return malformed("bandwidth", index);
  TUTTI_TRY_ASSIGN(link.latency_ns, read_number(reader, 0, "latency", index));
  TUTTI_TRY_ASSIGN(link.bandwidth_from, read_kind<Origin>(reader, kOriginCount, "origin", index));
  TUTTI_TRY_ASSIGN(link.latency_from, read_kind<Origin>(reader, kOriginCount, "origin", index));
  return link;
}

Result<std::uint32_t> read_count(Reader& reader, std::size_t least_bytes) {
  TUTTI_TRY_ASSIGN(const std::uint32_t count, reader.u32());
  if (count > Graph::kMostDevices || count > reader.left() / least_bytes)
    return malformed("the number of entries", count);
  return count;
}

}  // namespace

std::vector<std::byte> encode(const Graph& graph) {
  Writer writer;
  writer.u16(kVersion);
  writer.u32(static_cast<std::uint32_t>(graph.devices().size()));
  for (const Device& device : graph.devices()) {
    writer.u8(static_cast<std::uint8_t>(device.kind));
    writer.u32(device.host);
    writer.u32(device.parent);
    writer.i32(device.os_index);
    writer.u32(device.parts);
    write_number(writer, device.rate_bytes_per_ns);
    write_number(writer, device.port_latency_ns);
    for (const std::string* text : {&device.name, &device.bus_id, &device.model, &device.cpus})
      writer.text(*text);
  }
  writer.u32(static_cast<std::uint32_t>(graph.links().size()));
  for (const Link& link : graph.links()) {
    writer.u32(link.a);
    writer.u32(link.b);
    writer.u8(static_cast<std::uint8_t>(link.kind));
    writer.u32(link.count);
    write_number(writer, link.bytes_per_ns);
    write_number(writer, link.latency_ns);
    writer.u8(static_cast<std::uint8_t>(link.bandwidth_from));
    writer.u8(static_cast<std::uint8_t>(link.latency_from));
  }
  return writer.take();
}

Result<Graph> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  TUTTI_TRY_ASSIGN(const std::uint16_t version, reader.u16());
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
