// SPDX-License-Identifier: Apache-2.0
#include "topology/nccl_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/text.hpp"
#include "topology/figures.hpp"
#include "topology/xml_file.hpp"

namespace tutti::topology {
namespace {

// The meaning of a PCI class's upper 16 bits (PCI Code and ID Assignment).
constexpr std::uint32_t kClassBridge = 0x0604;
constexpr std::uint32_t kClassNvSwitch = 0x0680;

bool is_gpu_class(std::uint32_t pci_class) {
  return (pci_class >> 8) == 0x03 || pci_class == 0x1200;
}
bool is_nic_class(std::uint32_t pci_class) { return (pci_class >> 8) == 0x02; }

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "0,5-7" of a mask in words of 32 bits, the highest first: "00000000,000000e1".
std::optional<std::string> cpu_list(std::string_view mask) {
  std::vector<std::uint64_t> words;
  while (true) {
    const std::size_t comma = mask.find(',');
    const auto word = parse_hex(mask.substr(0, comma));
    if (!word || *word > 0xffffffff || words.size() >= 128) return std::nullopt;
    words.insert(words.begin(), *word);
    if (comma == std::string_view::npos) break;
    mask.remove_prefix(comma + 1);
  }
  std::string text;
  const std::size_t bits = words.size() * 32;
  const auto has = [&](std::size_t i) {
    return i < bits && ((words[i / 32] >> (i % 32)) & 1) != 0;
  };
  for (std::size_t i = 0; i < bits; ++i) {
    if (!has(i)) continue;
    std::size_t last = i;
    while (has(last + 1)) ++last;
    text +=
        fmt::format(fmt::runtime(last == i ? "{}{}" : "{}{}-{}"), text.empty() ? "" : ",", i, last);
    i = last;
  }
  return text;
}

// An NVLink or xGMI link as one end states it.
struct Claim {
  pugi::xml_node node;
  DeviceId from = kNoDevice;
  std::string target;
  std::uint32_t count = 1;
  bool to_switch = false;
  bool xgmi = false;
};

class NcclReader {
 public:
  explicit NcclReader(const XmlFile& file) : file_(file) {}

  Result<Graph> read() {
    TUTTI_TRY_ASSIGN(const std::int64_t version, number(file_.root(), "version", 1));
    if (version != 1 && version != 2)
      return file_.complain(
          file_.root(),
          fmt::format("the file has version {} of the format, but only 1 and 2 can be read",
                      version));
    for (const pugi::xml_node cpu : file_.root().children("cpu")) TUTTI_TRY(read_cpu(cpu));
    if (graph_.hosts() == 0)
      return file_.complain(
          file_.root(), "contains no <cpu>, and so no machine; check that the file is complete");
    number_gpus();
    for (const Claim& claim : claims_) TUTTI_TRY(read_claim(claim));
    join_claims();
    return std::move(graph_);
  }

 private:
  // An attribute as a number; `absent` where it is not there.
  Result<std::int64_t> number(pugi::xml_node node, const char* name, std::int64_t absent) {
    const pugi::xml_attribute attribute = node.attribute(name);
    if (!attribute) return absent;
    const std::string_view text = attribute.value();
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size() || text.empty())
      return file_.complain(node, fmt::format("{}=\"{}\" of <{}> must be a whole number", name,
                                              printable(text, 64), printable(node.name(), 32)));
    return value;
  }
  Result<std::int64_t> number_within(pugi::xml_node node, const char* name, std::int64_t absent,
                                     std::int64_t least, std::int64_t most) {
    TUTTI_TRY_ASSIGN(const std::int64_t value, number(node, name, absent));
    if (value < least || value > most)
      return file_.complain(node, fmt::format("{}=\"{}\" of <{}> must be from {} to {}", name,
                                              value, printable(node.name(), 32), least, most));
    return value;
  }

