// SPDX-License-Identifier: Apache-2.0
// Moves a step whose messages are packets: every thread waits for the packets that it reads, and
// stores those that it has, with no barrier between.
//
// Kernels of packets have 64 registers a thread, so the work is cut by what is alive at once:
//   move_lines   a thread's lines of all sources, all destinations. It calls nothing. A line that
//                does not come in a few looks ends it: what has been loaded is forgotten
//   await_place  waits for that line, with clock and abort words, and raises faults; then the line
//                is moved from its beginning
// Between them only the place is kept; what is known of a step lies in shared memory. An array that
// is loaded in part is set to zeros where it is declared: otherwise the compiler takes what is not
// loaded for something that a call before has left, and keeps registers for it around the loop that
// calls, for each such function its own.
#pragma once

#include "device/line.hpp"
#include "device/ready.hpp"
#include "kernels/device/reduce_copy.hpp"

namespace tutti::device {

// Up to eight bytes of elements, wherever they lie. The loops are for a chunk's end: they may not
// take the registers of what is common.
[[nodiscard]] TUTTI_HD inline std::uint64_t load_unit(const std::byte* from, std::uint32_t bytes) {
  if (bytes == kUnitBytes && reinterpret_cast<std::uintptr_t>(from) % kUnitBytes == 0)
    return word_at<std::uint64_t>(load_bits<8>(from), 0);
  std::uint64_t unit = 0;
  TUTTI_NO_UNROLL
  for (std::uint32_t i = bytes; i-- > 0;) unit = unit << 8 | load_bits<1>(from + i).words[0];
  return unit;
}
TUTTI_HD inline void store_unit(std::byte* to, std::uint64_t unit, std::uint32_t bytes) {
  if (bytes == kUnitBytes && reinterpret_cast<std::uintptr_t>(to) % kUnitBytes == 0) {
    store_bits<8>(to, bit_cast<Bits<8>>(unit));
    return;
  }
  TUTTI_NO_UNROLL
  for (std::uint32_t i = 0; i < bytes; ++i)
    store_bits<1>(to + i, Bits<4>{{static_cast<std::uint32_t>(unit >> (8 * i)) & 0xff}});
}

// A thread's part of a line, its group of threads that share lines, and how many groups there are.
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD std::uint32_t part_of(const Block& block) {
  return block.thread() % line_shape(format).threads;
}
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD std::uint32_t group_of(const Block& block) {
  return block.thread() / line_shape(format).threads;
}
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD std::uint32_t groups_of(const Block& block) {
  return block.threads() / line_shape(format).threads;
}

// ---- lines -------------------------------------------------------------------------------------

// One thread's share of a chunk. What it needs of an operand lies in shared memory, so that its
// registers hold little but what was loaded.
template <class Fold, PacketFormat format, class Block>
class LineMover {
 public:
  static constexpr LineShape kShape = line_shape(format);
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;

  TUTTI_HD LineMover(Block& block, std::uint32_t chunk) : block_(block), chunk_(chunk) {}

  // Reads a line of all sources and writes it to all destinations. False: some have not come, and
  // nothing is done.
  TUTTI_HD bool move(std::uint32_t line) {
    std::uint64_t units[kUnits] = {};
    if (!reduce(line, units)) return false;
    const std::uint32_t destinations = at().step->destinations;
    TUTTI_NO_UNROLL
    for (std::uint32_t d = 0; d < destinations; ++d) {
      const std::uint64_t epoch = block_.shared().epochs[d];
      if (epoch != 0)
        store_line<format>(block_,
                           [&] { Packets<format>::store(line_of(d, line), part(), epoch, units); });
      else
        store_memory(d, line, units);
    }
    if constexpr (format == PacketFormat::kLl8) clear(line);
    return true;
  }

 private:
  // Those whose loads are under way at once; their order is kept.
  static constexpr std::uint32_t kTogether = kWidensFourfold<Fold> ? 2 : 4;

