// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/wire.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::verbs {

Result<Card> read_card(std::span<const std::byte> bytes, const Card& mine) {
  const auto refuse = [](std::string_view why) -> Result<Card> {
    return make_error(Code::kRemoteError, fmt::format("verbs: a peer's endpoint address {}", why));
  };
  Card card;
  if (bytes.size() != sizeof card)
    return refuse(fmt::format("has {} bytes instead of {}", bytes.size(), sizeof card));
  std::memcpy(&card, bytes.data(), sizeof card);
  if (card.magic != kMagic)
    return refuse("has another version; start all ranks with the same version of Tutti");
  if (card.link_layer != mine.link_layer)
    return refuse(
        "belongs to another kind of network: InfiniBand and Ethernet do not mix; choose ports with "
        "TUTTI_IB_HCA");
  if (card.arena_bytes != mine.arena_bytes)
    return refuse(
        "names a receive buffer of another size; set TUTTI_ARENA_BYTES to the same value on all "
        "ranks");
  const bool fits = card.arena_address <= UINT64_MAX - card.arena_bytes &&
                    card.landing_address <= UINT64_MAX - sizeof(Landing);
  const bool sound = card.queue_pair <= kMostNumber24 && card.first_psn <= kMostNumber24 &&
                     card.mtu >= 1 && card.mtu <= 5 && card.grh_required <= 1 &&
                     std::ranges::all_of(card.zero, [](std::uint8_t byte) { return byte == 0; });
  if (!fits || !sound)
    return refuse("has impossible numbers; start all ranks with the same version of Tutti");
  return card;
}

bool Arrivals::take(std::uint32_t immediate, std::uint64_t bytes, const Landing& landing,
                    PairArea& pair) {
  const Immediate it = decode(immediate);
  if (has_left_ || it.index >= kMaxConnectionsPerPair) return false;
  ++taken_;
  if (it.kind == Kind::kBye) {
    has_left_ = true;
    return true;
  }
  // Once, before anything else.
  if (it.kind == Kind::kHello) return !std::exchange(greeted_, true);
  greeted_ = true;
  const std::uint64_t number = messages_[it.index] + 1;
  if (static_cast<std::uint8_t>(number) != it.number) return false;
  messages_[it.index] = number;
  consumed_[it.index] = later_count(consumed_[it.index], it.consumed, kConsumedBits);
  done_ = next_count(done_, it.done, kDoneBits);  // no earlier one: done() sees to that
  if (it.kind == Kind::kSlot) {
    // Release pairs with the acquire in reload_produced.
    pair.words[it.index].produced.store(number, std::memory_order_release);
    return true;
  }
  const std::size_t offset = it.first_cell * kCellBytes;
  if (bytes < kCellHeaderBytes || bytes > sizeof landing.cells - offset) return false;
  const std::byte* const from = landing.cells + offset;
  auto* const to = reinterpret_cast<std::byte*>(pair.cells) + offset;
  std::memcpy(to + sizeof(Word), from + sizeof(Word), bytes - sizeof(Word));
  std::uint64_t epoch = 0;
  std::memcpy(&epoch, from, sizeof epoch);
  // The first cell's epoch, its first word, comes last: release pairs with the acquire in can_recv.
  reinterpret_cast<Cell*>(to)->epoch.store(epoch, std::memory_order_release);
  return true;
}

std::uint64_t Arrivals::done(std::uint64_t returned) {
  // As a number with sign, in its high bits: far fewer than half of what the count can tell are on
  // their way.
  const auto missing =
      static_cast<std::int64_t>(encode_done(0, (returned >> kOperationBits) - taken_));
  if (missing <= 0) done_ = std::max(done_, encode_done(returned, 0));
  return done_;
}

}  // namespace tutti::verbs
