// SPDX-License-Identifier: Apache-2.0
// Hosts' graphs become one: what each host discovered, joined by what none can discover.
//
// Every host's NICs are plugged into the network: those at least half as fast as its fastest, for
// slower ones are there to manage the machine. Without a description the network is one switch
// that never narrows. A description (cluster.hpp) says rates and latencies of NICs, rails, levels
// of switches with their oversubscription, or a torus; hosts are its nodes in the order given. A
// host without a NIC gets what the description says of nodes, or one port of 10 Gb/s.
//
// Pure; any thread.
#pragma once

#include <span>

#include "topology/cluster.hpp"
#include "topology/graph.hpp"

namespace tutti::topology {

// `description` may be null. kInvalidArgument: it has fewer nodes than there are hosts, or its
// torus another number.
[[nodiscard]] Result<Graph> merge(std::span<const Graph> hosts, const Cluster* description);

// The NICs of a host that carry collectives, ascending by id.
[[nodiscard]] std::vector<DeviceId> fabric_nics(const Graph& graph, std::uint32_t host);

}  // namespace tutti::topology
