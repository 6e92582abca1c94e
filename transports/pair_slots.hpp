// SPDX-License-Identifier: Apache-2.0
// Where sends and receives lie in a rank's inbox: a region of its own for every source rank, behind
// the arena that plans share out. Ranks that share memory use the whole region as a ring
// (transports/pair_ring.hpp), others its slots. Nothing but (ranks, arena_bytes) decides it, so two
// ranks agree without a word and without the others. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transports/connection.hpp"
#include "transports/pair_ring.hpp"

namespace tutti {

struct PairSlots {
  static constexpr std::uint32_t kSlots = 4;  // of each source
  static constexpr std::uint64_t kLeastSlotBytes = 1024, kMostSlotBytes = 64 << 10;

  // All sources together take half as much as the plans, where slots of the least size allow.
  PairSlots(std::int32_t ranks, std::uint64_t plan_arena_bytes)
      : ranks_(static_cast<std::uint64_t>(ranks)), begin_(whole_lines(plan_arena_bytes)) {
    const std::uint64_t share = plan_arena_bytes / 2 / ranks_ / kSlots;
    slot_bytes_ =
        std::clamp(share / kLeastSlotBytes * kLeastSlotBytes, kLeastSlotBytes, kMostSlotBytes);
  }

  // The most that one message carries in a slot.
  [[nodiscard]] std::uint64_t payload_bytes() const { return slot_bytes_ - kSlotHeaderBytes; }
  // Of the whole arena, the plans' part included.
  [[nodiscard]] std::uint64_t arena_bytes() const { return begin_ + ranks_ * kSlots * slot_bytes_; }
  [[nodiscard]] ConnectionSpec spec(Rank source, Rank destination) const {
    return {
        .source = source,
        .destination = destination,
        .index = kPointToPointIndex,
        .protocol = Protocol::kSlots,
        .slots = kSlots,
        .arena_offset_bytes = begin_ + static_cast<std::uint64_t>(source) * kSlots * slot_bytes_,
        .slot_bytes = slot_bytes_};
  }
  // All slots of a connection, as a ring.
  [[nodiscard]] static PairRing ring_in(const Connection& slots) {
    return make_ring(slots.arena, slots.slots * slots.slot_bytes, &slots.words->consumed);
  }

 private:
  static std::uint64_t whole_lines(std::uint64_t bytes) {
    return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  }

  std::uint64_t ranks_, begin_;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace tutti
