// SPDX-License-Identifier: Apache-2.0
#include "transports/spec_check.hpp"

#include <fmt/core.h>

#include <string_view>

namespace tutti {

// 64-bit sums of 32-bit numbers cannot overflow; the arena is checked by division.
Status check_spec(const ConnectionSpec& spec, const SpecLimits& limits) {
  const auto refuse = [&](std::string_view why) -> Status {
    return make_error(
        Code::kInvalidArgument,
        fmt::format("connection {} -> {} #{}: {}", spec.source, spec.destination, spec.index, why));
  };
  const auto in_range = [&](Rank rank) { return rank >= 0 && rank < limits.ranks; };
  if (!in_range(spec.source) || !in_range(spec.destination)) return refuse("there is no such rank");
  if (spec.source == spec.destination) return refuse("a rank has no connection to itself");
  if (spec.index >= limits.connections_per_pair)
    return refuse("the index is beyond the pair's connections");
  if (spec.slots == 0 || spec.slots > kMaxSlots)
    return refuse("the number of slots is out of range");
  switch (spec.protocol) {
    case Protocol::kFlagged: {
      const std::uint64_t cells = std::uint64_t{spec.slots} * spec.cells_per_slot;
      if (cells == 0 || spec.first_cell + cells > limits.cells_per_pair)
        return refuse("its cells are outside the pair's");
      if (spec.short_slots > kMaxSlots ||
          (spec.index + std::uint64_t{1}) * spec.short_slots > kShortCellsPerPair)
        return refuse("its short cells are outside the pair's");
      return {};
    }
    case Protocol::kSlots:
      if (spec.slot_bytes <= kSlotHeaderBytes || spec.slot_bytes % kCacheLineBytes != 0 ||
          spec.arena_offset_bytes % kCacheLineBytes != 0)
        return refuse("slots must be whole cache lines, more than their header");
      if (spec.slot_bytes > kMaxSlotBytes) return refuse("slots may not be larger than 2 GiB");
      if (spec.arena_offset_bytes > limits.arena_bytes ||
          spec.slot_bytes > (limits.arena_bytes - spec.arena_offset_bytes) / spec.slots)
        return refuse("its slots are outside the receive buffer");
      return {};
    case Protocol::kDirect:
      break;
  }
  return refuse("shared memory has no such protocol");
}

Status check_send(const ConnectionSpec& spec, const SpecLimits& limits, Rank self) {
  TUTTI_TRY(check_spec(spec, limits));
  if (spec.source == self) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("rank {} cannot send as rank {}", self, spec.source));
}

Status check_recv(const ConnectionSpec& spec, const SpecLimits& limits, Rank self) {
  TUTTI_TRY(check_spec(spec, limits));
  if (spec.destination == self) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("rank {} cannot receive as rank {}", self, spec.destination));
}

}  // namespace tutti
