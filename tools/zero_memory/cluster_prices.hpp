// SPDX-License-Identifier: Apache-2.0
// Prices of collectives on a described cluster: of each algorithm of an implementation's profile
// (src/lab/profiles) the predicted time, the cheapest of them. Tutti's own by default.
#pragma once

#include <string>

#include "advise.hpp"
#include "lab/profile.hpp"
#include "topology/cluster.hpp"

namespace tutti::zero_memory {

// One rank of each host, with its share of the host's ports.
[[nodiscard]] Cluster between_hosts(const Cluster& cluster);
// Remembers what it has priced; not for several threads. Errors: no algorithm of the profile does
// the collective on these ranks.
[[nodiscard]] Price cluster_prices(const Cluster& cluster, const Profile& profile);
// GB/s of memory of one rank: of its GPU, or its share of the host's; 0: unknown.
[[nodiscard]] double rank_memory_GBps(const Cluster& cluster);

}  // namespace tutti::zero_memory
