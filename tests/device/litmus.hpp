// SPDX-License-Identifier: Apache-2.0
// Two properties of a device's memory that no model promises in full and the interpreter relies on,
// as bodies (perf/device_words/probe.hpp): a line of packets shows its payload with its epoch, and
// what a block stored before a fence and a counter is seen by a block that has seen the counter.
//
// Blocks work in pairs, a writer and a reader, the reader's acknowledgement before the next epoch;
// the other blocks stream memory through the cache. All end by number and by the clock.
#pragma once

#include <cstdint>

#include "device_words/probe.hpp"
#include "kernels/device/reduce_copy.hpp"

namespace tutti::probe {

// A thread's counts, of lines or of loads of eight bytes.
struct Tally {
  Word reads;
  Word wrong;       // other payload than the epoch's
  Word first_torn;  // of LL128: it was so in the look that found the epoch, before the second load
};

// One line's worth of words that several blocks use.
struct alignas(128) Shown {
  Word word;
};

struct Example {
  Word claimed, epoch, expected, seen;  // one of what was wrong
};

struct Litmus {
  std::uint32_t pairs;  // the blocks behind them stream
  std::uint64_t epochs, limit_ns;
  Tally* tallies;  // of each thread of the pairs
  Example* example;
  Word* ended;  // blocks of pairs
  std::byte *from, *to;
  std::uint64_t stream_bytes;  // of each streaming block

  template <class Block>
  TUTTI_HD void tell(Block& block, std::uint64_t epoch, std::uint64_t expected,
                     std::uint64_t seen) const {
    if (block.add(example->claimed) != 0) return;
    block.store(example->epoch, epoch);
    block.store(example->expected, expected);
    block.store(example->seen, seen);
  }

  // What a block does that is of no pair.
  template <class Block>
  TUTTI_HD void stream(Block& block) const {
    constexpr std::uint64_t kPiece = 64 << 10;
    const Limit limit(block, limit_ns);
    const std::uint64_t begin = (block.block() - 2 * pairs) * stream_bytes;
    const device::Threads<Block::kLanes> threads{block.thread(), block.threads()};
    std::uint64_t at = 0;
    while (block.load(*ended) < 2 * pairs && !limit.passed(block)) {
      const void* const source = from + begin + at;
      void* const destination = to + begin + at;
      device::copy_apart(threads,
                         {.sources = &source,
                          .destinations = &destination,
                          .source_count = 1,
                          .destination_count = 1,
                          .elements = kPiece},
                         1);
      at = at + kPiece < stream_bytes ? at + kPiece : 0;
      block.pause();
    }
  }

  // The end of a pair's block: its thread's counts.
  template <class Block>
  TUTTI_HD void end(Block& block, std::uint64_t reads, std::uint64_t wrong,
                    std::uint64_t first_torn) const {
    Tally& own = tallies[std::uint64_t{block.block()} * block.threads() + block.thread()];
    block.store(own.reads, reads);
    block.store(own.wrong, wrong);
    block.store(own.first_torn, first_torn);
    block.sync();
    if (block.thread() == 0) block.add(*ended);
  }
};

// (a) Each group of a writer's threads rewrites a line, and a group of the reader's looks for it.
template <PacketFormat format, class Lines = Packets<format>>
struct TornLines {
  static_assert(format != PacketFormat::kLl8, "whose payload is not whole words");
  using Of = Share<format>;
  Litmus all;
  Word* lines;  // of each pair, one a group
  Shown* acks;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    if (block.block() >= 2 * all.pairs) return all.stream(block);
    const Of own(block);
    const std::uint64_t line = std::uint64_t{block.block() / 2} * own.groups + own.group;
    if (block.block() % 2 == 0) {
      write(block, own, line);
      all.end(block, 0, 0, 0);
    } else {
      read(block, own, line);
    }
  }

 private:
  template <class Block>
  TUTTI_HD void write(Block& block, const Of& own, std::uint64_t line) const {
    Limit limit(block, all.limit_ns);
    for (std::uint64_t epoch = 1; epoch <= all.epochs; ++epoch) {
      std::uint64_t units[Of::kUnits];
      own.fill(units, epoch, line);
      device::store_line<format>(
          block, [&] { Lines::store(Of::line_at(lines, line), own.part, epoch, units); });
      while (!device::all_of_line<format>(block, block.load(acks[line].word) == epoch))
        if (!device::all_of_line<format>(block, !limit.over(block))) return;
    }
  }

