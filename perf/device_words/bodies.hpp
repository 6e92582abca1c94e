// SPDX-License-Identifier: Apache-2.0
// What bench_device_words times, as bodies (probe.hpp). Each does one thing many times; thread 0 of
// block 0 stores how long that took, in nanoseconds of the device's clock, which may count in steps
// of a microsecond: what is timed lasts some hundred of these.
#pragma once

#include "device_words/probe.hpp"
#include "kernels/device/reduce_copy.hpp"

namespace tutti::probe {

// What a body tells.
struct Told {
  Word ns;
  Word wrong;       // threads that saw other bytes than were sent
  Word unfinished;  // threads for which another block was too late
};

// Loads, each of which needs the one before, around a ring of words a line apart.
struct Chase {
  const Word* ring;  // holds indices
  std::uint32_t loads;
  Told* told;
  Word* end;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    if (block.thread() != 0) return;
    std::uint64_t at = 0, begin_ns = 0;
    // The first round brings it into the cache.
    for (int round = 0; round < 2; ++round) {
      begin_ns = block.now_ns();
      for (std::uint32_t i = 0; i < loads; ++i) at = block.load(ring[at]);
    }
    // Its value needs the last load, which has come then.
    block.store(*end, at);
    block.store(told->ns, block.now_ns() - begin_ns);
  }
};

// Rounds of two barriers, between them, if wanted, what a step does there: stores of all threads
// before, fences of the first warp after the first.
struct Fences {
  std::byte* memory;  // kTurns * 16 bytes for each thread
  std::uint32_t rounds;
  bool stores, fences, one_device;
  Told* told;
  static constexpr std::uint32_t kTurns = 64;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    set_scope(block, one_device);
    const std::uint64_t begin_ns = block.now_ns();
    for (std::uint32_t r = 0; r < rounds; ++r) {
      if (stores) {
        const std::uint64_t at = std::uint64_t{r % kTurns} * block.threads() + block.thread();
        device::store_bits<16>(memory + at * 16, bits_of(r, at));
      }
      block.sync();
      if (fences && block.thread() < block.warp()) block.fence();
      block.sync();
    }
    if (block.thread() == 0) block.store(told->ns, block.now_ns() - begin_ns);
  }
};

// What two blocks send to each other by turns.
struct PingPong {
  std::uint64_t before;  // rounds of earlier launches on the same memory
  std::uint32_t rounds;  // there and back
  std::uint64_t limit_ns;
  Told* told;
};

// Messages of `line_count` lines. A thread answers those lines that it has read, and nothing holds
// it up but them.
template <PacketFormat format, class Lines = Packets<format>>
struct PacketPingPong {
  PingPong all;
  Word* lines[2];  // that the block of this number reads
  std::uint32_t line_count;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    using Of = Share<format>;
    const Of own(block);
    Limit limit(block, all.limit_ns);
    const bool begins = block.block() == 0;
    std::uint64_t units[Of::kUnits];
    // 0, unless something else comes than was sent. It is added to all that is sent, so that a line
    // is not answered before its bytes have come.
    std::uint64_t drift = 0;
    bool goes_on = true;
    const auto send = [&](std::uint64_t epoch, std::uint32_t line) {
      own.fill(units, epoch, line);
      for (std::uint32_t i = 0; i < Of::kUnits; ++i) units[i] += drift;
      device::store_line<format>(block, [&] {
        Lines::store(Of::line_at(lines[begins ? 1 : 0], line), own.part, epoch, units);
      });
    };
    const auto receive = [&](std::uint64_t epoch, std::uint32_t line) {
      LinePart first;
      if (!await_line<format, Lines>(block, limit, Of::line_at(lines[begins ? 0 : 1], line), epoch,
                                     first, units))
        return false;
      for (std::uint32_t i = 0; i < Of::kUnits; ++i)
        if (own.holds(i)) drift += units[i] - payload_at(epoch, line, own.part * Of::kUnits + i);
      return true;
    };
    block.sync();
    const std::uint64_t begin_ns = block.now_ns();
    const std::uint64_t last = all.before + all.rounds;
    for (std::uint64_t epoch = all.before + 1; epoch <= last && goes_on; ++epoch) {
      if (begins)
        for (std::uint32_t line = own.group; line < line_count; line += own.groups)
          send(epoch, line);
      for (std::uint32_t line = own.group; line < line_count && goes_on; line += own.groups) {
        goes_on = receive(epoch, line);
        if (goes_on && !begins) send(epoch, line);
      }
    }
    block.sync();
    if (block.block() == 0 && block.thread() == 0)
      block.store(all.told->ns, block.now_ns() - begin_ns);
    if (drift != 0) block.add(all.told->wrong);
    if (!goes_on) block.add(all.told->unfinished);
  }
};

