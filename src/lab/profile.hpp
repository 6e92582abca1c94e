// SPDX-License-Identifier: Apache-2.0
// Implementation profile: what a library's steps and messages cost beside the hardware, by
// protocol, and which of our schedules has the structure of each of its algorithms.
//
// Tables measured with other libraries are predicted with it: the structure comes from a schedule,
// a few numbers from the profile, the rest from the cluster. A profile is a JSON file; those of
// src/lab/profiles are compiled in. README.md of that folder lists the keys.
// Pure but for load_profile(); any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "lab/costs.hpp"
#include "topology/cluster.hpp"

namespace tutti {

// One way to carry messages: of a size, an implementation takes the cheapest that serves it.
struct ProtocolProfile {
  std::string name;
  Costs costs;
  // A slice's message of a rail is at most this, as buffers are. 0: never cut.
  double chunk_bytes = 0;
  // If slices overlap, a message below this size is not divided further.
  double least_chunk_bytes = 4096;
  // The range of bytes of the collective per rank, both ends included, in which the implementation
  // uses the protocol.
  double least_bytes = 0, most_bytes = 1e18;
  // Mean of what a message between nodes takes longer at random. Where all nodes wait for each
  // other at every step (AlgorithmProfile::lockstep) a step takes the longest of `nodes` such
  // times: H(nodes) = 1 + 1/2 + ... + 1/nodes of them, if they are distributed exponentially.
  double jitter_ns = 0;
};

struct AlgorithmProfile {
  std::string name;  // as users of the implementation call it
  // The name of Tutti's schedule; {nodes} and {local} stand for the numbers of nodes and of ranks
  // in each.
  std::string schedule;
  bool pipelined = false;    // slices overlap: cut as finely as pays
  bool lockstep = false;     // every step waits for all nodes' step before, as around a ring
  double efficiency = 1;     // of network links, beside the protocol's
  double latency_scale = 1;  // of messages' alpha, beside the protocol's
};

// Constants that are fitted together: all are scaled by one factor.
struct FitGroup {
  std::string name;
  std::vector<std::string> constants;  // as "Simple.network.alpha_ns"
  // How far from 1 the factor is expected, as a factor: what one standard deviation is. Known well:
  // near 1.
  double spread = 2;
};

struct Profile {
  std::string name, description;
  // Data is cut over the NICs of a node, each with rings and trees of its own, all alike.
  bool rails = false;
  std::uint32_t slots = 2;
  std::vector<ProtocolProfile> protocols;
  std::vector<AlgorithmProfile> algorithms;
  std::vector<FitGroup> fit;

  // Null where there is none.
  [[nodiscard]] const AlgorithmProfile* find(std::string_view algorithm) const;
};

// kInvalidArgument as parse_cluster().
[[nodiscard]] Result<Profile> parse_profile(std::string_view text, std::string_view name);
[[nodiscard]] std::string to_json(const Profile& profile);
// A compiled-in profile by name; or, where the name has a '/' or ends in ".json", a file.
[[nodiscard]] Result<Profile> load_profile(const std::string& name);
// Names of those compiled in.
[[nodiscard]] std::vector<std::string_view> known_profiles();
// What a cluster's file says; else nccl or rccl by the GPUs' vendor, openmpi between cores.
[[nodiscard]] std::string default_profile(const Cluster& cluster);

// A constant by its name: PROTOCOL.CONSTANT or PROTOCOL.shared|device|network.CONSTANT, or
// algorithm:NAME.efficiency|latency_scale. Null where there is none.
[[nodiscard]] double* find_constant(Profile& profile, std::string_view name);

}  // namespace tutti
