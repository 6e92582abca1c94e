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
// One source for host and device. On the host one thread stores a whole line: std::atomic has no
// 16 or 128 bytes that are lock-free everywhere, so there the epoch is stored last, with release.
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
  if (format != PacketFormat::kLl128) return {16, 1, 1};
  return {128, 15, TUTTI_ON_DEVICE ? 8 : 1};
}

// Units that one thread holds of a line, and how many of them are payload.
template <PacketFormat format>
inline constexpr std::uint32_t kUnitsPerThread = format == PacketFormat::kLl128
                                                     ? (TUTTI_ON_DEVICE ? 2 : 15)
                                                     : 1;

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

#if TUTTI_ON_DEVICE
struct Pair {
  std::uint64_t low, high;
};
// Sixteen bytes that are seen whole.
__device__ inline Pair load_pair(const Word* from) {
  Pair pair;
  asm volatile(
      "{ .reg .b128 whole;\n\t"
      "ld.relaxed.sys.global.b128 whole, [%2];\n\t"
      "mov.b128 {%0, %1}, whole; }"
      : "=l"(pair.low), "=l"(pair.high)
      : "l"(from)
      : "memory");
  return pair;
}
__device__ inline void store_pair(Word* to, std::uint64_t low, std::uint64_t high) {
  asm volatile(
      "{ .reg .b128 whole;\n\t"
      "mov.b128 whole, {%1, %2};\n\t"
      "st.relaxed.sys.global.b128 [%0], whole; }" ::"l"(to),
      "l"(low), "l"(high)
      : "memory");
}
// The eight threads of this one's LL128 line.
__device__ inline unsigned line_mask(std::uint32_t part) {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return 0xffu << (lane - part);
}
#endif

}  // namespace packet_detail

// Does any of the threads that share a line say so? They ask together.
template <PacketFormat format>
[[nodiscard]] TUTTI_HD bool any_of_line([[maybe_unused]] std::uint32_t part, bool one) {
#if TUTTI_ON_DEVICE
  if constexpr (format == PacketFormat::kLl128)
    return __any_sync(packet_detail::line_mask(part), one) != 0;
#endif
  return one;
}

// One format's lines. `line` is where the line begins, `part` which of its threads asks; all
// threads of a line ask together. `units` are this thread's payload units of it. A template over
// the words for the interleaving checker; everything else uses Word.
//
// fetch() loads this thread's part of a line and looks at nothing, so that the loads of several
// lines can be under way at once; accept() says whether the line had come, and gives its payload.
template <PacketFormat format, class W = Word>
struct Packets;

// What a thread has loaded of a line: all that it holds, the flag too.
template <PacketFormat format>
struct FetchedLine {
  std::uint64_t words[format == PacketFormat::kLl128 && !TUTTI_ON_DEVICE ? 16 : 2];
};

template <PacketFormat format, class W>
[[nodiscard]] TUTTI_HD bool load_line(W* line, std::uint32_t part, std::uint64_t epoch,
                                      std::uint64_t (&units)[kUnitsPerThread<format>]) {
  return Packets<format, W>::accept(line, part, epoch, Packets<format, W>::fetch(line, part),
                                    units);
}

template <class W>
struct Packets<PacketFormat::kLl8, W> {
  using Line = FetchedLine<PacketFormat::kLl8>;
  static TUTTI_HD Line fetch(W* line, std::uint32_t) {
    return {{line[0].load(packet_detail::kLoad), line[1].load(packet_detail::kLoad)}};
  }
  static TUTTI_HD bool accept(W*, std::uint32_t, std::uint64_t epoch, const Line& line,
                              std::uint64_t (&units)[1]) {
    const std::uint64_t flag = packet_detail::flag_of(epoch);
    if (line.words[0] >> 32 != flag || line.words[1] >> 32 != flag) return false;
    units[0] = (line.words[0] & 0xffffffff) | line.words[1] << 32;
    return true;
  }
  static TUTTI_HD void store(W* line, std::uint32_t, std::uint64_t epoch,
                             const std::uint64_t (&units)[1]) {
    const std::uint64_t flag = std::uint64_t{packet_detail::flag_of(epoch)} << 32;
    line[0].store(flag | (units[0] & 0xffffffff), packet_detail::kStore);
    line[1].store(flag | units[0] >> 32, packet_detail::kStore);
  }
  // Relaxed: the credit that follows orders it.
  static TUTTI_HD void clear(W* line, std::uint32_t) {
    line[0].store(0, std::memory_order::relaxed);
    line[1].store(0, std::memory_order::relaxed);
  }
};