  [[nodiscard]] TUTTI_HD const Position& at() const { return block_.shared().at; }
  [[nodiscard]] TUTTI_HD const PacketChunk& chunk() const { return block_.shared().chunks[chunk_]; }
  [[nodiscard]] TUTTI_HD std::uint32_t part() const { return part_of<format>(block_); }
  [[nodiscard]] TUTTI_HD std::byte* address(std::uint32_t operand) const {
    return static_cast<std::byte*>(
        block_.shared().addresses[chunk_ * operands_of(*at().step) + operand]);
  }
  [[nodiscard]] TUTTI_HD Word* line_of(std::uint32_t operand, std::uint32_t line) const {
    return reinterpret_cast<Word*>(address(operand) +
                                   std::uint64_t{chunk().first_line + line} * kShape.bytes);
  }
  // This thread's units of a line, counted in the chunk.
  [[nodiscard]] TUTTI_HD std::uint32_t unit_of(std::uint32_t line) const {
    return line * kShape.units + part() * kUnits;
  }
  // The payload bytes of a unit: the epoch's place of LL128 holds none.
  [[nodiscard]] TUTTI_HD std::uint32_t bytes_of(std::uint32_t line, std::uint32_t i) const {
    const std::uint32_t place = (unit_of(line) + i) * kUnitBytes;
    if (part() * kUnits + i >= kShape.units || place >= chunk().bytes) return 0;
    return chunk().bytes - place < kUnitBytes ? chunk().bytes - place : kUnitBytes;
  }

  TUTTI_HD LinePart fetch(std::uint32_t operand, std::uint32_t line) {
    if (block_.shared().epochs[operand] != 0)
      return Packets<format>::fetch(line_of(operand, line), part());
    LinePart fetched{};
    const std::byte* const from = address(operand) + std::uint64_t{unit_of(line)} * kUnitBytes;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i)
      fetched.words[i] = load_unit(from + i * kUnitBytes, bytes_of(line, i));
    return fetched;
  }
  TUTTI_HD void store_memory(std::uint32_t operand, std::uint32_t line,
                             const std::uint64_t (&units)[kUnits]) {
    std::byte* const to = address(operand) + std::uint64_t{unit_of(line)} * kUnitBytes;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i)
      store_unit(to + i * kUnitBytes, units[i], bytes_of(line, i));
  }

  // The parts of up to kTogether sources from `first` on, when all have come. False: some have not.
  TUTTI_HD bool fetch_together(std::uint32_t first, std::uint32_t line,
                               LinePart (&fetched)[kTogether]) {
    const std::uint32_t begin = at().step->destinations + first;
    const std::uint32_t left = at().step->sources - first;
    const auto each = [&](auto&& visit) {
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j)
        if (j < left) visit(begin + j, fetched[j]);
    };
    bool come = true;
    std::uint32_t looks = 0;
    block_.look([&] {
      block_.together([&] {
        each([&](std::uint32_t operand, LinePart& part) { part = fetch(operand, line); });
      });
      come = true;
      each([&](std::uint32_t operand, const LinePart& fetched_part) {
        const std::uint64_t epoch = block_.shared().epochs[operand];
        if (epoch != 0) come = come && Packets<format>::has_come(fetched_part, part(), epoch);
      });
      come = all_of_line<format>(block_, come);
      if (come || ++looks == Block::kLooks) return true;
      block_.pause();
      return false;
    });
    if (!come || kShape.threads == 1) return come;
    block_.together([&] {
      each([&](std::uint32_t operand, LinePart& to) {
        if (block_.shared().epochs[operand] != 0)
          to = Packets<format>::reload(line_of(operand, line), part(), to);
      });
    });
    return true;
  }

  TUTTI_HD bool reduce(std::uint32_t line, std::uint64_t (&units)[kUnits]) {
    const std::uint32_t sources = at().step->sources;
    const std::uint32_t average_over = at().step->finish ? block_.shared().task.average_over : 0;
    const bool folds = sources > 1 || average_over > 1;
    typename Fold::template Accumulator<8> values[kUnits] = {};
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < sources; first += kTogether) {
      LinePart fetched[kTogether] = {};
      if (!fetch_together(first, line, fetched)) return false;
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j) {
        if (first + j >= sources) continue;
        take(first + j, fetched[j], units);
        if (!folds) continue;
        TUTTI_UNROLL
        for (std::uint32_t i = 0; i < kUnits; ++i) {
          if (first + j == 0)
            values[i] = Fold::load(bit_cast<Bits<8>>(units[i]));
          else
            Fold::fold(values[i], bit_cast<Bits<8>>(units[i]));
        }
      }
    }
    if (!folds) return true;
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i)
      units[i] = word_at<std::uint64_t>(Fold::store(values[i], average_over), 0);
    return true;
  }

  // The units of what was fetched.
  TUTTI_HD void take(std::uint32_t source, const LinePart& fetched,
                     std::uint64_t (&units)[kUnits]) {
    if (block_.shared().epochs[at().step->destinations + source] != 0)
      return Packets<format>::payload(fetched, units);
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = fetched.words[i];
  }

  TUTTI_HD void clear(std::uint32_t line) {
    const std::uint32_t begin = at().step->destinations;
    TUTTI_NO_UNROLL
    for (std::uint32_t s = 0; s < at().step->sources; ++s)
      if (block_.shared().epochs[begin + s] != 0) Packets<format>::clear(line_of(begin + s, line));
  }

  Block& block_;
  const std::uint32_t chunk_;
};

