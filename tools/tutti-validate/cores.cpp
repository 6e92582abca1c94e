// SPDX-License-Identifier: Apache-2.0
#include "tutti-validate/cores.hpp"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "base/host.hpp"
#include "plan/machines.hpp"
#include "topology/seat.hpp"

namespace tutti::validate {
namespace {

// A rank's own, as it tells the others.
struct RankCores {
  std::uint64_t host, machine, seat;
  std::int32_t cores, machine_cores;
};

RankCores own_cores() {
  const char* const host_id = std::getenv("TUTTI_HOST_ID");
  const topology::Seat seat = topology::seat_of_this_thread();
  return {host_identity(host_id == nullptr ? "" : host_id), boot_identity(),
          hash_bytes({reinterpret_cast<const char*>(&seat), sizeof seat}), usable_cpus(),
          machine_cpus()};
}

}  // namespace

std::optional<int> cores_of(tuttiComm_t comm, int ranks) {
  const RankCores own = own_cores();
  std::vector<RankCores> all(static_cast<std::size_t>(ranks));
  if (tuttiAllGather(&own, all.data(), sizeof own, tuttiUint8, comm, nullptr) != tuttiSuccess)
    throw std::runtime_error(tuttiGetLastError(comm));
  std::vector<RankFacts> facts(all.size());
  std::vector<PeerInfo> peers(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].host != own.host) return std::nullopt;
    facts[i].machine = all[i].machine;
    facts[i].cores_hash = all[i].seat;
    facts[i].cores = all[i].cores;
    facts[i].machine_cores = all[i].machine_cores;
    peers[i].host_id = all[i].host;
  }
  return cores_of_job(facts, peers);
}

}  // namespace tutti::validate
