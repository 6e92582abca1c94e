// SPDX-License-Identifier: Apache-2.0
// Graph: the devices of one host or of many, and the links between them.
//
// Every device but a host has one parent, which stands before it: the tree of containment (host,
// package, NUMA node, level 3 cache, core; PCI root, switch, GPU or NIC). Links join any two
// devices; both directions have the same bandwidth. Readers (hwloc_reader.hpp, nccl_reader.hpp)
// make graphs of hosts, merge.hpp joins them, path.hpp finds ways through them.
//
// Plain data. Const members: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::topology {

using DeviceId = std::uint32_t;
using LinkIndex = std::uint32_t;
inline constexpr DeviceId kNoDevice = 0xffffffff;

enum class DeviceKind : std::uint8_t {
  kHost,
  kPackage,
  kNuma,
  kCache,  // a level 3 cache, or the last level that several cores share
  kCore,   // with its hardware threads
  kPciRoot,
  kPciSwitch,
  kGpu,
  kNvSwitch,  // all switch chips of a host as one: GPUs see no difference
  kNic,
  kSwitch,  // of the network between hosts; belongs to no host
};
inline constexpr int kDeviceKindCount = 11;

// Field by field what the sources say; empty and -1: they do not.
struct Device {
  DeviceKind kind = DeviceKind::kHost;
  std::uint32_t host = 0;        // index of the host it belongs to; kNoHost for kSwitch
  DeviceId parent = kNoDevice;   // of kHost and kSwitch: none
  std::int32_t os_index = -1;    // as the operating system or the driver counts
  std::uint32_t parts = 1;       // chips of an NVSwitch, hardware threads of a core
  double rate_bytes_per_ns = 0;  // of a NIC's port; 0 elsewhere
  double port_latency_ns = 0;    // of a NIC: half of the way to another one's port
  std::string name = {};         // "GPU0", "mlx5_0", "NUMA 1"; of a host its name
  std::string bus_id = {};       // "0000:43:00.0"
  std::string model = {};        // "Tesla V100-SXM3-32GB-H", "sm_70", "gfx906"
  std::string cpus = {};         // "0-3,8-11": of CPU devices theirs
};
inline constexpr std::uint32_t kNoHost = 0xffffffff;

enum class LinkKind : std::uint8_t {
  kOnDie,         // core, cache, NUMA node, package: inside a processor
  kInterconnect,  // between packages: UPI, Infinity Fabric, X-bus
  kPci,
  kNvlink,
  kXgmi,
  kC2c,  // NVLink to the processor's own memory system
  kNetwork,
};
inline constexpr int kLinkKindCount = 7;

// Names the source of a figure, best first.
enum class Origin : std::uint8_t { kMeasured, kFile, kTable, kDefault };
inline constexpr int kOriginCount = 4;

struct Link {
  DeviceId a = kNoDevice;
  DeviceId b = kNoDevice;
  LinkKind kind = LinkKind::kOnDie;
  std::uint32_t count = 1;  // parallel links bundled in this one (NVLink, xGMI)
  double bytes_per_ns = 0;  // per direction, of the whole bundle; > 0
  double latency_ns = 0;    // of one crossing
  Origin bandwidth_from = Origin::kDefault;
  Origin latency_from = Origin::kDefault;
};

class Graph {
 public:
  // The bounds of what decode() and readers accept: a host of ten thousand cores fits.
  static constexpr std::size_t kMostDevices = 1u << 22;
  static constexpr std::size_t kMostTextBytes = 1024;

  // Appends. Names are cut to kMostTextBytes. The parent must be there already.
  DeviceId add_device(Device device);
  void add_link(const Link& link);
  // Lists what a reader left out and why; for displays.
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  [[nodiscard]] std::span<const Device> devices() const { return devices_; }
  [[nodiscard]] std::span<const Link> links() const { return links_; }
  [[nodiscard]] std::span<const std::string> notes() const { return notes_; }
  [[nodiscard]] const Device& device(DeviceId id) const { return devices_[id]; }
  [[nodiscard]] const Link& link(LinkIndex index) const { return links_[index]; }
  // Links that end at a device, ascending.
  [[nodiscard]] std::span<const LinkIndex> links_of(DeviceId id) const { return adjacent_[id]; }
  [[nodiscard]] DeviceId other_end(LinkIndex index, DeviceId id) const {
    return links_[index].a == id ? links_[index].b : links_[index].a;
  }
  void rename(DeviceId id, std::string name, std::int32_t os_index);
  void set_parts(DeviceId id, std::uint32_t parts) { devices_[id].parts = parts; }
  // Changes figures, as calibration does; the ends stay.
  void set_link(LinkIndex index, double bytes_per_ns, double latency_ns, Origin from);

  // Ascending by id, of one host or of all (kNoHost).
  [[nodiscard]] std::vector<DeviceId> of_kind(DeviceKind kind, std::uint32_t host = kNoHost) const;
  [[nodiscard]] std::size_t count(DeviceKind kind) const { return of_kind(kind).size(); }
  [[nodiscard]] std::uint32_t hosts() const { return hosts_; }
  // The device itself or its nearest container of this kind; kNoDevice if there is none.
  [[nodiscard]] DeviceId container(DeviceId id, DeviceKind kind) const;

 private:
  std::vector<Device> devices_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkIndex>> adjacent_;
  std::vector<std::string> notes_;
  std::uint32_t hosts_ = 0;
};

// Is a processor in a list as Device::cpus has it, "0-3,8-11"? What is no list holds none.
[[nodiscard]] bool holds_cpu(std::string_view cpus, std::uint32_t cpu);
// The core of a host that has this hardware thread, as the operating system counts; where a rank
// that is bound sits. kNoDevice: none has it.
[[nodiscard]] DeviceId core_of(const Graph& graph, std::uint32_t host, std::uint32_t cpu);

// "GPU", "NVSwitch", "NUMA node"; "PCIe", "NVLink"; "measured", "file", "table", "default".
[[nodiscard]] std::string_view name_of(DeviceKind kind);
[[nodiscard]] std::string_view name_of(LinkKind kind);
[[nodiscard]] std::string_view name_of(Origin origin);

// A graph as bytes for other hosts: what decode() reads on any machine. Notes stay behind.
[[nodiscard]] std::vector<std::byte> encode(const Graph& graph);
// kRemoteError names the field that is wrong: the bytes are a peer's, nothing in them is trusted.
[[nodiscard]] Result<Graph> decode(std::span<const std::byte> bytes);

}  // namespace tutti::topology
