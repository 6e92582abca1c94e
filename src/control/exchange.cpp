// SPDX-License-Identifier: Apache-2.0
#include "control/exchange.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::control {
namespace {

Rank shifted(Rank rank, std::int64_t by, std::int32_t ranks) {
  return static_cast<Rank>(((rank + by) % ranks + ranks) % ranks);
}

}  // namespace

std::vector<Rank> exchange_targets(Rank rank, std::int32_t ranks) {
  std::vector<Rank> targets;
  for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
    targets.push_back(shifted(rank, distance, ranks));
  }
  return targets;
}

std::vector<Rank> exchange_targets(const Circle& circle) {
  std::vector<Rank> targets = exchange_targets(circle.place, circle.size);
  std::ranges::transform(targets, targets.begin(), circle.rank_at);
  return targets;
}

std::uint32_t exchange_rounds(std::int32_t ranks) {
  return static_cast<std::uint32_t>(exchange_targets(0, ranks).size());
}

Contacts find_contacts(const Circle& circle, const std::function<const Member&(Rank)>& member_of) {
  const Member& self = member_of(circle.rank_at(circle.place));
  Contacts contacts;
  for (const Rank peer : exchange_targets(circle))
    contacts.emplace_back(peer, address_between(self, member_of(peer)));
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
      blob_bytes_(mine.size()),
      blocks_(mine.begin(), mine.end()),
      announced_(announced) {
  blocks_.reserve(blob_bytes_ * static_cast<std::size_t>(ranks));
}

Exchange::Round Exchange::round() {
  const auto blobs =
      static_cast<std::size_t>(std::min<std::int64_t>(distance_, ranks_ - distance_));
  std::span<const std::byte> message = std::span(blocks_).first(blobs * blob_bytes_);
  if (passes_on() && !announced_.empty()) {
    outgoing_.assign(message.begin(), message.end());
    outgoing_.insert(outgoing_.end(), announced_.begin(), announced_.end());
    message = outgoing_;
  }
  return {.number = number_,
          .to = shifted(rank_, distance_, ranks_),
          .from = shifted(rank_, -distance_, ranks_),
          .message = message,
          .expected_bytes = blobs * blob_bytes_ + (is_told() ? announced_.size() : 0)};
}

void Exchange::absorb(std::span<const std::byte> received) {
  if (is_told()) {
    std::ranges::copy(received.last(announced_.size()), announced_.begin());
    received = received.first(received.size() - announced_.size());
  }
  blocks_.insert(blocks_.end(), received.begin(), received.end());
  distance_ *= 2;
  ++number_;
}

std::vector<std::byte> Exchange::in_rank_order() const {
  std::vector<std::byte> all(blocks_.size());
  for (std::int32_t i = 0; i < ranks_ && blob_bytes_ > 0; ++i) {
    const auto owner = static_cast<std::size_t>(shifted(rank_, -std::int64_t{i}, ranks_));
    const auto block = std::span(blocks_).subspan(static_cast<std::size_t>(i) * blob_bytes_);
    std::ranges::copy(block.first(blob_bytes_),
                      all.begin() + static_cast<std::ptrdiff_t>(owner * blob_bytes_));
  }
  return all;
}

}  // namespace tutti::control