// Where a source's message begins; null: it is in memory.
template <class Block>
[[nodiscard]] TUTTI_HD Word* message_of(Block& block, std::uint32_t s) {
  const std::uint32_t operand = block.shared().at.step->destinations + s;
  if (block.shared().epochs[operand] == 0) return nullptr;
  return static_cast<Word*>(block.shared().addresses[operand]);
}
// This thread's part of the first line of a source's message, as far as it has come.
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD LinePart fetch_header(Block& block, std::uint32_t s) {
  if (s >= block.shared().at.step->sources) return {};
  Word* const message = message_of(block, s);
  return message == nullptr ? LinePart{} : Packets<format>::fetch(message, part_of<format>(block));
}
// Has it come, with the signature of this operation?
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD bool header_is_own(Block& block, std::uint32_t s, const LinePart& header) {
  const std::uint64_t epoch = block.shared().epochs[block.shared().at.step->destinations + s];
  if (epoch == 0) return true;
  std::uint64_t units[kUnitsPerThread<format>] = {};
  Packets<format>::payload(header, units);
  const std::uint32_t part = part_of<format>(block);
  const bool own =
      part + 1 != line_shape(format).threads ||
      (Packets<format>::has_come(header, part, epoch) && units[0] == block.shared().task.signature);
  return all_of_line<format>(block, own);
}

// Where a thread is: a line of the messages, less the number of the thread's group; from 0 on. Or
// all lines are moved and the first ones of messages are awaited; or nothing is left.
inline constexpr std::uint32_t kHeaders = 0x7fffffff;
inline constexpr std::uint32_t kAllMoved = 0xffffffff;

// Moves this thread's lines of the chunks that are in shared memory, from `place` on, and looks at
// the first lines of messages, one by each group of threads: they say of which operation a message
// is, and come even if there is no payload to wait for. The signature lies beside the flag, so that
// it is right without a reload. Returns the place of what has not come.
template <class Fold, PacketFormat format, class Block>
TUTTI_HD_COLD std::uint32_t move_lines(Block& block, std::uint32_t place) {
  LinePart header{};
  const std::uint32_t group = group_of<format>(block);
  const auto ask = [&] { header = fetch_header<format>(block, group); };
  if (place == 0)
    block.together(ask);
  else
    ask();  // once more, in the time that was waited for
  TUTTI_NO_UNROLL
  for (std::uint32_t chunk = 0; chunk < block.shared().chunk_count; ++chunk) {
    const PacketChunk& of = block.shared().chunks[chunk];
    const std::uint32_t first = of.first_line;
    TUTTI_NO_UNROLL
    for (std::uint32_t line = group + (place > first ? place - first : 0); line < of.lines;
         line += groups_of<format>(block)) {
      LineMover<Fold, format, Block> mover(block, chunk);
      if (!block.attempt([&] { return mover.move(line); })) return of.first_line + line - group;
    }
  }
  const std::uint32_t sources = block.shared().at.step->sources;
  TUTTI_NO_UNROLL
  for (std::uint32_t s = group; s < sources; s += groups_of<format>(block)) {
    if (s != group) block.together([&] { header = fetch_header<format>(block, s); });
    if (header_is_own<format>(block, s, header)) continue;
    // What was asked before the data came may be old; headers are sent before data.
    block.together([&] { header = fetch_header<format>(block, s); });
    if (!header_is_own<format>(block, s, header)) return kHeaders;
  }
  return kAllMoved;
}

// ---- waiting -----------------------------------------------------------------------------------

// The awaited line of source `s` has not come.
template <class Block>
TUTTI_HD_COLD void raise_late(Block& block, std::uint32_t s, std::uint64_t seen) {
  const Position& at = block.shared().at;
  const std::uint32_t operand = at.step->destinations + s;
  FaultPlace place = place_of(block.shared().view, at, true);
  place.expected = block.shared().epochs[operand];
  place.seen = seen;
  raise(block, Fault::kTimeout, block.shared().view.recvs[at.operands[operand].connection].peer,
        place);
}

