// SPDX-License-Identifier: Apache-2.0
// Packets under relacy: their own code, instantiated with instrumented words, sender and receiver
// in many interleavings, lines used again under credits. Payload words are relaxed, so that a
// missing order shows as a value that was not sent. Planted faults must be caught by the same
// scenarios.
#include <gtest/gtest.h>

#include <ostream>

#include "relacy_harness.hpp"
#include "transports/packets.hpp"

namespace tutti::interleaving {
namespace {

enum class Fault {
  kNone,
  kRelaxedEpochStore,
  kRelaxedEpochLoad,
  kCreditTooEarly,  // given before the line was read
  kNoClear,         // LL8: an old flag stays in the line
  kNoReload,        // LL128: payload that was loaded before the flag
};
// relacy makes the suite object itself, so its parameters are global.
Fault fault = Fault::kNone;

class PacketWord {
 public:
  [[nodiscard]] std::uint64_t load(std::memory_order order) const {
    return word_.load(fault == Fault::kRelaxedEpochLoad ? rl::mo_relaxed : translate(order),
                      RL_INFO);
  }
  void store(std::uint64_t value, std::memory_order order) {
    word_.store(value, fault == Fault::kRelaxedEpochStore ? rl::mo_relaxed : translate(order),
                RL_INFO);
  }

 private:
  rl::atomic<std::uint64_t> word_;
};

constexpr std::uint64_t kMessages = 5;
constexpr std::uint64_t kSlots = 2;

// Two slots of one line each. One thread takes the parts of an LL128 line in turn, the flag's last:
// when it has come, the others may have been loaded before. The epochs of LL8 are chosen to have
// the same 32 bits for two messages of a slot, which real ones have sooner or later.
template <PacketFormat format>
class Stream : public rl::test_suite<Stream<format>, 2> {
 public:
  void before() {
    for (auto& slot : lines_)
      for (PacketWord& word : slot) word.store(0, std::memory_order_relaxed);
    consumed_.store(0, std::memory_order_relaxed);
  }
  void thread(unsigned index) { index == 0 ? send_all() : recv_all(); }

 private:
  using Lines = Packets<format, PacketWord>;
  static constexpr LineShape kShape = line_shape(format);
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;
  static constexpr std::uint32_t kWords = kShape.bytes / 8;

  static std::uint64_t epoch_of(std::uint64_t message) {
    const std::uint64_t operation = message / kSlots;
    return operation << 32 | (operation ^ 1);  // folded to 32 bits: 1 for every operation
  }
  static std::uint64_t value_of(std::uint64_t message, std::uint32_t unit) {
    return message * 0x100000001 + 17 * unit;
  }

  void send_all() {
    for (std::uint64_t message = 0; message < kMessages; ++message) {
      while (message - consumed_.load(std::memory_order_acquire) >= kSlots) rl::yield(1, RL_INFO);
      for (std::uint32_t part = 0; part < kShape.threads; ++part) {
        std::uint64_t units[kUnits];
        for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = value_of(message, part * kUnits + i);
        Lines::store(lines_[message % kSlots], part, epoch_of(message), units);
      }
    }
  }
  static bool load(PacketWord* line, std::uint64_t epoch, LinePart (&parts)[kShape.threads]) {
    bool come = true;
    for (std::uint32_t part = 0; part < kShape.threads; ++part) {
      parts[part] = Lines::fetch(line, part);
      come = come && Lines::has_come(parts[part], part, epoch);
    }
    if (!come || fault == Fault::kNoReload) return come;
    for (std::uint32_t part = 0; part < kShape.threads; ++part)
      parts[part] = Lines::reload(line, part, parts[part]);
    return true;
  }
  void recv_all() {
    for (std::uint64_t message = 0; message < kMessages; ++message) {
      PacketWord* const line = lines_[message % kSlots];
      LinePart parts[kShape.threads];
      if (fault == Fault::kCreditTooEarly) consumed_.store(message + 1, std::memory_order_release);
      while (!load(line, epoch_of(message), parts)) rl::yield(1, RL_INFO);
      if (fault != Fault::kNoClear) Lines::clear(line);
      for (std::uint32_t unit = 0; unit < kShape.units; ++unit) {
        std::uint64_t units[kUnits];
        Lines::payload(parts[unit / kUnits], units);
        RL_ASSERT(units[unit % kUnits] == value_of(message, unit));
      }
      if (fault != Fault::kCreditTooEarly) consumed_.store(message + 1, std::memory_order_release);
    }
  }

