// SPDX-License-Identifier: Apache-2.0
// Where a rank's memory on its device lies: what peers write, then what it alone remembers of its
// connections. Offsets in bytes from the segment's start; the same arithmetic for all ranks.
#pragma once

#include <cstdint>

#include "device/job.hpp"

namespace tutti::device {

// The alignment of the parts: the smallest page of a device.
inline constexpr std::uint64_t kAlignment = 4096;

class SegmentLayout {
 public:
  SegmentLayout(std::int32_t ranks, std::uint64_t arena_bytes)
      : ranks_(static_cast<std::uint64_t>(ranks)), arena_bytes_(arena_bytes) {}

  [[nodiscard]] std::uint64_t connection_words(Rank source, std::uint32_t index) const {
    return kAlignment +
           (number(source) * kConnectionsPerPairOnDevice + index) * sizeof(ConnectionWords);
  }
  // Flagged memory from `source`, of one format.
  [[nodiscard]] std::uint64_t cells(Rank source, Messages messages) const {
    const auto format = static_cast<std::uint64_t>(messages) - 1;  // of those that are not slots
    return page(connection_words(static_cast<Rank>(ranks_), 0)) +
           (number(source) * kFormats + format) * kPairBytes;
  }
  [[nodiscard]] std::uint64_t arena() const {
    return page(cells(static_cast<Rank>(ranks_), Messages::kCells));
  }
  // Returns this rank's state of its connection with `peer`.
  [[nodiscard]] std::uint64_t state(Rank peer, std::uint32_t index, bool sender) const {
    return page(arena() + arena_bytes_) +
           ((number(peer) * 2 + (sender ? 1 : 0)) * kConnectionsPerPairOnDevice + index) *
               sizeof(ConnectionState);
  }
  [[nodiscard]] std::uint64_t bytes() const { return state(static_cast<Rank>(ranks_), 0, false); }

 private:
  static constexpr std::uint64_t kFormats = 4;
  static constexpr std::uint64_t kPairBytes = std::uint64_t{kCellsPerPairOnDevice} * kCellBytes;
  static_assert(sizeof(RankWords) <= kAlignment);
  [[nodiscard]] static std::uint64_t number(Rank rank) { return static_cast<std::uint64_t>(rank); }
  [[nodiscard]] static std::uint64_t page(std::uint64_t offset) {
    return (offset + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::uint64_t ranks_;
  std::uint64_t arena_bytes_;
};

}  // namespace tutti::device