// Messages as slots carry them: stores of all threads, a barrier, a fence, a counter; and on the
// other side the counter, a barrier, loads of all threads. `bytes` is a multiple of 16.
struct SlotPingPong {
  PingPong all;
  std::byte* payload[2];  // that the block of this number reads
  Word* counters[2];
  std::uint32_t bytes;
  bool one_device;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    set_scope(block, one_device);
    Limit limit(block, all.limit_ns);
    const std::uint32_t own = block.block(), peer = 1 - own, step = block.threads() * 16;
    std::uint64_t drift = 0;  // as of packets
    bool goes_on = true;
    const auto send = [&](std::uint64_t round) {
      for (std::uint32_t at = block.thread() * 16; at < bytes; at += step)
        device::store_bits<16>(payload[peer] + at, bits_of(payload_at(round, at, 0) + drift,
                                                           payload_at(round, at, 1) + drift));
      block.sync();
      if (block.thread() < block.warp()) block.fence();
      if (block.thread() == 0) block.publish(*counters[peer], round);
    };
    const auto receive = [&](std::uint64_t round) {
      if (!await_counter(block, limit, *counters[own], round)) return false;
      for (std::uint32_t at = block.thread() * 16; at < bytes; at += step) {
        const device::Bits<16> bits = device::load_bits<16>(payload[own] + at);
        drift += device::word_at<std::uint64_t>(bits, 0) - payload_at(round, at, 0);
        drift += device::word_at<std::uint64_t>(bits, 1) - payload_at(round, at, 1);
      }
      return true;
    };
    const std::uint64_t begin_ns = block.now_ns();
    const std::uint64_t last = all.before + all.rounds;
    for (std::uint64_t round = all.before + 1; round <= last && goes_on; ++round) {
      if (own == 0) send(round);
      goes_on = receive(round);
      if (goes_on && own == 1) send(round);
    }
    block.sync();
    if (own == 0 && block.thread() == 0) block.store(all.told->ns, block.now_ns() - begin_ns);
    if (drift != 0) block.add(all.told->wrong);
    if (!goes_on) block.add(all.told->unfinished);
  }
};

// A part of its own of the operands for each block, moved as the interpreter moves a step's bytes
// (lane.hpp, move_piece).
template <class Fold>
struct Move {
  std::byte* operands;  // the destination, then the sources, operand_bytes apart
  std::uint64_t operand_bytes, block_bytes;
  std::uint32_t sources;

  template <class Block>
  TUTTI_HD void operator()(Block& block) const {
    void** const addresses = block.shared().addresses;
    for (std::uint32_t i = block.thread(); i <= sources; i += block.threads())
      addresses[i] = operands + i * operand_bytes + block.block() * block_bytes;
    block.sync();
    const device::DeviceReduceCopy call{.sources = addresses + 1,
                                        .destinations = addresses,
                                        .source_count = sources,
                                        .destination_count = 1,
                                        .elements = block_bytes / Fold::kElementBytes};
    const device::Threads<Block::kLanes> threads{block.thread(), block.threads()};
    if (sources == 1)
      device::copy_apart(threads, call, Fold::kElementBytes);
    else
      device::reduce_copy_apart<Fold>(threads, call);
  }
};

}  // namespace tutti::probe
