// SPDX-License-Identifier: Apache-2.0
// A rank's inbox: the memory in which its peers' messages land, or a mirror of it at a peer.
//
//   page 0          its owner's
//   page 1 on       PairArea of source rank 0, 1, ..., ranks - 1
//   page aligned    the arena, arena_bytes
//
// All offsets follow from (ranks, arena_bytes), which both ends know from the job. All zero is a
// valid empty inbox. Any thread; nothing here waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "transports/connection.hpp"

namespace tutti {

inline constexpr std::size_t kInboxPageBytes = 4096;  // of the layout; the machine's may be larger
inline constexpr std::uint64_t kMaxArenaBytes = std::uint64_t{1} << 40;

// Holds the words that one source rank writes (the receiver writes `consumed`).
struct PairArea {
  ConnectionWords words[kMaxConnectionsPerPair];
  Cell short_cells[kShortCellsPerPair];
  Cell cells[kCellsPerPair];
};
static_assert(sizeof(PairArea) == 41 * 1024 + 128);

struct InboxLayout {
  std::int32_t ranks = 0;
  std::uint64_t arena_bytes = 0;

  // 0 <= source < ranks: the caller has checked.
  [[nodiscard]] static constexpr std::uint64_t pair_offset_bytes(Rank source) {
    return kInboxPageBytes + static_cast<std::uint64_t>(source) * sizeof(PairArea);
  }
  [[nodiscard]] constexpr std::uint64_t arena_offset_bytes() const {
    const std::uint64_t end = pair_offset_bytes(ranks) + kInboxPageBytes - 1;
    return end - end % kInboxPageBytes;
  }
  [[nodiscard]] constexpr std::uint64_t total_bytes() const {
    return arena_offset_bytes() + arena_bytes;
  }
};

// Rounded up to pages. Error: kInvalidArgument, beyond kMaxArenaBytes.
[[nodiscard]] Result<std::uint64_t> round_arena(std::uint64_t arena_bytes);

// Holds what an end remembers of the connections with one peer in one direction.
struct ConnectionStates {
  ConnectionState of[kMaxConnectionsPerPair];
};

// The end of a connection in the inbox at `base`. The spec has been checked.
[[nodiscard]] Connection place(const ConnectionSpec& spec, std::byte* base,
                               const InboxLayout& layout, ConnectionState* state);
// The same, with its short cells: where both ends map the inbox.
[[nodiscard]] Connection place_shared(const ConnectionSpec& spec, std::byte* base,
                                      const InboxLayout& layout, ConnectionState* state);

// An inbox that no other process maps; a page costs memory once touched.
class PrivateInbox {
 public:
  // Error: kSystemError.
  [[nodiscard]] static Result<PrivateInbox> make(const InboxLayout& layout);

  [[nodiscard]] std::byte* base() const { return memory_.get(); }
  [[nodiscard]] PairArea& pair(Rank source) const {
    return *reinterpret_cast<PairArea*>(base() + InboxLayout::pair_offset_bytes(source));
  }
  [[nodiscard]] const InboxLayout& layout() const { return layout_; }

 private:
  struct Unmap {
    std::uint64_t bytes = 0;
    void operator()(std::byte* base) const;
  };
  PrivateInbox(std::byte* base, const InboxLayout& layout)
      : layout_(layout), memory_(base, Unmap{layout.total_bytes()}) {}

  InboxLayout layout_;
  std::unique_ptr<std::byte, Unmap> memory_;
};

}  // namespace tutti
