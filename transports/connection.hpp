// SPDX-License-Identifier: Apache-2.0
// A connection: an ordered, bounded stream of messages from one rank to another, as plain data.
//
// One source for every transport that shares memory. The sender writes a slot and then makes it
// visible; the receiver reads it and then returns the credit. Invariants:
// * Message numbers are absolute: the k-th message ever of this (pair, index) is number k, at both
//   ends, across operations. Slot of message k = k mod slots.
// * `consumed` is written by the receiver only, the visibility word by the sender only.
// * Visible means all bytes visible (release/acquire on the word).
// * The sender writes slot k only if k - consumed < slots. `consumed` is cached and re-read only
//   when the cached value says full.
// * Both ends take slots, strides and offsets from the plan, never from memory a peer can write.
//
// Flagged: a message is cells of 512 bytes: {epoch, signature, 496 bytes}. The epoch is the last
//   word written and lies in the payload's first line: one coherence transfer for up to 48 bytes.
//   Flag memory never holds another format; epochs never repeat in a cell (see make_epoch).
//   Where the ends share memory, an operation of short messages, of one cell each, uses cells of
//   their own ("short cells"), of which a connection has many: so who sends one way runs ahead, and
//   ranks that share a core change seldom. Both ends know the operation's messages, and so its
//   cells.
// Slots: a message is one slot in the receiver's inbox arena, {signature, bytes, pad to 64 bytes,
//   payload}; its number is published in a line of its own.
// One thread at a time per end. Nothing here allocates, locks or waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "base/word.hpp"

