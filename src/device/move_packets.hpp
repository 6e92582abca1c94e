// SPDX-License-Identifier: Apache-2.0
// Moves a step whose messages are packets: every thread waits for the packets that it reads, and
// stores those that it has, with no barrier between.
#pragma once

#include "device/line.hpp"
#include "device/ready.hpp"
#include "kernels/device/reduce_copy.hpp"

namespace tutti::device {

// Up to eight bytes of elements, wherever they lie. The loops are for a message's end: they may not
// take the registers of what is common.
[[nodiscard]] TUTTI_HD inline std::uint64_t load_unit(const std::byte* from, std::uint64_t bytes) {
  if (bytes >= kUnitBytes && reinterpret_cast<std::uintptr_t>(from) % kUnitBytes == 0)
    return word_at<std::uint64_t>(load_bits<8>(from), 0);
  std::uint64_t unit = 0;
  TUTTI_NO_UNROLL
  for (auto i = static_cast<std::uint32_t>(least(bytes, kUnitBytes)); i-- > 0;)
    unit = unit << 8 | load_bits<1>(from + i).words[0];
  return unit;
}
TUTTI_HD inline void store_unit(std::byte* to, std::uint64_t unit, std::uint64_t bytes) {
  if (bytes >= kUnitBytes && reinterpret_cast<std::uintptr_t>(to) % kUnitBytes == 0) {
    store_bits<8>(to, bit_cast<Bits<8>>(unit));
    return;
  }
  const auto count = static_cast<std::uint32_t>(least(bytes, kUnitBytes));
  TUTTI_NO_UNROLL
  for (std::uint32_t i = 0; i < count; ++i)
    store_bits<1>(to + i, Bits<4>{{static_cast<std::uint32_t>(unit >> (8 * i)) & 0xff}});
}

// Raises a fault for the first source of the step whose line of this number has not come. False:
// all have. One thread, by its part of each line.
template <PacketFormat format, class Block>
TUTTI_HD_COLD bool raise_late(Block& block, std::uint64_t line) {
  constexpr LineShape kShape = line_shape(format);
  const Position& at = block.shared().at;
  const std::uint32_t part = block.thread() % kShape.threads;
  for (std::uint32_t s = 0; s < at.step->sources; ++s) {
    const Operand& source = at.operands[at.step->destinations + s];
    if (source.kind != OperandKind::kRecv) continue;
    const End& end = block.shared().view.recvs[source.connection];
    const std::uint64_t epoch = connection_detail::epoch_of_next(end);
    const LinePart seen =
        Packets<format>::fetch(lines_of(end) + line * (kShape.bytes / sizeof(Word)), part);
    if (Packets<format>::has_come(seen, part, epoch)) continue;
    FaultPlace place = place_of(block.shared().view, at, true);
    place.expected = epoch;
    place.seen = seen.words[1];
    raise(block, Fault::kTimeout, end.peer, place);
    return true;
  }
  return false;
}

// One thread's share of a step.
template <class Fold, PacketFormat format, class Block>
class PacketMover {
 public:
  static constexpr LineShape kShape = line_shape(format);
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;

  explicit TUTTI_HD PacketMover(Block& block) : block_(block) {}

  // Sends the first line of every message of the step, and begins to load those that it receives.
  TUTTI_HD void open() {
    std::uint64_t units[kUnits] = {};
    if (last_part()) units[0] = block_.shared().task.signature;
    for (std::uint32_t d = group(); d < at().step->destinations; d += groups()) {
      if (at().operands[d].kind != OperandKind::kSend) continue;
      const End& end = block_.shared().view.sends[at().operands[d].connection];
      send_line(end, lines_of(end), units);
    }
    block_.together([&] { ask(); });
  }

  // A chunk of `bytes`, from line `first_line` of every message on. False: given up.
  TUTTI_HD bool move(void* const* addresses, std::uint64_t bytes, std::uint64_t first_line) {
    addresses_ = addresses;
    bytes_ = bytes;
    first_line_ = first_line;
    const std::uint64_t lines = lines_for(format, bytes) - 1;
    for (std::uint64_t line = group(); line < lines; line += groups()) {
      std::uint64_t units[kUnits] = {};
      if (!reduce_line(line, units)) return false;
      store_line(line, units);
    }
    return true;
  }

