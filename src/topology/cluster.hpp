// SPDX-License-Identifier: Apache-2.0
// A cluster as its operator describes it: nodes, what is in them, what joins them.
//
// The least that a file says:
//
//   {"name": "mn5", "nodes": 8, "gpus_per_node": 4, "gpu": "h100",
//    "intra": {"kind": "nvlink4", "GBps_per_gpu": 450},
//    "nics_per_node": 4, "nic": {"kind": "ndr200", "GBps": 25}}
//
//   {"name": "epyc", "nodes": 16, "ranks_per_node": 64, "intra": {"kind": "shm"},
//    "nics_per_node": 1, "nic": {"kind": "hdr200"}}
//
// Everything else is taken from the tables of base/technology.hpp. README.md of this folder lists
// every key. Files are others' data: any bytes give a cluster or one line that says where and what.
// Pure but for read_cluster(); any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/technology.hpp"

namespace tutti {

// Ends of a link among the ranks of one node, or a network port: a technology and its numbers here.
struct ClusterLink {
  const Technology* technology = nullptr;  // never null in a cluster that was read
  double GBps = 0;                         // of one direction, one GPU, port or core
  double latency_ns = 0;
};

// A level of switches. Level 0 is what nodes are plugged into.
struct SwitchLevel {
  std::int32_t nodes_per_group = 0;  // below one switch (or pod) of this level
  double oversubscription = 1;       // bandwidth into the group's nodes over that of its uplinks
  double latency_ns = 0;             // through a switch of this level
};

struct Torus {
  std::vector<std::int32_t> shape;  // nodes along each dimension; empty: no torus
  double link_GBps = 0;             // of one link, one direction
  double hop_ns = 0;
};

struct Cluster {
  static constexpr std::int32_t kMostNodes = 1 << 20, kMostRanksPerNode = 1024, kMostMeshed = 16;
  static constexpr std::int64_t kMostRanks = std::int64_t{1} << 21;  // and network ports
  static constexpr std::size_t kMostLevels = 4, kMostDimensions = 8;

  std::string name;
  std::int32_t nodes = 1;
  std::int32_t ranks_per_node = 1;  // one a GPU where there are GPUs
  const GpuModel* gpu = nullptr;    // null: ranks compute on cores
  std::int32_t cores_per_node = 0;  // 0: as many as ranks
  ClusterLink intra;
  bool switched = true;    // ends meet in a switch; else each pair has its share of the ends
  double memory_GBps = 0;  // of a node, shared by its ranks; where intra is shared memory
  std::int32_t nics_per_node = 1;
  ClusterLink nic;
  const Technology* pcie = nullptr;  // between a NIC and the node; narrower than the NIC, it counts
  bool rails = false;                // NIC i of every node is plugged into switches of its own
  std::vector<SwitchLevel> switches;
  Torus torus;
  std::string profile;  // of an implementation (src/lab/profile.hpp); empty: the default

  [[nodiscard]] std::int32_t ranks() const { return nodes * ranks_per_node; }
};

// `name` stands in messages, as a file's. kInvalidArgument: "name:line:column: what" where the text
// is no JSON, "name: /path: what, expected what" otherwise.
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text, std::string_view name);
// At most 4 MiB. kSystemError where the file cannot be read.
[[nodiscard]] Result<Cluster> read_cluster(const std::string& path);

// One that stands inside a larger file; path: of keys to it, as "/clusters/mn5".
[[nodiscard]] Result<Cluster> cluster_of(const nlohmann::json& value, std::string_view file,
                                         const std::string& path);

// The same cluster with other sizes; the torus of another number of nodes becomes as cubic as its
// number of dimensions lets it. Errors as parse_cluster's bounds.
[[nodiscard]] Result<Cluster> resize(const Cluster& cluster, std::int32_t nodes);

}  // namespace tutti