  DeviceId add(Device device, DeviceId parent, LinkKind kind, const Figure& figure) {
    device.parent = parent;
    device.host = graph_.device(parent).host;
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

  // Bus ids repeat from host to host.
  [[nodiscard]] std::string bus_key(std::uint32_t host, std::string_view bus_id) const {
    return fmt::format("{} {}", host, bus_id);
  }

  DeviceId host_of(pugi::xml_node cpu) {
    const std::string hash = printable(cpu.attribute("host_hash").value(), 64);
    const auto found = hosts_.find(hash);
    if (found != hosts_.end()) return found->second;
    Device host{.kind = DeviceKind::kHost};
    host.name = hash.empty() ? "host" : hash;
    return hosts_[hash] = graph_.add_device(std::move(host));
  }

  Status read_cpu(pugi::xml_node cpu) {
    TUTTI_TRY_ASSIGN(const std::int64_t numa, number_within(cpu, "numaid", 0, -1, 1 << 20));
    TUTTI_TRY_ASSIGN(const std::int64_t family, number(cpu, "familyid", -1));
    TUTTI_TRY_ASSIGN(const std::int64_t model, number(cpu, "modelid", -1));
    const std::string_view mask = cpu.attribute("affinity").value();
    const auto cpus = mask.empty() ? std::string() : cpu_list(mask);
    if (!cpus)
      return file_.complain(
          cpu,
          fmt::format(
              "affinity=\"{}\" of <cpu> must be words of 8 hexadecimal digits separated by commas",
              printable(mask, 64)));
    Device node{.kind = DeviceKind::kNuma, .os_index = static_cast<std::int32_t>(numa)};
    node.name = fmt::format("NUMA {}", numa);
    node.model = printable(cpu.attribute("vendor").value(), 64);
    node.cpus = *cpus;
    const bool power = std::string_view(cpu.attribute("arch").value()).starts_with("ppc64");
    const Figure between = interconnect(power ? "IBM" : cpu.attribute("vendor").value(),
                                        clamped(family), clamped(model));
    const DeviceId id = add(std::move(node), host_of(cpu), LinkKind::kInterconnect, between);
    Device root{.kind = DeviceKind::kPciRoot};
    root.name = fmt::format("PCI root of NUMA {}", numa);
    const DeviceId root_id = add(std::move(root), id, LinkKind::kPci, root_to_numa());
    for (const pugi::xml_node child : cpu.children()) TUTTI_TRY(read_below(child, root_id));
    return {};
  }

  static int clamped(std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, -1, 1 << 20));
  }

  // The elements that <cpu> and <pci> may contain.
  Status read_below(pugi::xml_node node, DeviceId parent) {
    const std::string_view name = node.name();
    if (name == "pci") return read_pci(node, parent);
    if (name == "nic") return read_nic(node, parent, nullptr);
    if (node.type() == pugi::node_element)
      graph_.add_note(
          fmt::format("{}: <{}> is unknown and ignored", file_.place(node), printable(name, 32)));
    return {};
  }

  // Speed and width as sysfs gives them; nothing where the file does not say.
  Result<Figure> pci_figure(pugi::xml_node pci) {
    TUTTI_TRY_ASSIGN(const std::int64_t width, number_within(pci, "link_width", 0, 0, 32));
    const std::string_view speed = pci.attribute("link_speed").value();
    if (speed.empty() || width == 0 || speed.starts_with("Unknown"))
      return tutti::topology::pcie(0);
    const auto bytes_per_ns = pcie_bytes_per_ns(speed, static_cast<int>(width));
    if (!bytes_per_ns)
      return file_.complain(pci,
                            fmt::format("link_speed=\"{}\" of <pci> must have the form \"16 GT/s\"",
                                        printable(speed, 64)));
    return tutti::topology::pcie(*bytes_per_ns);
  }

  Status read_pci(pugi::xml_node pci, DeviceId parent) {
    const std::string bus_id = pci.attribute("busid").value();
    if (bus_id.empty())
      return file_.complain(pci, "<pci> needs a busid, for example busid=\"0000:43:00.0\"");
    TUTTI_TRY_ASSIGN(const Figure figure, pci_figure(pci));
    const std::string_view class_text = pci.attribute("class").value();
    const auto whole_class = class_text.empty() ? 0 : parse_hex(class_text);
    if (!whole_class)
      return file_.complain(pci,
                            fmt::format("class=\"{}\" of <pci> must have the form \"0x030200\"",
                                        printable(class_text, 64)));
    const auto pci_class = static_cast<std::uint32_t>(*whole_class >> 8 & 0xffff);
    Device device;
    device.bus_id = printable(bus_id, 64);
    if (pci.child("gpu") || is_gpu_class(pci_class)) return read_gpu(pci, parent, figure, device);
    if (pci.child("nic") || is_nic_class(pci_class)) {
      const auto hex = [&](const char* name) {
        return static_cast<std::uint32_t>(parse_hex(pci.attribute(name).value()).value_or(0) &
                                          0xffff);
      };
      const PciNic seen{device.bus_id, figure, {hex("vendor"), hex("device"), pci_class}};
      return read_nic(pci.child("nic"), parent, &seen);
    }
    if (pci_class == kClassNvSwitch) return {};  // joined to GPUs by their links
    if (pci_class != kClassBridge && !pci.child("pci")) return {};
    device.kind = DeviceKind::kPciSwitch;
    device.name = fmt::format("PCI switch {}", device.bus_id);
    const DeviceId id = add(std::move(device), parent, LinkKind::kPci, figure);
    for (const pugi::xml_node child : pci.children()) TUTTI_TRY(read_below(child, id));
    return {};
  }

