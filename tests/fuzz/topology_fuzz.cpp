// SPDX-License-Identifier: Apache-2.0
// What other hosts and files say of machines: a graph's bytes, NCCL's and hwloc's XML. What is read
// is sent on, searched and merged. hwloc itself runs only on exports that the check lets through.
#include <string>

#include "tests/fuzz/target.hpp"
#include "topology/hwloc_reader.hpp"
#include "topology/merge.hpp"
#include "topology/nccl_reader.hpp"
#include "topology/path.hpp"

namespace tutti::fuzz {
namespace {

using topology::Graph;

enum Kind : int { kBytes, kNccl, kHwloc, kKinds };
// Of what is searched and merged: that takes long where the input made much.
constexpr std::size_t kMostDevices = 400;

void require_one_line(const Error& error) {
  require(!error.message.empty(), "an error says something");
  for (const char c : error.message)
    require(static_cast<unsigned char>(c) >= 0x20,
            "an error is one line without control characters");
}

void use(const Graph& graph) {
  const auto again = topology::decode(topology::encode(graph));
  require(again.has_value() && topology::encode(*again) == topology::encode(graph),
          "what was read survives sending");
  if (graph.devices().empty() || graph.devices().size() > kMostDevices) return;
  static_cast<void>(topology::paths_from(graph, 0));
  const std::vector<Graph> hosts{graph, graph};
  const auto merged = topology::merge(hosts, nullptr);
  require(merged.has_value() && merged->hosts() == 2 * graph.hosts(), "hosts merge");
}

Result<Graph> read(Kind kind, std::span<const std::byte> input) {
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  if (kind == kNccl) return topology::read_nccl_text(std::move(text), "fuzz.xml");
  if (kind == kHwloc) return topology::read_hwloc_text(std::move(text), "fuzz.xml");
  return topology::decode(input);
}

constexpr std::string_view kNcclFile =
    R"(<system version="2"><cpu host_hash="0x1" numaid="0" affinity="0000ffff,00000001"
 arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49"><pci busid="0000:41:00.0"
 class="0x060400"
 link_speed="16 GT/s" link_width="16"><pci busid="0000:43:00.0" class="0x038000"
 link_speed="16.0 GT/s PCIe" link_width="8"><gpu dev="0" gcn="906"><xgmi target="0000:03:00.0"
 count="1" tclass="0x038000"/><c2c bw="1000" count="2"/></gpu></pci><pci busid="0000:03:00.0"
 class="0x038000"><gpu dev="1" sm="70"><xgmi target="0000:43:00.0" count="2"/><nvlink target="1"
 tclass="0x068000"/></gpu></pci></pci><nic><net name="mlx5_0" dev="0" speed="200000"/></nic></cpu>
</system>)";

constexpr std::string_view kHwlocFile =
    R"(<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x3"
 complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1"
 allowed_nodeset="0x1" gp_index="1"><object type="Package" os_index="0" cpuset="0x3"
 complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="2"><object type="NUMANode"
 os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="3"
 local_memory="4096"/><object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1"
 nodeset="0x1" complete_nodeset="0x1" gp_index="4"/><object type="PU" os_index="1" cpuset="0x2"
 complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/></object>
<object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[00-01]">
<object type="PCIDev" gp_index="7" pci_busid="0000:01:00.0"
 pci_type="0302 [10de:15f9] [10de:116b] a1"
 pci_link_speed="15.7"><object type="OSDev" gp_index="8" name="cuda0" osdev_type="5"/></object>
</object></object></topology>)";

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const auto kind = static_cast<Kind>(std::to_integer<int>(input[0]) % kKinds);
  const Result<Graph> graph = read(kind, input.subspan(1));
  if (graph)
    use(*graph);
  else
    require_one_line(graph.error());
}

std::vector<Bytes> seeds() {
  const auto graph = topology::read_nccl_text(std::string(kNcclFile), "seed.xml");
  require(graph.has_value(), "an honest file is read");
  return {marked(kBytes, topology::encode(*graph)), marked(kNccl, kNcclFile),
          marked(kHwloc, kHwlocFile)};
}

}  // namespace tutti::fuzz
