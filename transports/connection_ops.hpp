// SPDX-License-Identifier: Apache-2.0
// The life of an operation on a connection: the code of both ends, one source for every transport
// that shares memory, and the very code that the interleaving checker runs. (Small calls that
// repeat have a shorter form of it for single cells, src/exec/host_executor_cells.cpp.)
//
//   begin_operation(c, operation);                      // both ends, empty or not
//   if (can_send(c)) { write send_slot(c); commit(c, signature, bytes); }
//   if (can_recv(c)) { recv_signature(c); read recv_slot(c); release(c); }
//
// Templates, because the checker instantiates them with instrumented atomics (ConnectionLike
// below); everything else uses tutti::Connection. Invariants are those of connection.hpp. In
// addition:
// * A word that the other end writes is compared, never used as an index or a bound. One that no
//   correct peer writes makes state->corrupt true for good; can_send and can_recv are then false.
//   Callers look at is_corrupt() where they wait, not per message.
// * A step that receives and sends should commit first and release last: stores leave a core in
//   order, and the credit is never on the critical path.
// * Every message gives its credit at once. The credit line travels only when the sender runs full
//   (once in `slots` messages), so giving credits in batches would save no transfer.
// One thread at a time per end. Nothing here waits, allocates or locks.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "transports/connection.hpp"

namespace tutti {

// The functions that the operations need of a connection. `cell_of(c, slot)`, `slot_header(c,
// slot)` and `payload_of(c, slot)` are found next to the type; those of Connection stand below.
template <typename C>
concept ConnectionLike = requires(C& c, std::uint32_t slot) {
  cell_of(c, slot)->epoch;
  c.words->produced;
  c.words->consumed;
  { c.state->next } -> std::convertible_to<std::uint64_t>;
  { c.state->seen } -> std::convertible_to<std::uint64_t>;
  slot_header(c, slot);
  payload_of(c, slot);
};

// First line of a slot. Plain words: `produced` publishes them.
struct SlotHeader {
  std::uint64_t signature;
  std::uint64_t bytes;
};
static_assert(sizeof(SlotHeader) <= kSlotHeaderBytes);

[[nodiscard]] TUTTI_HD inline SlotHeader& slot_header(const Connection& c, std::uint32_t slot) {
  return *reinterpret_cast<SlotHeader*>(c.arena + slot * c.slot_bytes);
}

// The first cell of a slot.
[[nodiscard]] TUTTI_HD inline Cell* cell_of(const Connection& c, std::uint32_t slot) {
#if !TUTTI_ON_DEVICE
  if (c.is_short) return c.short_cells + slot;
#endif
  return c.cells + std::size_t{slot} * c.cells_per_slot;
}

[[nodiscard]] TUTTI_HD inline SlotView payload_of(const Connection& c, std::uint32_t slot) {
  if (c.protocol == Protocol::kFlagged)
    return {cell_of(c, slot)->payload, kCellPayloadBytes, kCellBytes};
  return {c.arena + slot * c.slot_bytes + kSlotHeaderBytes, c.slot_bytes - kSlotHeaderBytes,
          c.slot_bytes};
}

// Byte `offset` of a message's payload; what begins there goes on to the end of its segment.
[[nodiscard]] TUTTI_HD inline std::byte* byte_at(const SlotView& view, std::uint64_t offset) {
  return view.base + offset / view.segment_bytes * view.segment_stride +
         offset % view.segment_bytes;
}

// The cells that a message of `bytes` uses: one at least.
[[nodiscard]] TUTTI_HD constexpr std::uint32_t cells_for(std::uint64_t bytes) {
  return bytes == 0
             ? 1
             : static_cast<std::uint32_t>((bytes + kCellPayloadBytes - 1) / kCellPayloadBytes);
}

// The most payload bytes that one message can carry.
[[nodiscard]] TUTTI_HD inline std::uint64_t capacity_bytes(const Connection& c) {
  if (c.protocol != Protocol::kFlagged) return c.slot_bytes - kSlotHeaderBytes;
  return std::uint64_t{c.is_short ? 1 : c.cells_per_slot} * kCellPayloadBytes;
}

// Before begin_operation: do all messages of the operation lie in short cells? Of a connection
// that has none it changes nothing. Messages keep their numbers, whichever cells they lie in, so a
// credit says of either that they are free.
template <ConnectionLike C>
void use_short_cells(C& c, bool yes) {
  if (c.short_cells == nullptr || c.is_short == yes) return;
  c.is_short = yes;
  const std::uint32_t slots = c.slots;
  c.slots = c.other_slots;
  c.other_slots = slots;
}

// The other end has written a word that no correct peer writes. Sticky.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD bool is_corrupt(const C& c) {
  return c.state->corrupt;
}