  // The first line of each message, by one group of threads: it says of which operation the message
  // is, and comes even if there is no payload to wait for. The signature lies beside the flag, so
  // that it is right without a reload.
  TUTTI_HD void close() {
    for (std::uint32_t s = group(); s < at().step->sources; s += groups()) {
      const Operand& from = source(s);
      if (s != group()) block_.together([&] { fetch_header(from); });
      if (from.kind != OperandKind::kRecv) continue;
      if (!await_header(from)) return;
      std::uint64_t units[kUnits];
      Packets<format>::payload(header_, units);
      if (last_part()) static_cast<void>(signature_is_own(block_, at(), from.connection, units[0]));
    }
  }

 private:
  // Those whose loads are under way at once; their order is kept.
  static constexpr std::uint32_t kTogether = kWidensFourfold<Fold> ? 2 : 4;

  // Returns where this thread's units of a line begin, in bytes of the chunk.
  [[nodiscard]] TUTTI_HD std::uint64_t offset_of(std::uint64_t line) const {
    return (line * kShape.units + std::uint64_t{part()} * kUnits) * kUnitBytes;
  }
  // Does this thread hold payload there? The epoch's place of LL128 holds none.
  [[nodiscard]] TUTTI_HD bool holds(std::uint32_t unit) const {
    return part() * kUnits + unit < kShape.units;
  }
  [[nodiscard]] TUTTI_HD Word* line_at(const End& end, std::uint64_t line) const {
    return lines_of(end) + (first_line_ + line) * (kShape.bytes / sizeof(Word));
  }
  [[nodiscard]] TUTTI_HD const End& end_of(const Operand& source) const {
    return block_.shared().view.recvs[source.connection];
  }

  TUTTI_HD void fetch_header(const Operand& source) {
    if (source.kind == OperandKind::kRecv)
      header_ = Packets<format>::fetch(lines_of(end_of(source)), part());
  }
  TUTTI_HD void ask() {
    if (group() < at().step->sources) fetch_header(source(group()));
  }

  // A source's part of a line: what is there of a message, or what is in memory.
  TUTTI_HD LinePart fetch(const Operand& source, std::uint64_t line) {
    if (source.kind == OperandKind::kRecv)
      return Packets<format>::fetch(line_at(end_of(source), line), part());
    LinePart fetched{};
    const auto* const from = static_cast<const std::byte*>(addresses_[&source - at().operands]);
    const std::uint64_t offset = offset_of(line);
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i) {
      const std::uint64_t place = offset + std::uint64_t{i} * kUnitBytes;
      const bool real = holds(i) && place < bytes_;
      fetched.words[i] = real ? load_unit(from + place, bytes_ - place) : 0;
    }
    return fetched;
  }

  // Does this thread's part of a line show it?
  [[nodiscard]] TUTTI_HD bool shows(const Operand& source, const LinePart& fetched) const {
    return Packets<format>::has_come(fetched, part(),
                                     connection_detail::epoch_of_next(end_of(source)));
  }

  // Between two looks at lines of this number in a message, which have not all come; the threads of
  // a line together. False: given up.
  TUTTI_HD bool goes_on(Patience& patience, std::uint64_t line) {
    const Patience::Answer answer = patience.wait(block_);
    const bool over = answer == Patience::Answer::kOver && raise_late<format>(block_, line);
    return all_of_line<format>(block_, answer != Patience::Answer::kStopped && !over);
  }

  TUTTI_HD bool await_header(const Operand& from) {
    Patience patience;
    bool come = true;
    block_.look([&] {
      come = all_of_line<format>(block_, shows(from, header_));
      if (come || !goes_on(patience, 0)) return true;
      fetch_header(from);
      return false;
    });
    return come;
  }

