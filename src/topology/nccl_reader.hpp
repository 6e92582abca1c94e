// SPDX-License-Identifier: Apache-2.0
// A host from a topology file in NCCL's XML form: what NCCL_TOPO_FILE reads and
// NCCL_TOPO_DUMP_FILE writes, RCCL's with xGMI included.
//
//   <system version="1">
//     <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" ...>
//       <pci busid="0000:43:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
//         <gpu dev="0" sm="80"><nvlink target="0000:44:00.0" count="4" tclass="0x030200"/></gpu>
//       </pci>
//       <nic><net name="mlx5_0" dev="0" speed="200000"/></nic>
//
// A <cpu> is a NUMA node. Cores are not in such a file, so none are in the graph. Files that NCCL
// fused from several hosts (host_hash) make several hosts. Values that the file leaves out come
// from figures.hpp; entries that contradict each other are left out with a note (Graph::notes).
#pragma once

#include <string>

#include "topology/graph.hpp"

namespace tutti::topology {

// kInvalidArgument, "FILE:LINE:COLUMN: what is wrong; what to do".
[[nodiscard]] Result<Graph> read_nccl_file(const std::string& path);
// The same of text; `name` stands for the file in messages.
[[nodiscard]] Result<Graph> read_nccl_text(std::string text, const std::string& name);

}  // namespace tutti::topology
