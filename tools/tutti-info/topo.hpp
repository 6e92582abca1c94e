// SPDX-License-Identifier: Apache-2.0
// `tutti-info topo`: the machine, or what a file says of one, as a matrix of ways between its
// devices, with the rings and trees that ranks on them would form; as text, JSON and picture.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "model/layout.hpp"
#include "topology/graph.hpp"
#include "topology/path.hpp"

namespace tutti::info {

struct TopoFlags {
  std::vector<std::string> hwloc;      // exports; each is a host
  std::vector<std::string> nccl;       // topology files; after them
  std::vector<std::string> synthetic;  // descriptions; after them
  std::string cluster;                 // what joins the hosts
  std::string svg;                     // the picture goes there
};

// An order laid over the machine.
struct Drawn {
  std::string name;  // "ring", "ring by mlx5_0", "tree"
  bool closed = false;
  std::vector<std::pair<topology::DeviceId, topology::DeviceId>> hops = {};
  double slowest_bytes_per_ns = 0;  // of its hops' ways
  double longest_ns = 0;            // latency of the hop that takes longest
};

struct Topo {
  topology::Graph graph;
  std::vector<topology::DeviceId> shown;          // rows of the matrix
  std::vector<topology::DeviceId> seats;          // a rank each
  std::vector<std::vector<topology::Path>> ways;  // by row, by column
  std::vector<Drawn> drawn;
};

// Without files this machine, or what HWLOC_XMLFILE and HWLOC_SYNTHETIC say. Errors: the readers'
// (kInvalidArgument with file and place), the cluster file's, merge()'s.
[[nodiscard]] Result<Topo> look_at_topology(const TopoFlags& flags);

[[nodiscard]] std::string topo_text(const Topo& topo);
[[nodiscard]] std::string topo_json(const Topo& topo);
[[nodiscard]] std::string topo_svg(const Topo& topo);

// "GPU0", and with several hosts "1:GPU0".
[[nodiscard]] std::string label(const topology::Graph& graph, topology::DeviceId id);

}  // namespace tutti::info
