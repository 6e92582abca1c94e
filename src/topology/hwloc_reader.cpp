// SPDX-License-Identifier: Apache-2.0
#include "topology/hwloc_reader.hpp"

#include <fmt/core.h>
#include <hwloc.h>
#include <hwloc/distances.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/host.hpp"
#include "base/text.hpp"
#include "topology/figures.hpp"
#include "topology/hwloc_check.hpp"
#include "topology/hwloc_object.hpp"
#include "topology/xml_file.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_LEAK_CHECK 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI_LEAK_CHECK 1
#endif
#endif
#if defined(TUTTI_LEAK_CHECK)
#include <sanitizer/lsan_interface.h>
#endif

namespace tutti::topology {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Result<Topology> new_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return make_error(Code::kSystemError, "hwloc cannot start: out of memory");
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
  return topology;
}

class HwlocReader {
 public:
  HwlocReader(hwloc_topology_t topology, std::string host, bool live)
      : topology_(topology), live_(live) {
    Device device{.kind = DeviceKind::kHost};
    device.name = std::move(host);
    device.cpus = cpus_of(hwloc_get_root_obj(topology));
    host_ = graph_.add_device(std::move(device));
  }

  Graph read() {
    between_ = between_packages();
    if (hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE) > 0) leaf_ = HWLOC_OBJ_CORE;
    shared_cache_ = find_shared_cache();
    read_object(hwloc_get_root_obj(topology_), host_);
    read_io();
    join_numa();
    join_nvlinks();
    number_gpus();
    return std::move(graph_);
  }

 private:
  static std::string cpus_of(hwloc_obj_t object) {
    if (object->cpuset == nullptr) return {};
    char* text = nullptr;
    if (hwloc_bitmap_list_asprintf(&text, object->cpuset) < 0) return {};
    std::string list(text);
    std::free(text);  // malloc'ed by hwloc
    return list;
  }

  Figure between_packages() {
    const hwloc_obj_t first = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
    if (first == nullptr) return interconnect({}, -1, -1);
    const bool power = info_of(first, "CPUModel").starts_with("POWER");
    return interconnect(power ? "IBM" : info_of(first, "CPUVendor"),
                        number_of(info_of(first, "CPUFamilyNumber")),
                        number_of(info_of(first, "CPUModelNumber")));
  }

  DeviceId add(Device device, DeviceId parent, LinkKind kind, const Figure& figure) {
    device.parent = parent;
    const DeviceId id = graph_.add_device(std::move(device));
    graph_.add_link({.a = parent,
                     .b = id,
                     .kind = kind,
                     .bytes_per_ns = figure.bytes_per_ns,
                     .latency_ns = figure.latency_ns,
                     .bandwidth_from = figure.from,
                     .latency_from = figure.from == Origin::kFile ? Origin::kTable : figure.from});
    return id;
  }

  // The last level of cache that more than one core shares; HWLOC_OBJ_TYPE_MAX: none.
  hwloc_obj_type_t find_shared_cache() {
    for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
      const hwloc_obj_t cache = hwloc_get_obj_by_type(topology_, type, 0);
      if (cache != nullptr &&
          hwloc_get_nbobjs_inside_cpuset_by_type(topology_, cache->cpuset, leaf_) > 1)
        return type;
    }
    return HWLOC_OBJ_TYPE_MAX;
  }

  // A link to the parent: between packages, or inside one.
  [[nodiscard]] std::pair<LinkKind, Figure> uplink(DeviceId parent, bool core) const {
    const DeviceKind kind = graph_.device(parent).kind;
    if (core) return {LinkKind::kOnDie, core_to_cache()};
    if (kind == DeviceKind::kHost) return {LinkKind::kInterconnect, between_};
    return {LinkKind::kOnDie, kind == DeviceKind::kNuma ? cache_to_numa() : numa_to_package()};
  }

  DeviceId add_cpu(hwloc_obj_t object, DeviceKind kind, const char* what, DeviceId parent) {
    const auto index = static_cast<std::int32_t>(object->os_index);
    Device device{.kind = kind,
                  .os_index = index < 0 ? static_cast<std::int32_t>(object->logical_index) : index};
    device.name = fmt::format("{} {}", what, device.os_index);
    device.cpus = cpus_of(object);
    if (kind == DeviceKind::kPackage) device.model = info_of(object, "CPUModel");
    if (kind == DeviceKind::kCore && object->cpuset != nullptr)
      device.parts = static_cast<std::uint32_t>(std::max(1, hwloc_bitmap_weight(object->cpuset)));
    const auto [link, figure] = uplink(parent, kind == DeviceKind::kCore);
    return add(std::move(device), parent, link, figure);
  }

  // NUMA nodes hang beside the tree in hwloc; here the first one at an object holds what is inside
  // the object, and further ones (HBM beside DRAM) only stand there.
  DeviceId read_memory(hwloc_obj_t object, DeviceId parent) {
    DeviceId inside = parent;
    for (hwloc_obj_t child = object->memory_first_child; child != nullptr;
         child = child->next_sibling) {
      const hwloc_obj_t node = numa_of_memory(child);
      if (node == nullptr) continue;
      const DeviceId id = add_cpu(node, DeviceKind::kNuma, "NUMA", parent);
      numas_[static_cast<unsigned>(node->logical_index)] = id;
      if (inside == parent) inside = id;
    }
    return inside;
  }

  // Through memory-side caches.
  static hwloc_obj_t numa_of_memory(hwloc_obj_t object) {
    while (object != nullptr && object->type != HWLOC_OBJ_NUMANODE)
      object = object->memory_first_child;
    return object;
  }

  void read_object(hwloc_obj_t object, DeviceId parent) {
    DeviceId at = parent;
    if (object->type == HWLOC_OBJ_PACKAGE)
      at = add_cpu(object, DeviceKind::kPackage, "package", parent);
    at = read_memory(object, at);
    if (object->type == shared_cache_)
      at =
          add_cpu(object, DeviceKind::kCache, shared_cache_ == HWLOC_OBJ_L3CACHE ? "L3" : "L2", at);
    at_[object->gp_index] = at;
    if (object->type == leaf_) {
      add_cpu(object, DeviceKind::kCore, leaf_ == HWLOC_OBJ_CORE ? "core" : "PU", at);
      return;
    }
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling)
      read_object(child, at);
  }

  void read_io() {
    for (hwloc_obj_t bridge = hwloc_get_next_bridge(topology_, nullptr); bridge != nullptr;
         bridge = hwloc_get_next_bridge(topology_, bridge))
      if (bridge->parent != nullptr && !hwloc_obj_type_is_io(bridge->parent->type))
        read_root(bridge);
    for (hwloc_obj_t pci = hwloc_get_next_pcidev(topology_, nullptr); pci != nullptr;
         pci = hwloc_get_next_pcidev(topology_, pci))
      if (pci->parent != nullptr && !hwloc_obj_type_is_io(pci->parent->type)) {
        const DeviceId root = add_root(pci, fmt::format("PCI root of {}", bus_id_of(pci)));
        read_device(pci, root, 0);
      }
  }

  // The CPU device that an object of I/O hangs at, or hwloc's parent's nearest that is one.
  DeviceId home_of(hwloc_obj_t object) const {
    if (numas_.size() == 1) return numas_.begin()->second;
    const hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(topology_, object);
    for (hwloc_obj_t up = home; up != nullptr; up = up->parent) {
      const auto found = at_.find(up->gp_index);
      if (found == at_.end()) continue;
      const DeviceId numa = graph_.container(found->second, DeviceKind::kNuma);
      return numa == kNoDevice ? found->second : numa;
    }
    return host_;
  }

  DeviceId add_root(hwloc_obj_t object, std::string name) {
    Device root{.kind = DeviceKind::kPciRoot};
    root.name = std::move(name);
    return add(std::move(root), home_of(object), LinkKind::kPci, root_to_numa());
  }

  void read_root(hwloc_obj_t bridge) {
    if (!holds_device(bridge)) return;
    const auto& below = bridge->attr->bridge.downstream.pci;
    const DeviceId id =
        add_root(bridge, fmt::format("PCI root {:04x}:{:02x}", below.domain, below.secondary_bus));
    for (hwloc_obj_t child = bridge->io_first_child; child != nullptr; child = child->next_sibling)
      read_pci(child, id, 0);
  }

  // Is there a GPU or a NIC below?
  static bool holds_device(hwloc_obj_t object) {
    if (object->type == HWLOC_OBJ_PCI_DEVICE) return is_gpu(object) || is_nic(object);
    for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling)
      if (holds_device(child)) return true;
    return false;
  }

  static int useful_children(hwloc_obj_t bridge) {
    int count = 0;
    for (hwloc_obj_t child = bridge->io_first_child; child != nullptr; child = child->next_sibling)
      count += holds_device(child);
    return count;
  }

  // GB/s of an object's own link, narrowed by those of the bridges that were passed; 0: not known.
  static double narrower(double one, double other) {
    if (one <= 0 || other <= 0) return std::max(one, other);
    return std::min(one, other);
  }

  void read_pci(hwloc_obj_t object, DeviceId parent, double passed_bytes_per_ns) {
    if (object->type == HWLOC_OBJ_PCI_DEVICE) {
      read_device(object, parent, passed_bytes_per_ns);
      return;
    }
    if (object->type != HWLOC_OBJ_BRIDGE || !holds_device(object)) return;
    double speed = passed_bytes_per_ns;
    DeviceId inside = parent;
    const bool pci = object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
    if (pci)
      speed = narrower(speed, static_cast<double>(object->attr->bridge.upstream.pci.linkspeed));
    if (pci && useful_children(object) > 1) {
      Device device{.kind = DeviceKind::kPciSwitch};
      const auto& up = object->attr->bridge.upstream.pci;
      device.bus_id = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", up.domain, up.bus, up.dev, up.func);
      device.name = "PCI switch " + device.bus_id;
      inside = add(std::move(device), parent, LinkKind::kPci, tutti::topology::pcie(speed));
      speed = 0;
    }
    for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling)
      read_pci(child, inside, speed);
  }

  void read_device(hwloc_obj_t pci, DeviceId parent, double passed_bytes_per_ns) {
    if (pci->type != HWLOC_OBJ_PCI_DEVICE) return;
    const Figure bus = tutti::topology::pcie(
        narrower(passed_bytes_per_ns, static_cast<double>(pci->attr->pcidev.linkspeed)));
    Device device;
    device.bus_id = bus_id_of(pci);
    if (is_gpu(pci)) {
      device.kind = DeviceKind::kGpu;
      device.model = gpu_model(pci);
      note_objects(pci, add(std::move(device), parent, LinkKind::kPci, bus));
    } else if (is_nic(pci)) {
      device.kind = DeviceKind::kNic;
      describe_nic(pci, device);
      add(std::move(device), parent, LinkKind::kPci, bus);
    }
  }

  // A GPU's device and its drivers' views of it are one; NVLink's matrix may name any of them.
  void note_objects(hwloc_obj_t pci, DeviceId id) {
    at_[pci->gp_index] = id;
    for (hwloc_obj_t child = pci->io_first_child; child != nullptr; child = child->next_sibling)
      at_[child->gp_index] = id;
  }

  static std::string gpu_model(hwloc_obj_t pci) {
    const hwloc_obj_t os = find_osdev(pci, [](hwloc_obj_t each) {
      return hwloc_obj_get_info_by_name(each, "GPUModel") != nullptr;
    });
    return os != nullptr ? info_of(os, "GPUModel") : info_of(pci, "PCIDevice");
  }

  void describe_nic(hwloc_obj_t pci, Device& device) const {
    const auto of_type = [&](hwloc_obj_osdev_type_t type) {
      return find_osdev(pci, [type](hwloc_obj_t os) { return os->attr->osdev.type == type; });
    };
    const hwloc_obj_t verbs = of_type(HWLOC_OBJ_OSDEV_OPENFABRICS);
    const hwloc_obj_t net = of_type(HWLOC_OBJ_OSDEV_NETWORK);
    const hwloc_obj_t os = verbs != nullptr ? verbs : net;
    device.name =
        os != nullptr && os->name != nullptr ? printable(os->name, 64) : "NIC " + device.bus_id;
    device.model = info_of(pci, "PCIDevice");
    if (live_)
      for (const hwloc_obj_t each : {verbs, net})
        if (each != nullptr && device.rate_bytes_per_ns == 0)
          device.rate_bytes_per_ns = live_rate(each).value_or(0);
    const auto& ids = pci->attr->pcidev;
    const Figure port =
        topology::nic({ids.vendor_id, ids.device_id, ids.class_id}, device.rate_bytes_per_ns);
    device.rate_bytes_per_ns = port.bytes_per_ns;
    device.port_latency_ns = port.latency_ns;
  }

  struct ReleaseDistances {
    hwloc_topology_t topology;
    void operator()(hwloc_distances_s* distances) const {
      hwloc_distances_release(topology, distances);
    }
  };
  using Distances = std::unique_ptr<hwloc_distances_s, ReleaseDistances>;

  Distances matrix(const char* name) {
    unsigned count = 1;
    hwloc_distances_s* found = nullptr;
    if (hwloc_distances_get_by_name(topology_, name, &count, &found, 0) != 0 || count == 0)
      found = nullptr;
    return {found, ReleaseDistances{topology_}};
  }

  void join_numa();
  void join_nvlinks();
  void join_nvlink(DeviceId a, DeviceId b, std::uint64_t megabytes);
  DeviceId fabric_switch();

  void number_gpus() {
    std::int32_t number = 0;
    for (const DeviceId id : graph_.of_kind(DeviceKind::kGpu)) {
      graph_.rename(id, fmt::format("GPU{}", number), number);
      ++number;
    }
  }

  hwloc_topology_t topology_;
  bool live_;
  Graph graph_;
  DeviceId host_ = kNoDevice;
  Figure between_;
  hwloc_obj_type_t leaf_ = HWLOC_OBJ_PU;
  hwloc_obj_type_t shared_cache_ = HWLOC_OBJ_TYPE_MAX;
  std::map<std::uint64_t, DeviceId> at_;  // by gp_index: the device that holds what is inside
  std::map<unsigned, DeviceId> numas_;    // by logical index
  DeviceId nvswitch_ = kNoDevice;
};