  // The parts of up to kTogether sources from `first` on, when all have come. They are loaded
  // together until then: a call for one that is late would need registers for the others. False:
  // given up.
  TUTTI_HD bool fetch_together(std::uint32_t first, std::uint64_t line,
                               LinePart (&fetched)[kTogether]) {
    const std::uint32_t left = at().step->sources - first;
    const auto each = [&](auto&& visit) {
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j)
        if (j < left) visit(source(first + j), fetched[j]);
    };
    Patience patience;
    bool come = true;
    block_.look([&] {
      block_.together(
          [&] { each([&](const Operand& from, LinePart& to) { to = fetch(from, line); }); });
      come = true;
      each([&](const Operand& from, const LinePart& part) {
        if (from.kind == OperandKind::kRecv)
          come = all_of_line<format>(block_, shows(from, part)) && come;
      });
      return come || !goes_on(patience, first_line_ + line);
    });
    if (!come || kShape.threads == 1) return come;
    block_.together([&] {
      each([&](const Operand& from, LinePart& to) {
        if (from.kind == OperandKind::kRecv)
          to = Packets<format>::reload(line_at(end_of(from), line), part(), to);
      });
    });
    return true;
  }

  // The units of what was fetched.
  TUTTI_HD void take(const Operand& source, std::uint64_t line, const LinePart& fetched,
                     std::uint64_t (&units)[kUnits]) {
    if (source.kind == OperandKind::kRecv) {
      Packets<format>::payload(fetched, units);
      Packets<format>::clear(line_at(end_of(source), line));
      return;
    }
    TUTTI_UNROLL
    for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = fetched.words[i];
  }

  TUTTI_HD bool reduce_line(std::uint64_t line, std::uint64_t (&units)[kUnits]) {
    const std::uint32_t sources = at().step->sources;
    const std::uint32_t average_over = at().step->finish ? block_.shared().task.average_over : 0;
    const bool folds = sources > 1 || average_over > 1;
    typename Fold::template Accumulator<8> values[kUnits] = {};
    TUTTI_NO_UNROLL
    for (std::uint32_t first = 0; first < sources; first += kTogether) {
      LinePart fetched[kTogether];
      if (!fetch_together(first, line, fetched)) return false;
      TUTTI_UNROLL
      for (std::uint32_t j = 0; j < kTogether; ++j) {
        if (first + j >= sources) continue;
        take(source(first + j), line, fetched[j], units);
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

  TUTTI_HD void send_line(const End& end, Word* line, const std::uint64_t (&units)[kUnits]) {
    const std::uint64_t epoch = connection_detail::epoch_of_next(end);
    device::store_line<format>(block_, [&] { Packets<format>::store(line, part(), epoch, units); });
  }

  TUTTI_HD void store_line(std::uint64_t line, const std::uint64_t (&units)[kUnits]) {
    for (std::uint32_t d = 0; d < at().step->destinations; ++d) {
      const Operand& operand = at().operands[d];
      if (operand.kind == OperandKind::kSend) {
        const End& end = block_.shared().view.sends[operand.connection];
        send_line(end, line_at(end, line), units);
        continue;
      }
      auto* const to = static_cast<std::byte*>(addresses_[d]);
      const std::uint64_t offset = offset_of(line);
      for (std::uint32_t i = 0; i < kUnits; ++i) {
        const std::uint64_t place = offset + std::uint64_t{i} * kUnitBytes;
        if (holds(i) && place < bytes_) store_unit(to + place, units[i], bytes_ - place);
      }
    }
  }

  // Nothing of it is kept in registers: it lies in shared memory, or in those of the processor.
  [[nodiscard]] TUTTI_HD const Position& at() const { return block_.shared().at; }
  [[nodiscard]] TUTTI_HD const Operand& source(std::uint32_t s) const {
    return at().operands[at().step->destinations + s];
  }
  [[nodiscard]] TUTTI_HD std::uint32_t part() const { return block_.thread() % kShape.threads; }
  [[nodiscard]] TUTTI_HD bool last_part() const { return part() + 1 == kShape.threads; }
  [[nodiscard]] TUTTI_HD std::uint32_t group() const { return block_.thread() / kShape.threads; }
  [[nodiscard]] TUTTI_HD std::uint32_t groups() const { return block_.threads() / kShape.threads; }

  Block& block_;
  void* const* addresses_ = nullptr;
  std::uint64_t bytes_ = 0, first_line_ = 1;
  LinePart header_{};  // of the source of this thread's number
};

}  // namespace tutti::device
