// SPDX-License-Identifier: Apache-2.0
// What two ranks tell each other for RDMA: the card that each end of a connection shows over the
// control plane, and the immediate that every message brings. Knows no verbs. Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "transports/inbox.hpp"

namespace tutti::verbs {

inline constexpr std::uint64_t kMagic = 0x3242'5256'4954'5554;  // "TUTIVRB2" in memory
inline constexpr std::uint32_t kMostNumber24 = (1u << 24) - 1;  // queue pairs and PSNs have 24 bits

// What the peer writes besides the arena. All words are absolute and stand for themselves: none of
// them says anything of bytes elsewhere.
struct Returns {
  Word done;                              // encode_done()
  Word consumed[kMaxConnectionsPerPair];  // of this rank's messages, by index
};
static_assert(sizeof(Returns) == 80);

// One per peer. Cells land here, at the offsets that they have in the inbox, and are copied once
// all of them are there: their epoch, which says so, comes first in a cell, and the adapter may
// place it first.
struct alignas(64) Landing {
  Returns returns;                // of the peer
  alignas(64) Returns returning;  // this rank's own, to be written there
  alignas(64) std::byte cells[kCellsPerPair * kCellBytes];
};
static_assert(sizeof(Landing) == 256 + 8192);

enum class LinkLayer : std::uint8_t { kInfiniBand = 1, kEthernet = 2 };

// How to reach one end of a connection, and where to write there. Between equal machines.
struct Card {
  std::uint64_t magic = kMagic;
  std::uint64_t arena_address = 0, arena_bytes = 0;
  std::uint64_t landing_address = 0;  // of the reader's own Landing
  std::uint32_t arena_key = 0, landing_key = 0;
  std::uint32_t queue_pair = 0, first_psn = 0;
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // ibv_mtu: 1 (256 bytes) to 5 (4096)
  LinkLayer link_layer = LinkLayer::kEthernet;
  std::uint8_t grh_required = 0;
  std::array<std::uint8_t, 3> zero{};
  std::array<std::uint8_t, 16> gid{};
};
static_assert(sizeof(Card) == 72);

// Error, without culprit: kRemoteError, in words that say what is wrong with it.
[[nodiscard]] Result<Card> read_card(std::span<const std::byte> bytes, const Card& mine);

// The immediate of a message. Every one counts for its index, and at most kMaxSlots are on their
// way, so counts need few bits.
enum class Kind : std::uint8_t {
  kHello = 0,  // the sender's end is joined, and it will send
  kSlot = 1,   // a slot of the arena, which lies there
  kCells = 2,  // cells of the pair, in the landing
  kBye = 3,    // the sender leaves in order; nothing of it comes after this
};
inline constexpr unsigned kConsumedBits = 8, kDoneBits = 6;
static_assert(kMaxConnectionsPerPair <= 16 && kCellsPerPair == 16);
struct Immediate {
  Kind kind = Kind::kSlot;
  std::uint8_t index = 0;       // of the connection
  std::uint8_t first_cell = 0;  // of the pair's
  std::uint8_t done = 0;        // by the sender: low bits of the last operation, as in Returns
  std::uint8_t consumed = 0;    // by the sender, of the messages of that index that it was sent
  std::uint8_t number = 0;      // of the message: how many of its index there are with it
};
[[nodiscard]] constexpr std::uint32_t encode(const Immediate& it) {
  return static_cast<std::uint32_t>(it.kind) << 30 | std::uint32_t{it.index} << 26 |
         std::uint32_t{it.first_cell} << 22 | (it.done & ((1u << kDoneBits) - 1)) << 16 |
         std::uint32_t{it.consumed} << 8 | it.number;
}
// The index may be one that does not exist.
[[nodiscard]] constexpr Immediate decode(std::uint32_t bits) {
  return {.kind = static_cast<Kind>(bits >> 30),
          .index = static_cast<std::uint8_t>(bits >> 26 & 15),
          .first_cell = static_cast<std::uint8_t>(bits >> 22 & 15),
          .done = static_cast<std::uint8_t>(bits >> 16 & ((1u << kDoneBits) - 1)),
          .consumed = static_cast<std::uint8_t>(bits >> 8),
          .number = static_cast<std::uint8_t>(bits)};
}
// The first count from `last` on that `low` are the `bits` low bits of.
[[nodiscard]] constexpr std::uint64_t next_count(std::uint64_t last, std::uint8_t low,
                                                 unsigned bits) {
  return last + ((low - last) & ((std::uint64_t{1} << bits) - 1));
}
// The same where it is less than half their range later; else `last`. Of credits, which come by
// immediates and by Returns: who has read the Returns first finds an immediate that was sent before
// them late, by what fits in the slots at most.
[[nodiscard]] constexpr std::uint64_t later_count(std::uint64_t last, std::uint8_t low,
                                                  unsigned bits) {
  const std::uint64_t next = next_count(last, low, bits);
  return next - last < std::uint64_t{1} << (bits - 1) ? next : last;
}
static_assert(kMaxSlots < 1u << (kConsumedBits - 1));
// The last operation of which a rank has consumed everything, as its Returns have it: with the
// count of immediates that it had sent before. Empty calls let `done` grow without bound between
// two messages, so only who has taken these may compare it with the bits of the next ones.
inline constexpr unsigned kOperationBits = 40;  // those of make_epoch
[[nodiscard]] constexpr std::uint64_t encode_done(std::uint64_t done, std::uint64_t immediates) {
  return immediates << kOperationBits | (done & ((std::uint64_t{1} << kOperationBits) - 1));
}
// Beyond so many operations since it last told, a rank tells `done` by Returns.
inline constexpr std::uint64_t kMostUntold = 1u << (kDoneBits - 2);

// What has come from one peer, as far as it may touch this rank's inbox. One thread at a time.
class Arrivals {
 public:
  // Makes a message visible that the adapter has said is there, all of it. `bytes`: its length.
  // False: no correct rank sends that.
  [[nodiscard]] bool take(std::uint32_t immediate, std::uint64_t bytes, const Landing& landing,
                          PairArea& pair);
  [[nodiscard]] bool has_left() const { return has_left_; }
  // Of what this rank sent with `index`, what the peer has said to have consumed; `returned`: as
  // its Returns have it. What cannot be is noticed where it is read.
  [[nodiscard]] std::uint64_t consumed(std::size_t index, std::uint64_t returned) {
    return consumed_[index] = std::max(consumed_[index], returned);
  }
  // The last operation of which the peer has said to have consumed everything, never more;
  // `returned`: the same. It counts once the immediates that were sent before it have been taken.
  [[nodiscard]] std::uint64_t done(std::uint64_t returned);

 private:
  std::array<std::uint64_t, kMaxConnectionsPerPair> messages_{}, consumed_{};  // by index
  std::uint64_t done_ = 0;
  std::uint64_t taken_ = 0;  // immediates
  bool greeted_ = false, has_left_ = false;
};

}  // namespace tutti::verbs