// Firmware's distances are relative (10: the node itself). If packages are not all equally far
// apart, the nearest pair of the matrix takes the table's latency and the others more in
// proportion, each over a link of its own; the host's hub remains for what no matrix names.
void HwlocReader::join_numa() {
  const Distances found = matrix("NUMALatency");
  if (!found || found->nbobjs < 3 || found->objs[0]->type != HWLOC_OBJ_NUMANODE) return;
  struct Pair {
    DeviceId a, b;
    double distance;
  };
  std::vector<Pair> pairs;
  for (unsigned i = 0; i < found->nbobjs; ++i)
    for (unsigned j = 0; j < i; ++j) {
      const auto a = numas_.find(found->objs[j]->logical_index);
      const auto b = numas_.find(found->objs[i]->logical_index);
      if (a == numas_.end() || b == numas_.end()) continue;
      const DeviceId package = graph_.container(a->second, DeviceKind::kPackage);
      if (package != kNoDevice && package == graph_.container(b->second, DeviceKind::kPackage))
        continue;
      const std::uint64_t distance =
          std::max(found->values[i * found->nbobjs + j], found->values[j * found->nbobjs + i]);
      pairs.push_back({a->second, b->second, static_cast<double>(distance)});
    }
  if (pairs.empty()) return;
  const auto [least, most] = std::ranges::minmax(pairs, {}, &Pair::distance);
  const double nearest = least.distance;
  const double farthest = most.distance;
  if (!(nearest > 0) || nearest == farthest || farthest > 1000 * nearest) return;
  const double near_ns = 2 * (numa_to_package().latency_ns + between_.latency_ns);
  for (const Pair& pair : pairs)
    graph_.add_link({.a = pair.a,
                     .b = pair.b,
                     .kind = LinkKind::kInterconnect,
                     .bytes_per_ns = between_.bytes_per_ns,
                     .latency_ns = near_ns * pair.distance / nearest,
                     .bandwidth_from = between_.from,
                     .latency_from = Origin::kFile});
  // Dearer than any pair, so that the matrix decides.
  for (const LinkIndex link : graph_.links_of(host_))
    if (graph_.link(link).kind == LinkKind::kInterconnect)
      graph_.set_link(link, between_.bytes_per_ns, near_ns * farthest / nearest, Origin::kFile);
}