// Starts operation `operation` (from 1, the same number at both ends, never repeated) on this end.
// The peer may already be sending messages of it, or still be reading those of the one before.
template <ConnectionLike C>
TUTTI_HD void begin_operation(C& c, std::uint64_t operation) {
  c.operation = operation;
  c.first_message = c.state->next;
  if constexpr (requires { c.state->slots; }) c.state->slots = c.slots;
  const bool masked = (c.slots & (c.slots - 1)) == 0;  // for most plans no division
  c.slot =
      static_cast<std::uint32_t>(masked ? c.state->next & (c.slots - 1) : c.state->next % c.slots);
}

namespace connection_detail {

template <ConnectionLike C>
[[nodiscard]] TUTTI_HD std::uint64_t epoch_of_next(const C& c) {
  return make_epoch(c.operation, c.state->next - c.first_message);
}

// slot == next mod slots, without a division per message.
template <ConnectionLike C>
TUTTI_HD void advance(C& c) {
  ++c.state->next;
  c.slot = c.slot + 1 == c.slots ? 0 : c.slot + 1;
}

// Slow path of can_send. `consumed` only grows and never passes what was sent. It may lie more than
// `slots` behind, when the operation before had more slots: that is full, not wrong.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD bool reload_consumed(C& c) {
  auto& state = *c.state;
  // Acquire pairs with release() of the receiver: its reads of the slot come before our writes.
  const std::uint64_t consumed = c.words->consumed.load(std::memory_order_acquire);
  if (consumed - state.seen > state.next - state.seen) {
    state.corrupt = true;
    return false;
  }
  state.seen = consumed;
  return state.next - consumed < c.slots;
}

// Slow path of can_recv. `produced` only grows and is never more than kMaxSlots ahead of us (more
// than `slots`, if the sender is already in an operation with more); it lies behind us when the
// messages in between were flagged.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD bool reload_produced(C& c) {
  auto& state = *c.state;
  // Acquire pairs with commit() of the sender: header and payload come before it.
  const std::uint64_t produced = c.words->produced.load(std::memory_order_acquire);
  if (produced - state.seen > state.next + kMaxSlots - state.seen) {
    state.corrupt = true;
    return false;
  }
  state.seen = produced;
  return produced > state.next;
}

}  // namespace connection_detail

// Sender: is the slot of message state->next free? Reads shared memory only when the cached credit
// says full.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD bool can_send(C& c) {
  if (c.state->corrupt) [[unlikely]]
    return false;
  if (c.state->next - c.state->seen < c.slots) [[likely]]
    return true;
  return connection_detail::reload_consumed(c);
}

// Sender: where to write message state->next. Only after can_send; at most capacity_bytes.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD auto send_slot(const C& c) {
  return payload_of(c, c.slot);
}

namespace connection_detail {

// Returns the used part of a message's slot: whole cells but for the last, or header and payload.
template <ConnectionLike C>
[[nodiscard]] std::uint64_t slot_bytes_used(const C& c, std::uint64_t bytes) {
  return bytes + (c.protocol == Protocol::kFlagged ? cells_for(bytes) * kCellHeaderBytes
                                                   : kSlotHeaderBytes);
}

// Tells a pump of the message that commit() has just written. At most kMaxSlots are without credit,
// so no post is overwritten before it was pumped.
template <ConnectionLike C>
TUTTI_HD void post(const C& c, std::uint64_t bytes) {
#if !TUTTI_ON_DEVICE
  if constexpr (requires { c.state->posts; }) {
    if (c.state->posts == nullptr) [[likely]]
      return;
    std::byte* const first = c.protocol == Protocol::kFlagged
                                 ? reinterpret_cast<std::byte*>(cell_of(c, c.slot))
                                 : reinterpret_cast<std::byte*>(&slot_header(c, c.slot));
    c.state->posts[c.state->next % kMaxSlots] = {first, slot_bytes_used(c, bytes)};
  }
#endif
}

}  // namespace connection_detail

