// SPDX-License-Identifier: Apache-2.0
// Who shares a machine, read off what all ranks of a job told each other: whose cores the ranks
// have, and which hosts the price of a message goes between. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "plan/settings.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Holds what the ranks of one machine share, whatever hosts they claim to be: containers with
// networks of their own are hosts to the job and take the same cores.
struct Machine {
  std::int32_t ranks = 0, cores = 0;
};

// Launchers bind each rank to cores of its own: the ranks of a machine have all of these. Masks
// that overlap without being equal count twice, up to what the machine has; so it is the same for
// all.
[[nodiscard]] Machine machine_of(Rank of, std::span<const RankFacts> all,
                                 std::span<const PeerInfo> peers);

// Returns the cores of all machines together.
[[nodiscard]] std::int32_t cores_of_job(std::span<const RankFacts> all,
                                        std::span<const PeerInfo> peers);

// Each rank's host by number, or one for each rank where every message takes the wire.
[[nodiscard]] std::vector<std::int32_t> number_hosts(std::span<const PeerInfo> peers, bool all_far);

}  // namespace tutti