DeviceId HwlocReader::fabric_switch() {
  if (nvswitch_ == kNoDevice) {
    Device device{.kind = DeviceKind::kNvSwitch, .parts = 0};
    device.parent = host_;
    device.name = "NVSwitch";
    nvswitch_ = graph_.add_device(std::move(device));
  }
  return nvswitch_;
}

// MB/s in both directions alike; of a pair that NVLinks join, as hwloc sums them.
void HwlocReader::join_nvlink(DeviceId a, DeviceId b, std::uint64_t megabytes) {
  const DeviceId gpu = graph_.device(a).kind == DeviceKind::kGpu ? a : b;
  const double bytes_per_ns = static_cast<double>(megabytes) / 1000;
  const bool to_switch = graph_.device(a).kind == DeviceKind::kNvSwitch;
  const bool processor = !to_switch && graph_.device(a).kind != DeviceKind::kGpu;
  const Figure one = nvlink(0, graph_.device(gpu).model, to_switch);
  const double count = std::clamp(std::round(bytes_per_ns / one.bytes_per_ns), 1.0, 1024.0);
  graph_.add_link({.a = a,
                   .b = b,
                   .kind = LinkKind::kNvlink,
                   .count = static_cast<std::uint32_t>(count),
                   .bytes_per_ns = bytes_per_ns,
                   .latency_ns = processor ? processor_link_latency_ns() : one.latency_ns,
                   .bandwidth_from = Origin::kFile,
                   .latency_from = one.from});
}