// Waits for a line of source `s`; the threads of a line together. False: the rank has stopped.
template <PacketFormat format, class Block>
TUTTI_HD_COLD bool await_line(Block& block, std::uint32_t s, std::uint32_t line) {
  Word* const message = message_of(block, s);
  if (message == nullptr) return true;
  Word* const at = message + std::uint64_t{line} * (line_shape(format).bytes / sizeof(Word));
  Patience patience;
  bool goes_on = true;
  static_cast<void>(block.attempt([&] {
    while (goes_on) {
      const std::uint64_t epoch = block.shared().epochs[block.shared().at.step->destinations + s];
      const LinePart seen = Packets<format>::fetch(at, part_of<format>(block));
      const bool come = Packets<format>::has_come(seen, part_of<format>(block), epoch);
      if (all_of_line<format>(block, come)) break;
      const Patience::Answer answer = patience.wait(block);
      const bool over = answer == Patience::Answer::kOver && !come;
      if (over) raise_late(block, s, seen.words[1]);
      goes_on = all_of_line<format>(block, answer != Patience::Answer::kStopped && !over);
    }
    return false;  // what is loaded takes the time that is waited for
  }));
  return goes_on;
}

// Raises a fault for a foreign signature among the first lines that this thread's group looks at.
// False: there is one.
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD_COLD bool headers_are_own(Block& block) {
  const Position& at = block.shared().at;
  bool own = true;
  for (std::uint32_t s = group_of<format>(block); s < at.step->sources && own;
       s += groups_of<format>(block)) {
    const LinePart header = fetch_header<format>(block, s);
    std::uint64_t units[kUnitsPerThread<format>] = {};
    Packets<format>::payload(header, units);
    if (message_of(block, s) != nullptr && part_of<format>(block) + 1 == line_shape(format).threads)
      own =
          signature_is_own(block, at, at.operands[at.step->destinations + s].connection, units[0]);
  }
  return all_of_line<format>(block, own);
}

// Waits for what has not come at `place`: a line of all sources, or the first lines at which this
// group looks, so that a foreign one is told although another source's never comes. False: the rank
// has stopped.
template <PacketFormat format, class Block>
TUTTI_HD_COLD bool await_place(Block& block, std::uint32_t place) {
  const bool headers = place == kHeaders;
  const std::uint32_t line = headers ? 0 : place + group_of<format>(block);
  const std::uint32_t step = headers ? groups_of<format>(block) : 1;
  for (std::uint32_t s = headers ? group_of<format>(block) : 0; s < block.shared().at.step->sources;
       s += step)
    if (!await_line<format>(block, s, line)) return false;
  return place != kHeaders || headers_are_own<format>(block);
}

// ---- the step ----------------------------------------------------------------------------------

// Sends the first line of every message.
template <PacketFormat format, class Block>
TUTTI_HD_COLD void send_headers(Block& block) {
  const Shared& shared = block.shared();
  const std::uint32_t part = part_of<format>(block);
  std::uint64_t units[kUnitsPerThread<format>] = {};
  if (part + 1 == line_shape(format).threads) units[0] = shared.task.signature;
  for (std::uint32_t d = group_of<format>(block); d < shared.at.step->destinations;
       d += groups_of<format>(block)) {
    const std::uint64_t epoch = shared.epochs[d];
    if (epoch == 0) continue;
    auto* const line = static_cast<Word*>(shared.addresses[d]);
    store_line<format>(block, [&] { Packets<format>::store(line, part, epoch, units); });
  }
}

// Calls `visit` with the format of the task's packets.
template <class Block, class Visit>
TUTTI_HD auto with_format(Block& block, Visit&& visit) {
  switch (format_of(block.shared().task.messages)) {
    case PacketFormat::kLl8:
      return visit.template operator()<PacketFormat::kLl8>();
    case PacketFormat::kLl16:
      return visit.template operator()<PacketFormat::kLl16>();
    default:
      return visit.template operator()<PacketFormat::kLl128>();
  }
}

// The chunks that are in shared memory, whose messages' first lines are sent.
template <class Fold, class Block>
TUTTI_HD void move_chunks(Block& block) {
  bool goes_on = true;
  for (std::uint32_t place = 0; goes_on;) {
    place = with_format(
        block, [&]<PacketFormat format>() { return move_lines<Fold, format>(block, place); });
    if (place == kAllMoved) return;
    goes_on = with_format(block,
                          [&]<PacketFormat format>() { return await_place<format>(block, place); });
  }
}

}  // namespace tutti::device
