// SPDX-License-Identifier: Apache-2.0
#include "control/exchange.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::control {
namespace {

std::uint32_t levels_of(std::int32_t ranks) {
  return static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(ranks) - 1));
}

// What a rank does in a round: up the tree, then down.
struct Part {
  bool down = false;
  Rank distance = 0;     // between a child and its parent in this round
  Rank child = kNoRank;  // this rank, or a child of it; kNoRank: it has no part
};

Part part_of(Rank rank, std::int32_t ranks, std::uint32_t round) {
  const std::uint32_t levels = levels_of(ranks);
  Part part{.down = round >= levels,
            .distance = Rank{1} << (round < levels ? round : 2 * levels - 1 - round)};
  if (rank % (2 * part.distance) == part.distance)
    part.child = rank;
  else if (rank % (2 * part.distance) == 0 && rank + part.distance < ranks)
    part.child = rank + part.distance;
  return part;
}

// kNoRank: nobody.
Rank target_of(Rank rank, const Part& part) {
  if (part.child == kNoRank || (part.child == rank) == part.down) return kNoRank;
  return part.down ? part.child : rank - part.distance;
}

}  // namespace

std::vector<Rank> exchange_targets(const Circle& circle) {
  std::vector<Rank> targets;
  for (std::uint32_t round = 0; round < exchange_rounds(circle.size); ++round) {
    const Rank to = target_of(circle.place, part_of(circle.place, circle.size, round));
    targets.push_back(to == kNoRank ? kNoRank : circle.rank_at(to));
  }
  return targets;
}

std::uint32_t exchange_rounds(std::int32_t ranks) { return 2 * levels_of(ranks); }

Contacts find_contacts(const Circle& circle, const std::function<const Member&(Rank)>& member_of) {
  const Member& self = member_of(circle.rank_at(circle.place));
  Contacts contacts;
  // A child is sent to once, and so is the parent.
  for (const Rank peer : exchange_targets(circle))
    if (peer != kNoRank) contacts.emplace_back(peer, address_between(self, member_of(peer)));
  return contacts;
}

std::optional<Error> find_unreachable(std::span<const Member* const> members) {
  const Member& first = *members.front();
  const Member* elsewhere = nullptr;
  const Member* silent = nullptr;
  for (const Member* const member : members) {
    if (member->locality != first.locality) elsewhere = member;
    if (member->tcp.empty() && silent == nullptr) silent = member;
  }
  if (elsewhere == nullptr || silent == nullptr) return std::nullopt;
  const Member& other = silent->locality == first.locality ? *elsewhere : first;
  return Error{Code::kInvalidUsage,
               fmt::format("{} and {} are on different hosts, and rank {} listens on no network "
                           "interface: set TUTTI_IFNAME there",
                           describe(silent->info), describe(other.info), silent->info.rank),
               silent->info.rank};
}

Exchange::Exchange(Rank rank, std::int32_t ranks, std::span<const std::byte> mine,
                   std::span<std::byte> announced)
    : rank_(rank),
      ranks_(ranks),
      levels_(levels_of(ranks)),
      blob_bytes_(mine.size()),
      blobs_(mine.begin(), mine.end()),
      announced_(announced) {
  blobs_.reserve(blob_bytes_ * static_cast<std::size_t>(ranks));
}

Exchange::Round Exchange::round() {
  const Part part = part_of(rank_, ranks_, number_);
  Round round;
  round.number = number_;
  round.to = target_of(rank_, part);
  if (round.to != kNoRank) {
    // Once rank 0 has all: others get it with them.
    if (part.down && blobs_.size() == whole_bytes())
      blobs_.insert(blobs_.end(), announced_.begin(), announced_.end());
    round.message = blobs_;
  } else if (part.child != kNoRank) {
    round.from = part.down ? rank_ - part.distance : part.child;
    round.expected_bytes =
        part.down
            ? whole_bytes() + announced_.size()
            : static_cast<std::size_t>(std::min(part.distance, ranks_ - part.child)) * blob_bytes_;
  }
  return round;
}

void Exchange::absorb(std::span<const std::byte> received) {
  const Part part = part_of(rank_, ranks_, number_++);
  if (part.child == rank_ && part.down) {  // of all ranks
    std::ranges::copy(received.last(announced_.size()), announced_.begin());
    blobs_.clear();
  }
  blobs_.insert(blobs_.end(), received.begin(), received.end());
}

std::vector<std::byte> Exchange::in_rank_order() {
  blobs_.resize(whole_bytes());
  return std::move(blobs_);
}

}  // namespace tutti::control