template <class W>
struct Packets<PacketFormat::kLl16, W> {
  using Line = FetchedLine<PacketFormat::kLl16>;
  static TUTTI_HD Line fetch(W* line, std::uint32_t) {
#if TUTTI_ON_DEVICE
    const packet_detail::Pair pair = packet_detail::load_pair(line);
    return {{ pair.low, pair.high }};
#else
    // Acquire pairs with the release below: the payload comes before it.
    const std::uint64_t flag = line[1].load(std::memory_order::acquire);
    return {{line[0].load(std::memory_order::relaxed), flag}};
#endif
  }
  static TUTTI_HD bool accept(W*, std::uint32_t, std::uint64_t epoch, const Line& line,
                              std::uint64_t (&units)[1]) {
    units[0] = line.words[0];
    return line.words[1] == epoch;
  }
  static TUTTI_HD void store(W* line, std::uint32_t, std::uint64_t epoch,
                             const std::uint64_t (&units)[1]) {
#if TUTTI_ON_DEVICE
    packet_detail::store_pair(line, units[0], epoch);
#else
    line[0].store(units[0], std::memory_order::relaxed);
    line[1].store(epoch, std::memory_order::release);
#endif
  }
  static TUTTI_HD void clear(W*, std::uint32_t) {}
};

template <class W>
struct Packets<PacketFormat::kLl128, W> {
  static constexpr std::uint32_t kUnits = kUnitsPerThread<PacketFormat::kLl128>;
  using Line = FetchedLine<PacketFormat::kLl128>;
  static TUTTI_HD Line fetch(W* line, [[maybe_unused]] std::uint32_t part) {
#if TUTTI_ON_DEVICE
    const packet_detail::Pair pair = packet_detail::load_pair(line + 2 * part);
    return {{ pair.low, pair.high }};
#else
    Line fetched;
    fetched.words[kUnits] = line[kUnits].load(std::memory_order::acquire);
    for (std::uint32_t i = 0; i < kUnits; ++i)
      fetched.words[i] = line[i].load(std::memory_order::relaxed);
    return fetched;
#endif
  }
  // The eight loads of a line are not one: those of the payload may have been made before the flag
  // came, so they are made once more after it was seen (as NCCL's prims_ll128.h does).
  static TUTTI_HD bool accept([[maybe_unused]] W* line, [[maybe_unused]] std::uint32_t part,
                              std::uint64_t epoch, const Line& fetched,
                              std::uint64_t (&units)[kUnits]) {
#if TUTTI_ON_DEVICE
    // The last of the line's threads holds the epoch: all of them are told.
    const unsigned mask = packet_detail::line_mask(part);
    if (__all_sync(mask, part != 7 || fetched.words[1] == epoch) == 0) return false;
    const packet_detail::Pair pair = packet_detail::load_pair(line + 2 * part);
    units[0] = pair.low;
    units[1] = pair.high;
    return true;
#else
    if (fetched.words[kUnits] != epoch) return false;
    for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = fetched.words[i];
    return true;
#endif
  }
  static TUTTI_HD void store(W* line, std::uint32_t part, std::uint64_t epoch,
                             const std::uint64_t (&units)[kUnits]) {
#if TUTTI_ON_DEVICE
    __syncwarp(packet_detail::line_mask(part));
    packet_detail::store_pair(line + 2 * part, units[0], part == 7 ? epoch : units[1]);
#else
    (void)part;
    for (std::uint32_t i = 0; i < kUnits; ++i) line[i].store(units[i], std::memory_order::relaxed);
    line[kUnits].store(epoch, std::memory_order::release);
#endif
  }
  static TUTTI_HD void clear(W*, std::uint32_t) {}
};

}  // namespace tutti
