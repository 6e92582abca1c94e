// SPDX-License-Identifier: Apache-2.0
// Packets: flagged messages in which payload and epoch are stored together, by many threads at
// once.
//
// A cell (connection.hpp) has one epoch for 496 bytes, so its sender needs a barrier among its
// threads before that epoch. A packet has one of its own: every thread stores what it has, every
// reader waits for its own packets only, and a small message costs no barrier and no fence. The
// price is space. Formats, as NCCL names them:
//   LL8     8 bytes, {4 of payload, 4 of flag}, two of them a line; needs 8-byte stores that are
//           seen whole, which every fabric has. LL16 carries as much payload and clears nothing, so
//           it is for a fabric that cuts 16-byte stores, like PCIe.
//   LL16    16 bytes, {8 of payload, epoch}: 16-byte stores that are seen whole (PTX ISA, "ld" and
//           "st" of .b128, sm_70 and later).
//   LL128   128 bytes, {120 of payload, epoch}, stored by eight threads of a warp in one
//           instruction. That such a line is seen whole is a property of NVLink and of a GPU's own
//           memory, not of the memory model: a transport offers it where it knows that.
//
// A message is lines. The first carries the operation's signature, payload begins with the second.
// Invariants:
// * A line's epoch is written with, or after, its payload. Reading it with acquire, or in one load
//   with the payload, gives the payload.
// * Epochs never repeat in a line (make_epoch). LL8 has room for 32 bits only: its reader clears a
//   line before it gives the credit, so that a line never holds an old flag.
// * Memory of one format never holds another's.
// * A message carries order: what its sender did before comes before what its receiver does after.
//   On the host every line is therefore stored with release and loaded with acquire (all but LL8's
//   would need it anyway). Device code is relaxed there, since a fence per line costs more than the
//   line: a packet orders its own payload, and what its value was computed from (a buffer that was
//   read for it may be overwritten after it has come). So where packets run all that a replica does
//   is one block's, whose barriers order the rest (src/device/image.cpp).
// * Credits are those of any connection: the line may be written again once they are back.
// A thread holds 16 bytes of a line, on the host as on a device; a block (src/device/position.hpp)
// gives the votes and the common store of the threads that share an LL128 line. std::atomic has no
// 16 bytes that are lock-free everywhere: on the host the second word is stored last, with release.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/word.hpp"

