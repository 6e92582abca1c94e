// SPDX-License-Identifier: Apache-2.0
// The bodies of bench_device_words and device_litmus, by blocks of threads: they see no fault where
// there is none, they see those that are made, and they end. And what follows from words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "device_words/bodies.hpp"
#include "device_words/costs.hpp"
#include "tests/device/emulated_machine.hpp"
#include "tests/device/litmus_parts.hpp"

namespace tutti::test {
namespace {

using probe::Publish;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kLongNs = 60'000'000'000;

// Shows the epoch before the line's first words, and takes its time between. Of LL128 the thread
// that has the epoch, which stores last, stores for the first thread.
template <PacketFormat format>
struct FlagFirst : Packets<format> {
  static void store(Word* line, std::uint32_t part, std::uint64_t epoch,
                    const std::uint64_t (&units)[kUnitsPerThread<format>]) {
    constexpr std::uint32_t kLast = line_shape(format).threads - 1;
    if (part < kLast) {
      if (part > 0) Packets<format>::store(line, part, epoch, units);
      return;
    }
    line[2 * part + 1].store(epoch, std::memory_order_release);
    for (int i = 0; i < 50; ++i) ::sched_yield();
    line[2 * part].store(units[0], std::memory_order_relaxed);
    if (part == 0) return;
    const std::uint64_t first = units[0] - 2 * kLast;  // payload_at counts the units
    line[0].store(first, std::memory_order_relaxed);
    line[1].store(first + 1, std::memory_order_relaxed);
  }
};

struct ToldCounts {
  std::uint64_t ns, wrong, unfinished;
};

// Runs a ping-pong of one kind in `blocks` blocks.
template <class Body>
ToldCounts play(EmulatedMachine& machine, std::uint32_t blocks, Body body) {
  body.all.told = machine.allocate<probe::Told>(1);
  machine.launch(blocks, body);
  ToldCounts told{};
  machine.read(&told, body.all.told, sizeof told);
  return told;
}

template <PacketFormat format, class Lines = Packets<format>>
ToldCounts play_packets(std::uint32_t bytes, std::uint32_t rounds) {
  EmulatedMachine machine;
  const auto lines = static_cast<std::uint32_t>(lines_for(format, bytes) - 1);
  const std::uint64_t words = lines * line_shape(format).bytes / kUnitBytes;
  return play(machine, 2,
              probe::PacketPingPong<format, Lines>{
                  .all = {.before = 0, .rounds = rounds, .limit_ns = kLongNs, .told = nullptr},
                  .lines = {machine.allocate<Word>(words), machine.allocate<Word>(words)},
                  .line_count = lines});
}

ToldCounts play_slots(std::uint32_t blocks, std::uint32_t bytes, bool one_device,
                      std::uint64_t limit_ns) {
  EmulatedMachine machine;
  return play(
      machine, blocks,
      probe::SlotPingPong{
          .all = {.before = 0, .rounds = 20, .limit_ns = limit_ns, .told = nullptr},
          .payload = {machine.allocate<std::byte>(bytes), machine.allocate<std::byte>(bytes)},
          .counters = {machine.allocate<Word>(1), machine.allocate<Word>(1)},
          .bytes = bytes,
          .one_device = one_device});
}

void expect_sound(const ToldCounts& told) {
  EXPECT_EQ(told.wrong, 0U);
  EXPECT_EQ(told.unfinished, 0U);
  EXPECT_GT(told.ns, 0U);
}

TEST(DevicePingPong, SendsWholeMessages) {
  for (const std::uint32_t bytes : {8U, 1000U}) {
    expect_sound(play_packets<PacketFormat::kLl8>(bytes, 20));
    expect_sound(play_packets<PacketFormat::kLl16>(bytes, 20));
    expect_sound(play_packets<PacketFormat::kLl128>(bytes, 20));
  }
  for (const std::uint32_t bytes : {16U, 1024U})
    for (const bool one_device : {false, true})
      expect_sound(play_slots(2, bytes, one_device, kLongNs));
}

// A mistake shows only where the reader runs at the moment of it: on a busy machine some other
// time.
template <class Play>
auto until_wrong(const Play& play) {
  const Deadline deadline = Deadline::in_ns(60'000'000'000);
  auto seen = play();
  while (seen.wrong == 0 && !deadline.passed()) seen = play();
  return seen;
}

TEST(DevicePingPong, SeesPayloadThatComesAfterItsFlag) {
  using Ll16 = FlagFirst<PacketFormat::kLl16>;
  using Ll128 = FlagFirst<PacketFormat::kLl128>;
  EXPECT_GT(until_wrong([] { return play_packets<PacketFormat::kLl16, Ll16>(16, 5); }).wrong, 0U);
  EXPECT_GT(until_wrong([] { return play_packets<PacketFormat::kLl128, Ll128>(240, 5); }).wrong,
            0U);
}

TEST(DevicePingPong, EndsWithoutTheOtherBlock) {
  EXPECT_GT(play_slots(1, 64, true, 1'000'000).unfinished, 0U);
}

class DeviceLitmus : public ::testing::Test {
 protected:
  using Run = probe::LitmusRun<EmulatedMachine>;
  static constexpr std::uint64_t kEpochs = 30, kStreamBytes = 64 << 10;
  EmulatedMachine machine_;
  Run run_{machine_, {.seconds = 60, .epochs = kEpochs}, kStreamBytes};
  // A mistake takes its time.
  Run mistaken_{machine_, {.seconds = 60, .epochs = 5}, kStreamBytes};
};

TEST_F(DeviceLitmus, FindsNothingWrongWithTheHost) {
  for (const bool loaded : {false, true}) {
    const std::vector<probe::Part> parts{run_.torn<PacketFormat::kLl16>("ll16", loaded),
                                         run_.torn<PacketFormat::kLl128>("ll128", loaded),
                                         run_.passing("gpu", loaded, true, Publish::kFenced),
                                         run_.passing("sys", loaded, false, Publish::kFenced)};
    for (const probe::Part& part : parts) {
      EXPECT_TRUE(part.judged) << part.name;
      EXPECT_EQ(part.wrong, 0U) << part.name;
      // A line for each thread, or eight of them; eight words of 64 bytes.
      const std::uint64_t each = part.name.starts_with("ll128") ? 1
                                 : part.name.starts_with("ll")  ? EmulatedMachine::kThreads
                                                                : EmulatedMachine::kThreads * 8;
      EXPECT_EQ(part.reads, kEpochs * each) << part.name;
    }
  }
}

TEST_F(DeviceLitmus, SeesTornLines) {
  const auto ll16 = until_wrong([this] {
    return mistaken_.torn<PacketFormat::kLl16, FlagFirst<PacketFormat::kLl16>>("", false);
  });
  const auto ll128 = until_wrong([this] {
    return mistaken_.torn<PacketFormat::kLl128, FlagFirst<PacketFormat::kLl128>>("", false);
  });
  for (const probe::Part& part : {ll16, ll128}) {
    EXPECT_GT(part.wrong, 0U);
    EXPECT_GT(part.first_torn, 0U);
    EXPECT_GT(part.epoch, 0U);
    EXPECT_NE(part.expected, part.seen);
  }
}

TEST_F(DeviceLitmus, SeesDataThatComesAfterItsCounter) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a race by intention";
#endif
  const probe::Part part =
      until_wrong([this] { return mistaken_.passing("late", false, true, Publish::kLate); });
  EXPECT_FALSE(part.judged);
  EXPECT_GT(part.wrong, 0U);
}

TEST_F(DeviceLitmus, EndsInTime) {
  Run endless(machine_, {.seconds = 0.01, .epochs = ~std::uint64_t{0} >> 1}, kStreamBytes);
  // They return.
  EXPECT_EQ(endless.passing("gpu", true, true, Publish::kFenced).wrong, 0U);
  EXPECT_EQ(endless.torn<PacketFormat::kLl128>("ll128", true).wrong, 0U);
}

TEST(DeviceWords, EachHasAPrediction) {
  const probe::Words words = probe::measure_words({});
  EXPECT_THAT(words.faults, IsEmpty());
  EXPECT_GT(words.figures.size(), 25U);
  for (const probe::Figure& figure : words.figures) {
    EXPECT_GT(probe::predicted(figure.name), 0) << figure.name;
    EXPECT_GE(figure.value, 0) << figure.name;
  }
  EXPECT_THAT(probe::derive_costs(words).missing, IsEmpty());
  for (const char* const name : {"graph_node_64B_1", "graph_node_4096B_132", "launch_512B_16"})
    EXPECT_GT(probe::predicted(name), 0) << name;
  EXPECT_EQ(probe::predicted("nothing"), 0);
}

TEST(DeviceWords, GiveTheCostsThatAutoPricesWith) {
  const auto ns = [](const char* name, double value) {
    return probe::Figure{.name = name, .unit = "ns", .value = value};
  };
  probe::Words words{.device = "a GPU", .blocks = 12, .figures = {}, .faults = {}};
  words.figures = {ns("l2_load", 150),
                   ns("barrier", 20),
                   ns("fence_gpu_stores", 260),
                   ns("one_way_ll16_small", 900),
                   ns("one_way_ll16_8K", 900 + 819.2),
                   ns("one_way_ll128_small", 1100),
                   ns("one_way_ll128_8K", 1100 + 819.2),
                   ns("one_way_slots_gpu_small", 1500),
                   {.name = "copy_1", .unit = "GB/s", .value = 100},
                   {.name = "copy_4", .unit = "GB/s", .value = 200},
                   {.name = "copy_8", .unit = "GB/s", .value = 300},
                   {.name = "copy_all", .unit = "GB/s", .value = 300}};
  const probe::DerivedCosts derived = probe::derive_costs(words);
  EXPECT_THAT(derived.missing, IsEmpty());
  const DeviceCosts& costs = derived.costs;
  EXPECT_DOUBLE_EQ(costs.packets.alpha_ns, 1000);
  EXPECT_DOUBLE_EQ(costs.packets.step_ns, 300);
  EXPECT_NEAR(costs.packets.beta_ns_per_byte, 0.05, 1e-9);
  EXPECT_DOUBLE_EQ(costs.slots.alpha_ns, 1200);
  EXPECT_DOUBLE_EQ(costs.slots.step_ns, 300);
  // Four blocks, of six.
  EXPECT_DOUBLE_EQ(costs.slots.beta_ns_per_byte, 4 / 200.0);
  words.figures.erase(words.figures.begin());
  EXPECT_THAT(probe::derive_costs(words).missing, ElementsAre("l2_load"));
}

}  // namespace
}  // namespace tutti::test