namespace tutti {

enum class Protocol : std::uint8_t { kFlagged, kSlots, kDirect };
[[nodiscard]] const char* name_of(Protocol protocol);

inline constexpr std::size_t kCellBytes = 512;
inline constexpr std::size_t kCellHeaderBytes = 16;
inline constexpr std::size_t kCellPayloadBytes = kCellBytes - kCellHeaderBytes;
inline constexpr std::size_t kCellsPerPair = 16;         // 8 KiB per ordered pair
inline constexpr std::uint32_t kShortCellsPerPair = 64;  // 32 KiB more per ordered pair
inline constexpr std::size_t kSlotHeaderBytes = 64;
// Connections of an ordered pair: those that plans share out, and one for sends and receives.
inline constexpr std::uint32_t kPlanConnectionsPerPair = 8;
inline constexpr std::uint32_t kPointToPointIndex = kPlanConnectionsPerPair;
inline constexpr std::uint32_t kMaxConnectionsPerPair = kPlanConnectionsPerPair + 1;
inline constexpr std::uint32_t kMaxSlots = 64;  // per connection; also how far ahead a peer may be
static_assert(kShortCellsPerPair <= kMaxSlots);

struct Cell {
  Word epoch;
  Word signature;
  std::byte payload[kCellPayloadBytes];
};
static_assert(sizeof(Cell) == kCellBytes);

// Says where one plan puts one connection. Same at both ends, on all ranks, by construction.
struct ConnectionSpec {
  Rank source = kNoRank;
  Rank destination = kNoRank;
  std::uint32_t index = 0;  // among the pair's connections, < kMaxConnectionsPerPair
  Protocol protocol = Protocol::kFlagged;
  std::uint32_t slots = 2;
  // kFlagged: cells [first_cell, first_cell + slots*cells_per_slot) of the pair's kCellsPerPair.
  std::uint32_t first_cell = 0;
  std::uint32_t cells_per_slot = 1;
  // kFlagged: short cells [index*short_slots, (index+1)*short_slots) of the pair's; 0: none.
  std::uint32_t short_slots = 0;
  // kSlots: slots of slot_bytes (header included) from arena_offset_bytes in the receiver's inbox.
  // kFlagged: slot_bytes are those of the slot's cells.
  std::uint64_t arena_offset_bytes = 0;
  std::uint64_t slot_bytes = 0;
};

// The control words of one (ordered pair, index); lives in the receiver's segment and persists
// across plans.
struct ConnectionWords {
  alignas(64) Word produced;  // sender: messages made visible (kSlots)
  alignas(64) Word consumed;  // receiver: messages whose slots are free again
};
static_assert(sizeof(ConnectionWords) == 128);

// A committed message, for the transport that pumps it: where its slot lies and how many bytes of
// it count, headers included.
struct Post {
  std::byte* first = nullptr;
  std::uint64_t bytes = 0;
  const std::byte* lent = nullptr;  // where the payload lies instead of in the slot; null: there
};

// Where a receiver wants the payload of message `message`, for a transport that can read it there
// instead of into its slot. One thread runs the receiver and the transport.
struct Offer {
  std::byte* memory = nullptr;  // null: nothing is offered
  std::uint64_t bytes = 0, signature = 0, message = 0;
  // The transport's: the number, plus one, of the message whose payload goes to `memory`, and where
  // in its slot that payload would have gone.
  std::uint64_t taken_by = 0;
  std::byte* in_slot = nullptr;
};

// Holds what an end remembers of a (peer, index, direction) across plans. Owned by the transport,
// one object per end, address stable until close().
struct alignas(64) ConnectionState {
  std::uint64_t next = 0;   // messages sent (or consumed) so far, absolute
  std::uint64_t seen = 0;   // cached counter of the other end
  bool corrupt = false;     // the other end wrote a counter that cannot be; sticky
  std::uint32_t slots = 0;  // of the plan that had it last, from begin_operation on
  Post* posts = nullptr;    // of message k at k mod kMaxSlots; null where the connection is shared
  std::uint64_t taken = 0;  // messages whose lent payload the transport needs no more: all below it
  Offer* offer = nullptr;   // receiver; null where the transport takes none
};

// One end of a connection as one plan sees it.
struct Connection {
  Protocol protocol = Protocol::kFlagged;
  std::uint32_t slots = 0;
  std::uint32_t cells_per_slot = 0;
  std::uint64_t slot_bytes = 0;
  Cell* cells = nullptr;       // kFlagged: first cell
  std::byte* arena = nullptr;  // kSlots: first slot
  // kFlagged: slots of one cell each, in the place of `cells` while is_short; null: it has none.
  // The number of those that are not in use is other_slots.
  Cell* short_cells = nullptr;
  std::uint32_t other_slots = 0;
  bool is_short = false;
  ConnectionWords* words = nullptr;
  ConnectionState* state = nullptr;
  std::uint64_t operation = 0;      // set by begin_operation
  std::uint64_t first_message = 0;  // state->next at begin_operation
  std::uint32_t slot = 0;           // state->next mod slots, from begin_operation on
};

// Says where a message's payload lies: pieces of segment_bytes, segment_stride apart.
struct SlotView {
  std::byte* base = nullptr;
  std::size_t segment_bytes = 0;
  std::size_t segment_stride = 0;
};

// The life of an operation on a connection; inline in connection_ops.hpp:
//   void use_short_cells(Connection&, bool);  // of its messages; the same at both ends
//   void begin_operation(Connection&, std::uint64_t operation);
//   sender:   bool can_send(Connection&);              // a slot is free (may re-read `consumed`)
//             SlotView send_slot(const Connection&);    // where to write message state->next
//             void commit(Connection&, std::uint64_t signature, std::uint64_t bytes);  // visible
//             void commit_lent(Connection&, signature, bytes, payload);  // without a copy
//   receiver: bool can_recv(Connection&);              // message state->next is visible
//             SlotView recv_slot(const Connection&);
//             std::uint64_t recv_signature(const Connection&);
//             void release(Connection&);               // the slot is free again
//             void offer_memory(Connection&, signature, bytes, memory);  // for its payload
//   both:     bool is_corrupt(const Connection&);      // look where you wait, not per message

// Epochs: unique for a cell over the communicator's life, because a cell belongs to one connection
// within an operation and an operation's number never repeats. 2^40 operations of 2^24 messages.
[[nodiscard]] TUTTI_HD inline std::uint64_t make_epoch(std::uint64_t operation,
                                                       std::uint64_t message) {
  return (operation << 24) | (message + 1);
}

}  // namespace tutti