void HwlocReader::join_nvlinks() {
  const Distances found = matrix("NVLinkBandwidth");
  if (!found) return;
  const unsigned count = found->nbobjs;
  const auto is_gpu_here = [&](hwloc_obj_t object) {
    const auto at = at_.find(object->gp_index);
    return at != at_.end() && graph_.device(at->second).kind == DeviceKind::kGpu;
  };
  std::uint32_t chips = 0;
  std::map<DeviceId, std::uint64_t> to_switch;
  for (unsigned i = 0; i < count; ++i) {
    if (is_nvswitch(found->objs[i])) ++chips;
    if (!is_gpu_here(found->objs[i])) continue;
    const DeviceId gpu = at_[found->objs[i]->gp_index];
    for (unsigned j = 0; j < count; ++j) {
      const std::uint64_t megabytes = found->values[i * count + j];
      if (i == j || megabytes == 0 || megabytes > 10'000'000) continue;
      const auto other = at_.find(found->objs[j]->gp_index);
      if (is_nvswitch(found->objs[j]))
        to_switch[gpu] += megabytes;
      else if (other != at_.end() && other->second != gpu &&
               (j > i || !is_gpu_here(found->objs[j])))
        join_nvlink(other->second, gpu, megabytes);
    }
  }
  for (const auto& [gpu, megabytes] : to_switch) join_nvlink(fabric_switch(), gpu, megabytes);
  if (nvswitch_ != kNoDevice) graph_.set_parts(nvswitch_, chips);
}

