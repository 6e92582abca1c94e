// SPDX-License-Identifier: Apache-2.0
// Sends and receives of an ordered pair of ranks that share memory, as plain data and the code of
// both ends: a ring of cells, one for each message, and a ring of bytes for payloads that do not
// fit into a cell. A message of up to 48 bytes is one line: one coherence transfer.
//
//   if (can_send(r, bytes)) { write send_place(r, bytes); commit(r, signature, bytes); }
//   if (can_recv(r)) { recv_signature(r); read recv_place(r, bytes); release(r, bytes); }
//
// Invariants:
// * Message numbers are absolute. Cell of message k = k mod cells, a power of two; its word
//   `number`, the last that is written, is k + 1, and that word never holds anything else. So a
//   cell says of which message it is, and no other word is published.
// * Where a payload lies follows from the sizes of all messages before, which both ends know from
//   their calls: a receiver compares the signature, which has the count, before it looks for the
//   payload.
// * `consumed` is the receiver's: all messages below it have been read. The sender reads it only
//   where the cells or the bytes that it knows to be free are not enough. A word that no correct
//   peer writes there makes `corrupt` true for good.
// * A message has at most a quarter of the bytes, so that one fits whenever all before are read.
// Templates, because the interleaving checker instantiates them with instrumented words
// (PairRingLike); everything else uses PairRing. One thread at a time per end. Nothing here waits,
// allocates or locks.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "base/word.hpp"

namespace tutti {

inline constexpr std::uint64_t kRingCellBytes = 576, kRingCellPayloadBytes = kRingCellBytes - 16;

struct alignas(kCacheLineBytes) RingCell {
  Word number;
  std::uint64_t signature;  // plain: `number` publishes it
  std::byte payload[kRingCellPayloadBytes];
};
static_assert(sizeof(RingCell) == kRingCellBytes);

inline constexpr std::uint64_t kMostRingCells = 16;

// What an end remembers.
struct RingState {
  std::uint64_t next = 0;   // messages sent (or received) so far
  std::uint64_t bytes = 0;  // of the ring of bytes, so far, with what was left free at its end
  std::uint64_t lap = 0;    // where in these bytes the ring began the last time
  // Of the sender: messages known to be read, the bytes up to them, and up to each message.
  std::uint64_t seen = 0, freed = 0;
  std::array<std::uint64_t, kMostRingCells> ends{};
  bool corrupt = false;
};

// One end.
struct PairRing {
  RingCell* cells = nullptr;
  std::uint64_t cell_count = 0;
  std::byte* memory = nullptr;  // the ring of bytes
  std::uint64_t memory_bytes = 0;
  Word* consumed = nullptr;
  RingState state = {};