namespace tutti {

enum class PacketFormat : std::uint8_t { kLl8, kLl16, kLl128 };

inline constexpr std::uint32_t kUnitBytes = 8;  // payload comes in units of eight bytes

// The shape of one line.
struct LineShape {
  std::uint32_t bytes;    // in memory
  std::uint32_t units;    // of payload
  std::uint32_t threads;  // that store or load it together: a part each
};

[[nodiscard]] TUTTI_HD constexpr LineShape line_shape(PacketFormat format) {
  if (format == PacketFormat::kLl128) return {128, 15, 8};
  return {16, 1, 1};
}

// Units that one thread holds of a line; the last thread of an LL128 line has the epoch in place of
// its second.
template <PacketFormat format>
inline constexpr std::uint32_t kUnitsPerThread = format == PacketFormat::kLl128 ? 2 : 1;

// Lines of a message of so many bytes, its first included.
[[nodiscard]] TUTTI_HD constexpr std::uint64_t lines_for(PacketFormat format, std::uint64_t bytes) {
  const std::uint64_t payload = std::uint64_t{line_shape(format).units} * kUnitBytes;
  return 1 + (bytes + payload - 1) / payload;
}

// Payload bytes that fit in a slot of `slot_bytes`, where each of `chunks` begins a line of its
// own.
[[nodiscard]] TUTTI_HD constexpr std::uint64_t packet_capacity(PacketFormat format,
                                                               std::uint64_t slot_bytes,
                                                               std::uint32_t chunks) {
  const LineShape shape = line_shape(format);
  const std::uint64_t lines = slot_bytes / shape.bytes;
  if (lines <= 1) return 0;
  return (lines - 1) / chunks * chunks * shape.units * kUnitBytes;
}

namespace packet_detail {

// LL8: payload and flag are one word, so that only the order of other memory asks for more.
inline constexpr auto kLoad =
    TUTTI_ON_DEVICE ? std::memory_order::relaxed : std::memory_order::acquire;
inline constexpr auto kStore =
    TUTTI_ON_DEVICE ? std::memory_order::relaxed : std::memory_order::release;

// LL8: never 0, which is what a cleared line holds.
[[nodiscard]] TUTTI_HD constexpr std::uint32_t flag_of(std::uint64_t epoch) {
  const auto low = static_cast<std::uint32_t>(epoch ^ (epoch >> 32));
  return low == 0 ? 1 : low;
}

}  // namespace packet_detail

// A thread's part of a line: payload and flags as they lie in memory.
struct LinePart {
  std::uint64_t words[2];
};

namespace packet_detail {

// Sixteen bytes of which the second word is never seen without the first: on a device both at once.
template <class W>
[[nodiscard]] TUTTI_HD LinePart load_part(const W* from) {
#if TUTTI_ON_DEVICE
  LinePart part;
  asm volatile(
      "{ .reg .b128 whole;\n\t"
      "ld.relaxed.sys.global.b128 whole, [%2];\n\t"
      "mov.b128 {%0, %1}, whole; }"
      : "=l"(part.words[0]), "=l"(part.words[1])
      : "l"(from)
      : "memory");
  return part;
#else
  // Acquire pairs with the release below: the first word comes before it.
  const std::uint64_t second = from[1].load(std::memory_order::acquire);
  return {{from[0].load(std::memory_order::relaxed), second}};
#endif
}
template <class W>
TUTTI_HD void store_part(W* to, std::uint64_t first, std::uint64_t second) {
#if TUTTI_ON_DEVICE
  asm volatile(
      "{ .reg .b128 whole;\n\t"
      "mov.b128 whole, {%1, %2};\n\t"
      "st.relaxed.sys.global.b128 [%0], whole; }" ::"l"(to),
      "l"(first), "l"(second)
      : "memory");
#else
  to[0].store(first, std::memory_order::relaxed);
  to[1].store(second, std::memory_order::release);
#endif
}

}  // namespace packet_detail

// One format's lines. `line` is where the line begins, `part` which of its threads asks; `units`
// are this thread's payload units of it. A template over the words for the interleaving checker;
// everything else uses Word.
//   fetch     loads this thread's part and looks at nothing, so that the loads of several lines can
//             be under way at once
//   has_come  does that part show the message's line? The line has come if all of its parts do.
//   reload    the part of a line that has come. The eight loads of an LL128 line are not one: those
//             of the payload may have been made before the flag came, so they are made once more
//             after all threads know of it (as NCCL's prims_ll128.h does).
//   payload   this thread's units of a line that has come
//   store     stores this thread's part. Of an LL128 line all threads do it together (line_store of
//             a block): whoever sees the flag then sees all payload, by the next load at the
//             latest.
//   clear     forgets a line before its credit is given
template <PacketFormat format, class W = Word>
struct Packets;

template <class W>
struct Packets<PacketFormat::kLl8, W> {
  static TUTTI_HD LinePart fetch(W* line, std::uint32_t) {
    return {{line[0].load(packet_detail::kLoad), line[1].load(packet_detail::kLoad)}};
  }
  static TUTTI_HD bool has_come(const LinePart& fetched, std::uint32_t, std::uint64_t epoch) {
    const std::uint64_t flag = packet_detail::flag_of(epoch);
    return fetched.words[0] >> 32 == flag && fetched.words[1] >> 32 == flag;
  }
  static TUTTI_HD LinePart reload(W*, std::uint32_t, const LinePart& fetched) { return fetched; }
  static TUTTI_HD void payload(const LinePart& fetched, std::uint64_t (&units)[1]) {
    units[0] = (fetched.words[0] & 0xffffffff) | fetched.words[1] << 32;
  }
  static TUTTI_HD void store(W* line, std::uint32_t, std::uint64_t epoch,
                             const std::uint64_t (&units)[1]) {
    const std::uint64_t flag = std::uint64_t{packet_detail::flag_of(epoch)} << 32;
    line[0].store(flag | (units[0] & 0xffffffff), packet_detail::kStore);
    line[1].store(flag | units[0] >> 32, packet_detail::kStore);
  }
  // Relaxed: the credit that follows orders it.
  static TUTTI_HD void clear(W* line) {
    line[0].store(0, std::memory_order::relaxed);
    line[1].store(0, std::memory_order::relaxed);
  }
};

template <class W>
struct Packets<PacketFormat::kLl16, W> {
  static TUTTI_HD LinePart fetch(W* line, std::uint32_t) { return packet_detail::load_part(line); }
  static TUTTI_HD bool has_come(const LinePart& fetched, std::uint32_t, std::uint64_t epoch) {
    return fetched.words[1] == epoch;
  }
  static TUTTI_HD LinePart reload(W*, std::uint32_t, const LinePart& fetched) { return fetched; }
  static TUTTI_HD void payload(const LinePart& fetched, std::uint64_t (&units)[1]) {
    units[0] = fetched.words[0];
  }
  static TUTTI_HD void store(W* line, std::uint32_t, std::uint64_t epoch,
                             const std::uint64_t (&units)[1]) {
    packet_detail::store_part(line, units[0], epoch);
  }
  static TUTTI_HD void clear(W*) {}
};

template <class W>
struct Packets<PacketFormat::kLl128, W> {
  static TUTTI_HD LinePart fetch(W* line, std::uint32_t part) {
    return packet_detail::load_part(line + 2 * part);
  }
  // The last of the line's threads holds the epoch.
  static TUTTI_HD bool has_come(const LinePart& fetched, std::uint32_t part, std::uint64_t epoch) {
    return part != kLast || fetched.words[1] == epoch;
  }
  static TUTTI_HD LinePart reload(W* line, std::uint32_t part, const LinePart&) {
    return fetch(line, part);
  }
  static TUTTI_HD void payload(const LinePart& fetched, std::uint64_t (&units)[2]) {
    units[0] = fetched.words[0];
    units[1] = fetched.words[1];
  }
  static TUTTI_HD void store(W* line, std::uint32_t part, std::uint64_t epoch,
                             const std::uint64_t (&units)[2]) {
    packet_detail::store_part(line + 2 * part, units[0], part == kLast ? epoch : units[1]);
  }
  static TUTTI_HD void clear(W*) {}

 private:
  static constexpr std::uint32_t kLast = line_shape(PacketFormat::kLl128).threads - 1;
};

}  // namespace tutti