// libpciaccess, which hwloc asks for the bus, keeps a kilobyte for ever, and hwloc drops the
// objects of a file that it refuses half way. Leak checkers are told of neither.
int load_quietly(hwloc_topology* topology) {
#if defined(TUTTI_LEAK_CHECK)
  const __lsan::ScopedDisabler others;
#endif
  return hwloc_topology_load(topology);
}

Result<Graph> load(Topology topology, std::string host, bool live, const std::string& what) {
  if (load_quietly(topology.get()) != 0)
    return make_error(
        live ? Code::kSystemError : Code::kInvalidArgument,
        fmt::format("{}: hwloc cannot load it{}", printable(what),
                    live ? "; check that /sys is mounted" : "; check that hwloc 2 exported it"));
  return HwlocReader(topology.get(), std::move(host), live).read();
}

}  // namespace

bool has_hwloc() { return true; }

Result<Graph> read_this_machine() {
  TUTTI_TRY_ASSIGN(Topology topology, new_topology());
  return load(std::move(topology), host_name(), true, "this machine");
}

Result<Graph> read_hwloc_file(const std::string& path) {
  TUTTI_TRY_ASSIGN(std::string text, read_text(path, XmlFile::kMostBytes));
  return read_hwloc_text(std::move(text), path);
}

Result<Graph> read_hwloc_text(std::string text, const std::string& name) {
  // hwloc says only that it fails; where and why, this says.
  TUTTI_TRY_ASSIGN(const XmlFile file, XmlFile::parse(std::move(text), name, "topology"));
  TUTTI_TRY(check_hwloc_export(file));
  TUTTI_TRY_ASSIGN(Topology topology, new_topology());
  const std::string whole = file.plain();
  // With its terminating zero, as hwloc asks.
  if (whole.size() >= XmlFile::kMostBytes ||
      hwloc_topology_set_xmlbuffer(topology.get(), whole.c_str(),
                                   static_cast<int>(whole.size() + 1)) != 0)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{}: hwloc refuses the file; check that hwloc 2 exported it", printable(name)));
  const std::size_t slash = name.rfind('/');
  return load(std::move(topology),
              printable(slash == std::string::npos ? name : name.substr(slash + 1)), false, name);
}

Result<Graph> read_synthetic(const std::string& description) {
  TUTTI_TRY(check_synthetic(description));
  TUTTI_TRY_ASSIGN(Topology topology, new_topology());
  if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0)
    return make_error(
        Code::kInvalidArgument,
        fmt::format(
            "\"{}\" is not a machine description; example: \"package:2 numa:1 l3:4 core:8 pu:1\"",
            printable(description)));
  return load(std::move(topology), "synthetic", false, description);
}

Result<Graph> read_host(const std::function<const char*(const char*)>& get) {
  const char* const file = get("HWLOC_XMLFILE");
  if (file != nullptr && *file != '\0')
    return read_hwloc_file(file).map_error([](Error error) {
      error.message = "HWLOC_XMLFILE: " + error.message;
      return error;
    });
  const char* const synthetic = get("HWLOC_SYNTHETIC");
  if (synthetic != nullptr && *synthetic != '\0') return read_synthetic(synthetic);
  return read_this_machine();
}

}  // namespace tutti::topology
