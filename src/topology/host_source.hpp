// SPDX-License-Identifier: Apache-2.0
// Where this host's graph comes from when a job starts, and whether it is worth asking.
//
// TUTTI_TOPOLOGY says: a file of hwloc or of NCCL, or "auto": what HWLOC_XMLFILE or HWLOC_SYNTHETIC
// describe, else this machine. A process reads each source once; hwloc takes tens of milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "topology/graph.hpp"

namespace tutti::topology {

using Getenv = std::function<const char*(const char*)>;

enum class Interest : std::uint8_t {
  kOff,       // the user wants none
  kNone,      // every place on the host is alike
  kIfSeated,  // where ranks of the host sit at different places
  kAlways,    // the user names a file
};
// A look that costs microseconds: is the host described, or has it several NUMA nodes or level 3
// caches? `sys`: "/sys".
[[nodiscard]] Interest interest_in_topology(const std::string& setting, const Getenv& get,
                                            const std::string& sys);

// The graph, and the source in a few words. Errors as of the readers; those of `setting` begin with
// its file. Any thread; one reads at a time.
struct HostSource {
  Graph graph;
  std::string name;
};
[[nodiscard]] Result<HostSource> read_host_source(const std::string& setting, const Getenv& get);

// A file of hwloc or of NCCL, by its first element.
[[nodiscard]] Result<Graph> read_topology_file(const std::string& path);

}  // namespace tutti::topology