  [[nodiscard]] RingCell& cell(std::uint64_t message) const {
    return cells[message & (cell_count - 1)];
  }
  [[nodiscard]] std::byte* payload_of(RingCell& cell) const { return cell.payload; }
  [[nodiscard]] std::byte* payload_at(std::uint64_t offset) const { return memory + offset; }
  // The most that one message carries.
  [[nodiscard]] std::uint64_t message_bytes() const {
    return memory_bytes / 4 / kCacheLineBytes * kCacheLineBytes;
  }
};

// A ring in memory of its own: at most half of it are cells, and two at least.
[[nodiscard]] inline PairRing make_ring(std::byte* memory, std::uint64_t bytes, Word* consumed) {
  std::uint64_t cells = kMostRingCells;
  while (cells > 2 && cells * kRingCellBytes > bytes / 2) cells /= 2;
  const std::uint64_t cells_bytes = cells * kRingCellBytes;
  return {.cells = reinterpret_cast<RingCell*>(memory),
          .cell_count = cells,
          .memory = memory + cells_bytes,
          .memory_bytes = bytes - cells_bytes,
          .consumed = consumed};
}

template <typename R>
concept PairRingLike = requires(R& r, std::uint64_t number) {
  { r.cell_count } -> std::convertible_to<std::uint64_t>;
  { r.memory_bytes } -> std::convertible_to<std::uint64_t>;
  r.cell(number).number;
  r.cell(number).signature;
  r.payload_of(r.cell(number));
  r.payload_at(number);
  r.consumed;
  { r.state.next } -> std::convertible_to<std::uint64_t>;
};

template <PairRingLike R>
[[nodiscard]] bool is_corrupt(const R& r) {
  return r.state.corrupt;
}

namespace ring_detail {

// Where the next payload lies among all bytes so far: whole lines in one piece.
struct Piece {
  std::uint64_t begin, end, lap;
};
template <PairRingLike R>
[[nodiscard]] Piece piece_of(const R& r, std::uint64_t bytes) {
  const auto& state = r.state;
  if (bytes <= kRingCellPayloadBytes) return {state.bytes, state.bytes, state.lap};
  const std::uint64_t whole = (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  const bool fits = state.bytes - state.lap + whole <= r.memory_bytes;
  const std::uint64_t lap = fits ? state.lap : state.lap + r.memory_bytes;
  const std::uint64_t begin = fits ? state.bytes : lap;
  return {begin, begin + whole, lap};
}

template <PairRingLike R>
[[nodiscard]] bool has_room(const R& r, std::uint64_t bytes) {
  return r.state.next - r.state.seen < r.cell_count &&
         piece_of(r, bytes).end - r.state.freed <= r.memory_bytes;
}

template <PairRingLike R>
[[nodiscard]] auto place_of_next(const R& r, std::uint64_t bytes) {
  if (bytes <= kRingCellPayloadBytes) return r.payload_of(r.cell(r.state.next));
  const Piece piece = piece_of(r, bytes);
  return r.payload_at(piece.begin - piece.lap);
}

template <PairRingLike R>
void advance(R& r, std::uint64_t bytes) {
  const Piece piece = piece_of(r, bytes);
  r.state.bytes = piece.end;
  r.state.lap = piece.lap;
  ++r.state.next;
}

// Slow path of can_send. `consumed` only grows and never passes what was sent.
template <PairRingLike R>
[[nodiscard]] bool reload_consumed(R& r, std::uint64_t bytes) {
  auto& state = r.state;
  // Acquire pairs with release() of the receiver: its reads come before our writes.
  const std::uint64_t consumed = r.consumed->load(std::memory_order_acquire);
  if (consumed - state.seen > state.next - state.seen) {
    state.corrupt = true;
    return false;
  }
  if (consumed == state.seen) return false;
  state.seen = consumed;
  state.freed = state.ends[(consumed - 1) % kMostRingCells];
  return has_room(r, bytes);
}

}  // namespace ring_detail

// Sender: is there room for a message of so many bytes?
template <PairRingLike R>
[[nodiscard]] bool can_send(R& r, std::uint64_t bytes) {
  if (r.state.corrupt) [[unlikely]]
    return false;
  return ring_detail::has_room(r, bytes) || ring_detail::reload_consumed(r, bytes);
}

// Sender: where to write its payload. Only after can_send.
template <PairRingLike R>
[[nodiscard]] auto send_place(const R& r, std::uint64_t bytes) {
  return ring_detail::place_of_next(r, bytes);
}

// Sender: makes it visible.
template <PairRingLike R>
void commit(R& r, std::uint64_t signature, std::uint64_t bytes) {
  const std::uint64_t message = r.state.next;
  auto& cell = r.cell(message);
  cell.signature = signature;
  // Release pairs with the acquire in can_recv: signature and payload come before it.
  cell.number.store(message + 1, std::memory_order_release);
  ring_detail::advance(r, bytes);
  r.state.ends[message % kMostRingCells] = r.state.bytes;
}

// Receiver: is the next message visible, all of it?
template <PairRingLike R>
[[nodiscard]] bool can_recv(const R& r) {
  // Acquire pairs with the release in commit.
  return r.cell(r.state.next).number.load(std::memory_order_acquire) == r.state.next + 1;
}

// Receiver: the signature that it came with. Only after can_recv.
template <PairRingLike R>
[[nodiscard]] std::uint64_t recv_signature(const R& r) {
  return r.cell(r.state.next).signature;
}

// Receiver: where its payload lies. Only after can_recv, with the sender's number of bytes.
template <PairRingLike R>
[[nodiscard]] auto recv_place(const R& r, std::uint64_t bytes) {
  return ring_detail::place_of_next(r, bytes);
}

// Receiver: it has been read.
template <PairRingLike R>
void release(R& r, std::uint64_t bytes) {
  // Release pairs with the acquire in reload_consumed: our reads come before it.
  r.consumed->store(r.state.next + 1, std::memory_order_release);
  ring_detail::advance(r, bytes);
}

}  // namespace tutti
