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

// Two slots of one line each; the epochs of LL8 are chosen to have the same 32 bits for two
// messages of a slot, which real ones have sooner or later.
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
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;
  static constexpr std::uint32_t kWords = line_shape(format).bytes / 8;

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
      std::uint64_t units[kUnits];
      for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = value_of(message, i);
      Lines::store(lines_[message % kSlots], 0, epoch_of(message), units);
    }
  }
  void recv_all() {
    for (std::uint64_t message = 0; message < kMessages; ++message) {
      PacketWord* const line = lines_[message % kSlots];
      std::uint64_t units[kUnits];
      if (fault == Fault::kCreditTooEarly) consumed_.store(message + 1, std::memory_order_release);
      while (!load_line<format>(line, 0, epoch_of(message), units)) rl::yield(1, RL_INFO);
      if (fault != Fault::kNoClear) Lines::clear(line, 0);
      for (std::uint32_t i = 0; i < kUnits; ++i) RL_ASSERT(units[i] == value_of(message, i));
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

}  // namespace
}  // namespace tutti::interleaving
