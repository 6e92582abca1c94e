// SPDX-License-Identifier: Apache-2.0
#include "model/host_classes.hpp"

#include <algorithm>

#include "model/counts.hpp"

namespace tutti {
namespace {

Rank mean_run(std::span<const std::int32_t> hosts) {
  std::size_t runs = 1;
  for (std::size_t rank = 1; rank < hosts.size(); ++rank)
    if (hosts[rank] != hosts[rank - 1]) ++runs;
  return static_cast<Rank>((hosts.size() + runs / 2) / runs);
}

}  // namespace

HostClasses::HostClasses(const Symmetry& symmetry, std::span<const std::int32_t> hosts,
                         std::int32_t host_count, std::uint64_t messages)
    : symmetry_(symmetry), hosts_(hosts), ranks_(static_cast<Rank>(hosts.size())) {
  if (host_count <= 1) return;
  const Rank group = symmetry.group;
  members_ = static_cast<std::uint32_t>(first_kept(symmetry.members, 1, group, host_count));
  groups_ =
      static_cast<std::uint32_t>(first_kept(symmetry.groups, group, ranks_ / group, host_count));
  line_ = symmetry.groups == Move::kShift && group == 1 && messages * groups_ > kMostCarried;
  if (!line_) return;
  const std::uint64_t most = std::max<std::uint64_t>(1, kMostCarried / messages);
  groups_ = static_cast<std::uint32_t>(std::min(static_cast<std::uint64_t>(mean_run(hosts)), most));
}

// The least number of things of `unit` ranks each by whose multiples hosts are moved to hosts;
// `count`: there is none. Shifts by one number make up all multiples, exclusive-ors with all powers
// of two from one on.
Rank HostClasses::first_kept(Move move, Rank unit, Rank count, std::int32_t host_count) const {
  if (move == Move::kNone) return 1;
  if (move == Move::kExclusiveOr) {
    Rank by = count;
    while (by > 1 && keeps_hosts(by / 2 * unit, host_count)) by /= 2;
    return by;
  }
  for (Rank by = 1; by < count; ++by)
    if (count % by == 0 && keeps_hosts(by * unit, host_count)) return by;
  return count;
}

// Does the move of rank 0 to `to`?
bool HostClasses::keeps_hosts(Rank to, std::int32_t host_count) const {
  std::vector<std::int32_t> image(static_cast<std::size_t>(host_count), -1);
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const auto moved = static_cast<std::size_t>(symmetry_.moved(rank, 0, to, ranks_));
    std::int32_t& host = image[static_cast<std::size_t>(hosts_[static_cast<std::size_t>(rank)])];
    if (host == -1) host = hosts_[moved];
    if (host != hosts_[moved]) return false;
  }
  return true;
}

std::uint32_t HostClasses::of(Rank rank) const {
  const auto group = static_cast<std::uint32_t>(rank / symmetry_.group),
             member = static_cast<std::uint32_t>(rank % symmetry_.group);
  return group % groups_ * members_ + member % members_;
}

HostClasses::Way HostClasses::way(Rank representative, Rank peer, std::uint32_t from) const {
  if (line_) {
    const Rank size = static_cast<Rank>(groups_);
    Rank to = static_cast<Rank>(from) + peer - representative;
    if (peer - representative > ranks_ / 2) to -= ranks_;
    if (representative - peer > ranks_ / 2) to += ranks_;
    const Rank inside = (to % size + size) % size;
    return {static_cast<std::uint32_t>(inside), to != inside};
  }
  const auto group = static_cast<Rank>(from / members_),
             member = static_cast<Rank>(from % members_);
  const Rank sender = representative + group * symmetry_.group + member;
  const Rank receiver = symmetry_.moved(peer, representative, sender, ranks_);
  return {of(receiver),
          hosts_[static_cast<std::size_t>(sender)] != hosts_[static_cast<std::size_t>(receiver)]};
}

}  // namespace tutti