// Sender: makes message state->next of `bytes` payload bytes visible. `bytes` is the plan's number
// (<= capacity_bytes); `signature` lets the receiver prove that both run the same operation.
template <ConnectionLike C>
TUTTI_HD void commit(C& c, std::uint64_t signature, std::uint64_t bytes) {
  if (c.protocol == Protocol::kFlagged) {
    auto* cell = cell_of(c, c.slot);
    const std::uint64_t epoch = connection_detail::epoch_of_next(c);
    // The first cell comes last: it alone says that the whole message is there. The others carry
    // the epoch too, so that every used cell tells to which message its payload belongs.
    for (std::uint32_t i = cells_for(bytes); i-- > 0;) {
      cell[i].signature.store(signature, std::memory_order_relaxed);
      // Release pairs with the acquire in can_recv: payload and signature come before it.
      cell[i].epoch.store(epoch, std::memory_order_release);
    }
  } else {
    auto& header = slot_header(c, c.slot);
    header.signature = signature;
    header.bytes = bytes;
    // Release pairs with the acquire in reload_produced: header and payload come before it.
    c.words->produced.store(c.state->next + 1, std::memory_order_release);
  }
  connection_detail::post(c, bytes);
  connection_detail::advance(c);
}

// A smaller message is copied in less time than it takes to lend it.
inline constexpr std::uint64_t kLeastLentBytes = 16 << 10;
// Can a payload be lent there?
[[nodiscard]] inline bool takes_lent(const Connection& c) {
  return c.state->posts != nullptr && c.protocol == Protocol::kSlots;
}

// Sender, where takes_lent: commit() of a payload that lies at `payload`, where the transport may
// read (Transport::may_lend), and stays as it is until state->taken is greater than this message's
// number, or until Transport::take_back().
inline void commit_lent(Connection& c, std::uint64_t signature, std::uint64_t bytes,
                        const std::byte* payload) {
  Post& post = c.state->posts[c.state->next % kMaxSlots];
  commit(c, signature, bytes);
  post.lent = payload;
}

// Receiver: is message state->next visible, all of it?
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD bool can_recv(C& c) {
  if (c.protocol == Protocol::kFlagged) {
    // Acquire pairs with the release of the same cell in commit. Anything but the one expected
    // epoch means "not yet": stale epochs of other operations and carves never equal it.
    return cell_of(c, c.slot)->epoch.load(std::memory_order_acquire) ==
           connection_detail::epoch_of_next(c);
  }
  if (c.state->corrupt) [[unlikely]]
    return false;
  if (c.state->seen > c.state->next) return true;
  return connection_detail::reload_produced(c);
}

// Receiver: where message state->next lies. Only after can_recv. The plan says how many bytes.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD auto recv_slot(const C& c) {
  return payload_of(c, c.slot);
}

// Receiver: the signature that message state->next came with. Only after can_recv; in the line that
// can_recv or the first payload read brings in anyway.
template <ConnectionLike C>
[[nodiscard]] TUTTI_HD std::uint64_t recv_signature(const C& c) {
  if (c.protocol == Protocol::kFlagged) {
    // Relaxed: ordered by the acquire of the same cell's epoch.
    return cell_of(c, c.slot)->signature.load(std::memory_order_relaxed);
  }
  return slot_header(c, c.slot).signature;
}

// A smaller message is copied in less time than it takes to offer its place.
inline constexpr std::uint64_t kLeastOfferedBytes = 16 << 10;
// Can a message's place be offered there?
[[nodiscard]] inline bool takes_offers(const Connection& c) {
  return c.state->offer != nullptr && c.protocol == Protocol::kSlots;
}

// Receiver, where takes_offers and not can_recv: lets the transport read the payload of message
// state->next straight to `memory`, if that message comes with this signature and so many bytes.
// The transport may write there until the message has been received, or until withdraw_offer() or
// Transport::take_back().
inline void offer_memory(Connection& c, std::uint64_t signature, std::uint64_t bytes,
                         std::byte* memory) {
  *c.state->offer = {
      .memory = memory, .bytes = bytes, .signature = signature, .message = c.state->next};
}

// Receiver, where takes_offers: is the place of message state->next on offer?
[[nodiscard]] inline bool has_offered(const Connection& c) {
  return c.state->offer->memory != nullptr && c.state->offer->message == c.state->next;
}

// Receiver, after can_recv: where the payload of message state->next was read to; null: its slot.
[[nodiscard]] inline std::byte* received_at(const Connection& c) {
  const Offer* const offer = c.state->offer;
  return offer != nullptr && offer->taken_by == c.state->next + 1 ? offer->memory : nullptr;
}

// Receiver, where takes_offers: ends the offer, unless the payload is there or on its way there.
inline void withdraw_offer(Connection& c) {
  Offer& offer = *c.state->offer;
  if (offer.taken_by != offer.message + 1) offer.memory = nullptr;
}

// Receiver: message state->next has been read; its slot is free again.
template <ConnectionLike C>
TUTTI_HD void release(C& c) {
  // Release pairs with the acquire in reload_consumed: our reads of the slot come before it.
  c.words->consumed.store(c.state->next + 1, std::memory_order_release);
  connection_detail::advance(c);
}

}  // namespace tutti
