// SPDX-License-Identifier: Apache-2.0
// How a step stores into slots that another core reads: through its own cache, or around it
// (non-temporal). Through the cache, every line that the peer has read before must first be taken
// back from it. Between cores of one last-level cache that is cheaper than a way to memory and
// back; between others it costs up to five times as much. Which cores these are is not known (a
// virtual machine does not say, and moves), so a step's times are compared. What a rank decides
// concerns its own stores alone.
//
// The gauge is pure: times are given. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/clock.hpp"

namespace tutti {

class StoreGauge {
 public:
  enum class Way : std::uint8_t { kThrough, kAround };
  struct Turn {
    Way way = Way::kThrough;
    bool timed = false;  // took() is to be told
  };

  StoreGauge() = default;
  // `slots`: in which a step's messages lie by turns.
  explicit StoreGauge(std::uint32_t slots) : untimed_(std::max(slots, kUntimedTurns)) {}

  // Begins the step's next message.
  [[nodiscard]] Turn next() {
    const std::uint32_t turn = turn_++;
    if (turn < untimed_ + kTimedTurns)
      return {turn % 2 == 0 ? Way::kThrough : Way::kAround, turn >= untimed_};
    if (turn % kTurnsPerTrial == 0) return {other(cheaper()), true};
    return {cheaper(), turn % kTurnsPerTime == 0};
  }
  void took(Way way, double ns_per_byte) {
    double& least = least_ns_per_byte_[static_cast<std::size_t>(way)];
    // A thread that lost its core took longer; a machine that has changed takes longer each time.
    least = least == 0 ? ns_per_byte : std::min(ns_per_byte, least * kForget);
  }
  [[nodiscard]] Way cheaper() const {
    return least_ns_per_byte_[1] * kReader < least_ns_per_byte_[0] ? Way::kAround : Way::kThrough;
  }

  // Both ways in turn, to begin with; of these the first ones meet memory for the first time.
  static constexpr std::uint32_t kUntimedTurns = 2, kTimedTurns = 4;
  static constexpr std::uint32_t kFirstTurns = kUntimedTurns + kTimedTurns;
  // Smaller messages are read as soon as they are there, which memory is late for.
  static constexpr std::uint64_t kLeastBytes = 4 << 10;
  static constexpr std::uint32_t kTurnsPerTime = 8;    // of the cheaper way, one is timed
  static constexpr std::uint32_t kTurnsPerTrial = 64;  // one goes the other way
  static constexpr double kForget = 1.25;
  // What the writer does not see: the reader finds in memory what it would have found in a cache.
  static constexpr double kReader = 1.5;

 private:
  static Way other(Way way) { return way == Way::kAround ? Way::kThrough : Way::kAround; }

  std::array<double, 2> least_ns_per_byte_{};  // of late, by Way; 0: not timed yet
  std::uint32_t turn_ = 0;
  std::uint32_t untimed_ = kUntimedTurns;
};

// Has `store` store a message of so many bytes, the way that the gauge says: store(way).
template <typename Store>
void store_gauged(StoreGauge& gauge, std::uint64_t bytes, Store&& store) {
  const StoreGauge::Turn turn = gauge.next();
  const std::int64_t began_ns = turn.timed ? now_ns() : 0;
  store(turn.way);
  if (turn.timed)
    gauge.took(turn.way, static_cast<double>(now_ns() - began_ns) / static_cast<double>(bytes));
}

// Fenced at the end.
void copy_around(std::byte* to, const std::byte* from, std::uint64_t bytes);

// Copies a message of kLeastBytes at least.
void copy_gauged(StoreGauge& gauge, std::byte* to, const std::byte* from, std::uint64_t bytes);

// Copies a message to memory that another core reads. Fenced: a release store after it publishes
// all bytes.
inline void copy_for_reader(StoreGauge& gauge, std::byte* to, const std::byte* from,
                            std::uint64_t bytes) {
  if (bytes >= StoreGauge::kLeastBytes) [[unlikely]]
    copy_gauged(gauge, to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace tutti