  Status read_gpu(pugi::xml_node pci, DeviceId parent, const Figure& figure, Device device) {
    const pugi::xml_node gpu = pci.child("gpu");
    TUTTI_TRY_ASSIGN(const std::int64_t index, number_within(gpu, "dev", -1, -1, 1 << 20));
    TUTTI_TRY_ASSIGN(const std::int64_t sm, number(gpu, "sm", 0));
    TUTTI_TRY_ASSIGN(const std::int64_t gcn, number(gpu, "gcn", 0));
    device.kind = DeviceKind::kGpu;
    device.os_index = static_cast<std::int32_t>(index);
    if (gcn > 0)
      device.model = fmt::format("gfx{}", gcn);
    else if (sm > 0)
      device.model = fmt::format("sm_{}", sm);
    const std::string bus_id = pci.attribute("busid").value();
    const DeviceId id = add(std::move(device), parent, LinkKind::kPci, figure);
    // Bridges and NICs may share one, as in files that people shortened; links name GPUs alone.
    if (!by_bus_.emplace(bus_key(graph_.device(id).host, bus_id), id).second)
      return file_.complain(
          pci, fmt::format("busid=\"{}\" belongs to two GPUs of the host", printable(bus_id, 64)));
    capability_[id] = clamped(gcn > 0 ? gcn : sm);
    for (const pugi::xml_node link : gpu.children()) {
      const std::string_view name = link.name();
      if (name == "nvlink" || name == "xgmi")
        claims_.push_back({.node = link, .from = id, .target = {}, .xgmi = name == "xgmi"});
      if (name == "c2c") TUTTI_TRY(read_c2c(link, id));
    }
    return {};
  }

  // Between a GPU and its processor; MB/s of one link.
  Status read_c2c(pugi::xml_node link, DeviceId gpu) {
    TUTTI_TRY_ASSIGN(const std::int64_t count, number_within(link, "count", 1, 1, 1024));
    TUTTI_TRY_ASSIGN(const std::int64_t megabytes, number_within(link, "bw", 0, 1, 10'000'000));
    graph_.add_link({.a = graph_.container(gpu, DeviceKind::kNuma),
                     .b = gpu,
                     .kind = LinkKind::kC2c,
                     .count = static_cast<std::uint32_t>(count),
                     .bytes_per_ns = static_cast<double>(megabytes * count) / 1000,
                     .latency_ns = processor_link_latency_ns(),
                     .bandwidth_from = Origin::kFile,
                     .latency_from = Origin::kTable});
    return {};
  }

  struct PciNic {
    std::string bus_id;
    Figure figure;
    NicIds ids;
  };