  template <class Block>
  TUTTI_HD void read(Block& block, const Of& own, std::uint64_t line) const {
    Limit limit(block, all.limit_ns);
    std::uint64_t reads = 0, wrong = 0, first_torn = 0;
    for (std::uint64_t epoch = 1; epoch <= all.epochs; ++epoch) {
      LinePart first;
      std::uint64_t units[Of::kUnits];
      if (!await_line<format, Lines>(block, limit, Of::line_at(lines, line), epoch, first, units))
        break;
      bool other = false, first_other = false;
      for (std::uint32_t i = 0; i < Of::kUnits; ++i) {
        if (!own.holds(i)) continue;
        const std::uint64_t expected = payload_at(epoch, line, own.part * Of::kUnits + i);
        first_other |= first.words[i] != expected;
        if (units[i] == expected) continue;
        other = true;
        all.tell(block, epoch, expected, units[i]);
      }
      // All threads of the line have their bytes when the votes are over.
      other = !device::all_of_line<format>(block, !other);
      first_other = !device::all_of_line<format>(block, !first_other);
      if (own.part != 0) continue;
      ++reads;
      wrong += other ? 1 : 0;
      first_torn += first_other ? 1 : 0;
      block.store(acks[line].word, epoch);
    }
    all.end(block, reads, wrong, first_torn);
  }
};

// How a writer publishes data.
enum class Publish : std::uint8_t {
  kFenced,    // as the interpreter does
  kUnfenced,  // relaxed on both sides: may show old data
  kLate,      // the counter before the data: shows old data, or this program is blind
};

// (b) Data of all threads, then a counter; and back an acknowledgement.
struct MessagePassing {
  Litmus all;
  std::byte* data;         // of each pair
  std::uint32_t bytes;     // of a pair, a multiple of 16
  Shown *counters, *acks;  // of each pair
  bool one_device;
  Publish publish;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    if (block.block() >= 2 * all.pairs) return all.stream(block);
    set_scope(block, one_device);
    if (block.block() % 2 == 0) {
      write(block, block.block() / 2);
      all.end(block, 0, 0, 0);
    } else {
      read(block, block.block() / 2);
    }
  }

 private:
  template <class Block>
  TUTTI_HD void store(Block& block, std::uint32_t pair, std::uint64_t epoch) const {
    for (std::uint32_t at = block.thread() * 16; at < bytes; at += block.threads() * 16)
      device::store_bits<16>(data + std::uint64_t{pair} * bytes + at,
                             bits_of(payload_at(epoch, at, 0), payload_at(epoch, at, 1)));
  }

  template <class Block>
  TUTTI_HD void write(Block& block, std::uint32_t pair) const {
    Limit limit(block, all.limit_ns);
    Word& counter = counters[pair].word;
    for (std::uint64_t epoch = 1; epoch <= all.epochs; ++epoch) {
      if (publish == Publish::kLate) {
        if (block.thread() == 0) block.store(counter, epoch);
        for (int i = 0; i < 64; ++i) block.pause();
      }
      store(block, pair, epoch);
      block.sync();
      if (publish == Publish::kFenced) {
        if (block.thread() < block.warp()) block.fence();
        if (block.thread() == 0) block.publish(counter, epoch);
      } else if (publish == Publish::kUnfenced && block.thread() == 0) {
        block.store(counter, epoch);
      }
      if (!await_counter(block, limit, acks[pair].word, epoch)) return;
    }
  }

  template <class Block>
  TUTTI_HD void read(Block& block, std::uint32_t pair) const {
    Limit limit(block, all.limit_ns);
    std::uint64_t reads = 0, wrong = 0;
    const auto look = [&](std::uint64_t epoch, std::uint64_t expected, std::uint64_t seen) {
      ++reads;
      if (seen == expected) return;
      ++wrong;
      all.tell(block, epoch, expected, seen);
    };
    for (std::uint64_t epoch = 1; epoch <= all.epochs; ++epoch) {
      if (!await_counter(block, limit, counters[pair].word, epoch, publish != Publish::kFenced))
        break;
      for (std::uint32_t at = block.thread() * 16; at < bytes; at += block.threads() * 16) {
        const device::Bits<16> bits =
            device::load_bits<16>(data + std::uint64_t{pair} * bytes + at);
        look(epoch, payload_at(epoch, at, 0), device::word_at<std::uint64_t>(bits, 0));
        look(epoch, payload_at(epoch, at, 1), device::word_at<std::uint64_t>(bits, 1));
      }
      block.sync();
      if (block.thread() < block.warp()) block.fence();
      if (block.thread() == 0) block.publish(acks[pair].word, epoch);
    }
    all.end(block, reads, wrong, 0);
  }
};

}  // namespace tutti::probe
