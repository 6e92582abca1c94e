// SPDX-License-Identifier: Apache-2.0
#include "plan/machines.hpp"

#include <algorithm>
#include <map>

namespace tutti {
namespace {

bool share_machine(std::size_t a, std::size_t b, std::span<const RankFacts> all,
                   std::span<const PeerInfo> peers) {
  return all[a].machine != 0 ? all[a].machine == all[b].machine
                             : peers[a].host_id == peers[b].host_id;
}

}  // namespace

Machine machine_of(Rank of, std::span<const RankFacts> all, std::span<const PeerInfo> peers) {
  std::map<std::uint64_t, std::int32_t> cores;  // by mask
  std::int32_t most = 1;
  Machine machine;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!share_machine(static_cast<std::size_t>(of), rank, all, peers)) continue;
    ++machine.ranks;
    cores.emplace(all[rank].cores_hash, all[rank].cores);
    most = std::max(most, all[rank].machine_cores);
  }
  for (const auto& [mask, count] : cores) machine.cores = std::min(machine.cores + count, most);
  return machine;
}

std::int32_t cores_of_job(std::span<const RankFacts> all, std::span<const PeerInfo> peers) {
  std::vector<std::size_t> firsts;  // of each machine
  std::int32_t cores = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (std::ranges::any_of(
            firsts, [&](std::size_t first) { return share_machine(first, rank, all, peers); }))
      continue;
    firsts.push_back(rank);
    cores += machine_of(static_cast<Rank>(rank), all, peers).cores;
  }
  return cores;
}

std::vector<std::int32_t> number_hosts(std::span<const PeerInfo> peers, bool all_far) {
  std::map<std::uint64_t, std::int32_t> numbers;
  std::vector<std::int32_t> hosts;
  for (const PeerInfo& peer : peers) {
    const auto next = static_cast<std::int32_t>(numbers.size());
    hosts.push_back(all_far ? peer.rank : numbers.emplace(peer.host_id, next).first->second);
  }
  return hosts;
}

}  // namespace tutti