  PacketWord lines_[kSlots][kWords];
  PacketWord consumed_;
};

Outcome explore(PacketFormat format, Fault what) {
  constexpr std::uint64_t kInterleavings = 20'000;
  fault = what;
  switch (format) {
    case PacketFormat::kLl8:
      return simulate<Stream<PacketFormat::kLl8>>(rl::random_scheduler_type, kInterleavings);
    case PacketFormat::kLl16:
      return simulate<Stream<PacketFormat::kLl16>>(rl::random_scheduler_type, kInterleavings);
    case PacketFormat::kLl128:
      return simulate<Stream<PacketFormat::kLl128>>(rl::random_scheduler_type, kInterleavings);
  }
  return {};
}

TEST(PacketInterleaving, RandomSchedulesAreClean) {
  for (const PacketFormat format :
       {PacketFormat::kLl8, PacketFormat::kLl16, PacketFormat::kLl128}) {
    const Outcome outcome = explore(format, Fault::kNone);
    EXPECT_TRUE(outcome.passed) << static_cast<int>(format) << ": " << outcome.report;
  }
}

struct Planted {
  PacketFormat format;
  Fault fault;
};

TEST(PacketInterleaving, PlantedFaultsAreCaught) {
  for (const auto& [format, planted] : {
           Planted{PacketFormat::kLl16, Fault::kRelaxedEpochStore},
           Planted{PacketFormat::kLl16, Fault::kRelaxedEpochLoad},
           Planted{PacketFormat::kLl128, Fault::kRelaxedEpochStore},
           Planted{PacketFormat::kLl128, Fault::kRelaxedEpochLoad},
           Planted{PacketFormat::kLl128, Fault::kNoReload},
           Planted{PacketFormat::kLl8, Fault::kCreditTooEarly},
           Planted{PacketFormat::kLl16, Fault::kCreditTooEarly},
           Planted{PacketFormat::kLl8, Fault::kNoClear},
       }) {
    const Outcome outcome = explore(format, planted);
    EXPECT_FALSE(outcome.passed) << "format " << static_cast<int>(format) << ", fault "
                                 << static_cast<int>(planted) << " survived "
                                 << outcome.interleavings << " interleavings";
  }
}

// ---- what packets order beside their payload: on a device nothing
// --------------------------------

bool relaxed = false;  // as packets are on a device, whose lines are stored and loaded whole

// A replica of two lanes. The first sends what it has read of a buffer; the peer answers; the
// answer lets the second write to the buffer, as the verifier allows, since every message counts as
// order.
template <bool kTwoBlocks>
class TwoLanes : public rl::test_suite<TwoLanes<kTwoBlocks>, kTwoBlocks ? 3 : 2> {
 public:
  void before() {
    there_.store(0, rl::mo_relaxed, RL_INFO);
    back_.store(0, rl::mo_relaxed, RL_INFO);
    buffer_(RL_INFO) = 1;
  }
  void thread(unsigned index) {
    if (index == 0) return answer();
    if (!kTwoBlocks || index == 1) send_what_is_there();
    if (!kTwoBlocks || index == 2) write_once_answered();
  }

 private:
  [[nodiscard]] static rl::memory_order loads() {
    return relaxed ? rl::mo_relaxed : translate(packet_detail::kLoad);
  }
  [[nodiscard]] static rl::memory_order stores() {
    return relaxed ? rl::mo_relaxed : translate(packet_detail::kStore);
  }
  void send_what_is_there() { there_.store(buffer_(RL_INFO), stores(), RL_INFO); }
  void answer() {
    while (there_.load(loads(), RL_INFO) == 0) rl::yield(1, RL_INFO);
    back_.store(1, stores(), RL_INFO);
  }
  void write_once_answered() {
    while (back_.load(loads(), RL_INFO) == 0) rl::yield(1, RL_INFO);
    buffer_(RL_INFO) = 2;
  }

  rl::atomic<std::uint64_t> there_, back_;
  rl::var<std::uint64_t> buffer_;
};

// Why all lanes of a replica belong to one block where packets run (src/device/image.cpp).
TEST(PacketInterleaving, TwoBlocksForAReplicaNeedTheHostsOrder) {
  constexpr std::uint64_t kInterleavings = 20'000;
  relaxed = true;
  EXPECT_TRUE(simulate<TwoLanes<false>>(rl::random_scheduler_type, kInterleavings).passed);
  EXPECT_FALSE(simulate<TwoLanes<true>>(rl::random_scheduler_type, kInterleavings).passed)
      << "the race of two blocks survived";
  relaxed = false;
  EXPECT_TRUE(simulate<TwoLanes<true>>(rl::random_scheduler_type, kInterleavings).passed);
}

}  // namespace
}  // namespace tutti::interleaving
