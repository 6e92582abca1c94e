// SPDX-License-Identifier: Apache-2.0
// What the programs that look at one device's memory are made of. A body is a function object that
// every thread of some blocks calls (src/device/position.hpp says what a block is); one source runs
// on a GPU and by threads of the host. A body ends by the clock where another block does not
// answer.
//
// A machine runs bodies (cuda_machine.cuh; tests/device/emulated_machine.hpp):
//   kThreads                    of a block
//   kLimitNs                    of a wait, after which another block does not run
//   rounds(n)                   how often to do what a GPU is to do n times
//   name(), blocks()            of the device, and that it runs at once
//   allocate<T>(count)          zeroed, at a multiple of 128 bytes, until the machine ends
//   write(to, from, bytes), read(to, from, bytes)
//   launch(blocks, body)        enqueues it
//   finish()                    returns when all has ended
//   times_ns(samples, enqueue)  how long what `enqueue` enqueues takes, each time
// Errors of the device end the program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/line.hpp"
#include "device/position.hpp"
#include "kernels/device/bits.hpp"
#include "transports/packets.hpp"

namespace tutti::probe {

// A unit of payload that says which message, line and unit it is of.
[[nodiscard]] TUTTI_HD inline std::uint64_t payload_at(std::uint64_t epoch, std::uint64_t line,
                                                       std::uint64_t unit) {
  return epoch * 0x9e3779b97f4a7c15 + line * 16 + unit;
}
// Sixteen bytes of it.
[[nodiscard]] TUTTI_HD inline device::Bits<16> bits_of(std::uint64_t low, std::uint64_t high) {
  device::Bits<16> bits{};
  device::set_word(bits, 0, low);
  device::set_word(bits, 1, high);
  return bits;
}

// An end for whatever waits, by this thread's clock.
class Limit {
 public:
  template <class Block>
  TUTTI_HD Limit(Block& block, std::uint64_t limit_ns) : end_ns_(block.now_ns() + limit_ns) {}

  // Between two looks at something: is it over?
  template <class Block>
  [[nodiscard]] TUTTI_HD bool over(Block& block) {
    block.pause();
    return ++looks_ % 64 == 0 && passed(block);
  }
  template <class Block>
  [[nodiscard]] TUTTI_HD bool passed(Block& block) const {
    return block.now_ns() > end_ns_;
  }

 private:
  std::uint64_t end_ns_;
  std::uint32_t looks_ = 0;
};

// All threads: whose scope fences and acquiring loads have, of the device's or of the system's.
template <class Block>
TUTTI_HD void set_scope(Block& block, bool one_device) {
  if (block.thread() == 0) block.shared().task.one_device = one_device;
  block.sync();
}

// Where this thread stands among those that share lines of a format.
template <PacketFormat format>
struct Share {
  static constexpr LineShape kShape = line_shape(format);
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;
  std::uint32_t part, group, groups;

  template <class Block>
  explicit TUTTI_HD Share(Block& block)
      : part(block.thread() % kShape.threads),
        group(block.thread() / kShape.threads),
        groups(block.threads() / kShape.threads) {}
  // Is this thread's i-th unit payload? The epoch's place of LL128 is none.
  [[nodiscard]] TUTTI_HD bool holds(std::uint32_t i) const {
    return part * kUnits + i < kShape.units;
  }
  // What it holds of a line.
  TUTTI_HD void fill(std::uint64_t (&units)[kUnits], std::uint64_t epoch,
                     std::uint64_t line) const {
    for (std::uint32_t i = 0; i < kUnits; ++i)
      units[i] = payload_at(epoch, line, part * kUnits + i);
  }
  [[nodiscard]] static TUTTI_HD Word* line_at(Word* lines, std::uint64_t line) {
    return lines + line * (kShape.bytes / sizeof(Word));
  }
};

// Looks at a line until it has come, as the interpreter's await_line does; all threads of the line.
// `first` is what the look that found it had loaded. False: it is over.
template <PacketFormat format, class Lines, class Block>
[[nodiscard]] TUTTI_HD bool await_line(Block& block, Limit& limit, Word* line, std::uint64_t epoch,
                                       LinePart& first,
                                       std::uint64_t (&units)[kUnitsPerThread<format>]) {
  const std::uint32_t part = block.thread() % line_shape(format).threads;
  for (;;) {
    first = Lines::fetch(line, part);
    if (device::all_of_line<format>(block, Lines::has_come(first, part, epoch))) {
      Lines::payload(Lines::reload(line, part, first), units);
      return true;
    }
    if (!device::all_of_line<format>(block, !limit.over(block))) return false;
  }
}

// All threads: does the counter reach `value`? What its publisher's block stored before is then
// seen by all, unless the loads are `relaxed`. Uses the block's gave_up; a barrier must come
// between two calls.
template <class Block>
[[nodiscard]] TUTTI_HD bool await_counter(Block& block, Limit& limit, const Word& counter,
                                          std::uint64_t value, bool relaxed = false) {
  if (block.thread() == 0) {
    bool came = false;
    while (!came) {
      came = (relaxed ? block.load(counter) : block.acquire(counter)) >= value;
      if (!came && limit.over(block)) break;
    }
    block.shared().gave_up = !came;
  }
  block.sync();
  return !block.shared().gave_up;
}

}  // namespace tutti::probe
