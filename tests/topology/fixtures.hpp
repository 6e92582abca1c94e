// SPDX-License-Identifier: Apache-2.0
// Machines that tests read; where the files come from stands in tests/fixtures/topology/README.md.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "topology/graph.hpp"
#include "topology/hwloc_reader.hpp"
#include "topology/nccl_reader.hpp"
#include "topology/path.hpp"

namespace tutti::topology {

inline std::string fixture(const std::string& name) { return std::string(TUTTI_FIXTURES) + name; }

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Paths of all fixtures of one kind ("hwloc", "nccl"), sorted.
inline std::vector<std::string> fixtures_of(const std::string& kind) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(kind)))
    if (entry.path().extension() == ".xml") found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

inline Graph nccl(const std::string& name) {
  Result<Graph> graph = read_nccl_file(fixture("nccl/" + name));
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? *std::move(graph) : Graph();
}

inline Graph hwloc(const std::string& name) {
  Result<Graph> graph = read_hwloc_file(fixture("hwloc/" + name));
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? *std::move(graph) : Graph();
}

inline DeviceId find(const Graph& graph, const std::string& name) {
  for (DeviceId id = 0; id < graph.devices().size(); ++id)
    if (graph.device(id).name == name) return id;
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

inline std::string way(const Graph& graph, const std::string& from, const std::string& to) {
  return path_between(graph, find(graph, from), find(graph, to)).name();
}

// Packages, NUMA nodes, shared caches, cores, GPUs, NICs.
inline std::vector<std::size_t> counts(const Graph& graph) {
  return {graph.count(DeviceKind::kPackage), graph.count(DeviceKind::kNuma),
          graph.count(DeviceKind::kCache),   graph.count(DeviceKind::kCore),
          graph.count(DeviceKind::kGpu),     graph.count(DeviceKind::kNic)};
}

}  // namespace tutti::topology