  // A <nic> inside or instead of a <pci>, with a <net> per port, or a <pci> of a NIC's class alone.
  Status read_nic(pugi::xml_node nic, DeviceId parent, const PciNic* pci) {
    std::size_t ports = 0;
    for (const pugi::xml_node net : nic.children("net")) {
      TUTTI_TRY_ASSIGN(const std::int64_t index, number_within(net, "dev", -1, -1, 1 << 20));
      TUTTI_TRY_ASSIGN(const std::int64_t megabits,
                       number_within(net, "speed", 0, 0, 1'000'000'000));
      Device device{.kind = DeviceKind::kNic, .os_index = static_cast<std::int32_t>(index)};
      device.name = printable(net.attribute("name").value(), 64);
      device.rate_bytes_per_ns = static_cast<double>(megabits) / 8000;
      add_nic(std::move(device), parent, pci);
      ++ports;
    }
    if (ports == 0 && pci != nullptr) add_nic({.kind = DeviceKind::kNic}, parent, pci);
    return {};
  }

  void add_nic(Device device, DeviceId parent, const PciNic* pci) {
    if (device.name.empty()) device.name = fmt::format("NIC{}", graph_.count(DeviceKind::kNic));
    const Figure port =
        topology::nic(pci == nullptr ? NicIds{} : pci->ids, device.rate_bytes_per_ns);
    device.rate_bytes_per_ns = port.bytes_per_ns;
    device.port_latency_ns = port.latency_ns;
    if (pci != nullptr) device.bus_id = pci->bus_id;
    // A NIC that stands in the <cpu> itself is virtual: no bus that the file knows slows it.
    const Figure bus = pci != nullptr ? pci->figure : root_to_numa();
    add(std::move(device), parent, LinkKind::kPci, bus);
  }

  // GPUs without a dev number, and files that number twice, count in the file's order.
  void number_gpus() {
    const std::vector<DeviceId> gpus = graph_.of_kind(DeviceKind::kGpu);
    std::vector<std::int32_t> numbers;
    for (const DeviceId id : gpus) numbers.push_back(graph_.device(id).os_index);
    std::ranges::sort(numbers);
    const bool good = std::ranges::adjacent_find(numbers) == numbers.end() &&
                      (numbers.empty() || numbers.front() >= 0);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::int32_t number =
          good ? graph_.device(gpus[i]).os_index : static_cast<std::int32_t>(i);
      graph_.rename(gpus[i], fmt::format("GPU{}", number), number);
    }
  }

  Status read_claim(Claim claim) {
    claim.target = claim.node.attribute("target").value();
    TUTTI_TRY_ASSIGN(const std::int64_t count, number_within(claim.node, "count", 1, 1, 1024));
    claim.count = static_cast<std::uint32_t>(count);
    const auto target_class = parse_hex(claim.node.attribute("tclass").value());
    claim.to_switch = target_class && (*target_class >> 8) == kClassNvSwitch;
    if (claim.target.empty())
      return file_.complain(
          claim.node,
          fmt::format("<{}> needs a target, the busid of the other end", claim.node.name()));
    const auto found = by_bus_.find(bus_key(graph_.device(claim.from).host, claim.target));
    const DeviceId other = found == by_bus_.end() ? kNoDevice : found->second;
    if (claim.to_switch)
      to_switch_[claim.from] += claim.count;
    else if (other == claim.from)
      leave_out(claim, "connects the GPU to itself");
    else if (other == kNoDevice)
      leave_out(claim, "leads to a GPU that is not in the file");
    else
      between_[{claim.from, other}] += claim.count;
    xgmi_ = xgmi_ || claim.xgmi;
    return {};
  }

  void leave_out(const Claim& claim, std::string_view why) {
    graph_.add_note(fmt::format("{}: the link from {} to {} {} and is ignored",
                                file_.place(claim.node), graph_.device(claim.from).name,
                                printable(claim.target, 64), why));
  }

  void add_fabric_link(DeviceId a, DeviceId b, std::uint32_t count) {
    const int capability = capability_[a];
    const bool to_switch = graph_.device(b).kind == DeviceKind::kNvSwitch;
    const Figure one = xgmi_ ? topology::xgmi(capability) : nvlink(capability, {}, to_switch);
    graph_.add_link({.a = a,
                     .b = b,
                     .kind = xgmi_ ? LinkKind::kXgmi : LinkKind::kNvlink,
                     .count = count,
                     .bytes_per_ns = one.bytes_per_ns * count,
                     .latency_ns = one.latency_ns,
                     .bandwidth_from = one.from,
                     .latency_from = one.from});
  }

  // Each end states a link; where the two differ, the smaller number is certain to be there.
  void join_claims() {
    // Files for NCCL_TOPO_FILE may leave them to the driver, as those of clouds do.
    if (claims_.empty() && capability_.size() > 1)
      graph_.add_note(
          fmt::format("the file names no NVLink or xGMI between its {} GPUs; if the machine has "
                      "such links, the paths shown here are too slow",
                      capability_.size()));
    for (const auto& [ends, count] : between_) {
      const auto back = between_.find({ends.second, ends.first});
      if (back != between_.end() && ends.first > ends.second) continue;
      std::uint32_t both = count;
      if (back == between_.end() || back->second != count) {
        both = back == between_.end() ? count : std::min(count, back->second);
        graph_.add_note(fmt::format("{} names {} links to {}, which names {}; {} are used",
                                    graph_.device(ends.first).name, count,
                                    graph_.device(ends.second).name,
                                    back == between_.end() ? 0 : back->second, both));
      }
      add_fabric_link(ends.first, ends.second, both);
    }
    std::map<std::uint32_t, DeviceId> switches;
    for (const auto& [gpu, count] : to_switch_) {
      const std::uint32_t host = graph_.device(gpu).host;
      if (!switches.contains(host)) {
        Device device{.kind = DeviceKind::kNvSwitch, .host = host};
        device.parent = graph_.of_kind(DeviceKind::kHost)[host];
        device.name = "NVSwitch";
        switches[host] = graph_.add_device(std::move(device));
      }
      add_fabric_link(gpu, switches[host], count);
    }
  }

  const XmlFile& file_;
  Graph graph_;
  std::map<std::string, DeviceId> hosts_;   // by host_hash
  std::map<std::string, DeviceId> by_bus_;  // GPUs
  std::map<DeviceId, int> capability_;
  std::vector<Claim> claims_;
  std::map<std::pair<DeviceId, DeviceId>, std::uint32_t> between_;
  std::map<DeviceId, std::uint32_t> to_switch_;
  bool xgmi_ = false;
};

}  // namespace

Result<Graph> read_nccl_file(const std::string& path) {
  TUTTI_TRY_ASSIGN(const XmlFile file, XmlFile::load(path, "system"));
  return NcclReader(file).read();
}

Result<Graph> read_nccl_text(std::string text, const std::string& name) {
  TUTTI_TRY_ASSIGN(const XmlFile file, XmlFile::parse(std::move(text), name, "system"));
  return NcclReader(file).read();
}

}  // namespace tutti::topology
