// SPDX-License-Identifier: Apache-2.0
// A line of LL128 that eight threads store and eight load: every interleaving of their accesses,
// a step each, with the loads in several orders. The threads' vote is that all loads are made.
#include "transports/packets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti {
namespace {

using Lines = Packets<PacketFormat::kLl128>;
constexpr LineShape kShape = line_shape(PacketFormat::kLl128);
constexpr std::uint32_t kThreads = kShape.threads;
constexpr std::uint32_t kUnits = kUnitsPerThread<PacketFormat::kLl128>;
constexpr std::uint64_t kOld = 1, kNew = 2;  // messages, whose numbers are their epochs

std::uint64_t value_of(std::uint64_t message, std::uint32_t unit) { return message * 1000 + unit; }

void store(Word* line, std::uint32_t part, std::uint64_t message) {
  std::uint64_t units[kUnits];
  for (std::uint32_t i = 0; i < kUnits; ++i) units[i] = value_of(message, part * kUnits + i);
  Lines::store(line, part, message, units);
}

bool holds_new(std::uint32_t part, const LinePart& loaded) {
  std::uint64_t units[kUnits];
  Lines::payload(loaded, units);
  for (std::uint32_t i = 0; i < kUnits; ++i) {
    const std::uint32_t unit = part * kUnits + i;
    if (unit < kShape.units && units[i] != value_of(kNew, unit)) return false;
  }
  return true;
}

// Of all interleavings: how often the line had come, and was then not what was sent, by the loads
// that showed the flag and by those made again.
struct Outcomes {
  int came = 0, torn = 0, wrong = 0;
};

// `steps`: l loads the next part, s stores the next, w stores the whole line. The first loads and
// stores are of parts `first_load` and `first_store`.
void run(const std::string& steps, std::uint32_t first_load, std::uint32_t first_store,
         Outcomes& outcomes) {
  Word line[kShape.bytes / sizeof(Word)];
  for (std::uint32_t part = 0; part < kThreads; ++part) store(line, part, kOld);
  LinePart loaded[kThreads];
  std::uint32_t loads = first_load, stores = first_store;
  for (const char step : steps) {
    if (step == 'l') {
      const std::uint32_t part = loads++ % kThreads;
      loaded[part] = Lines::fetch(line, part);
    }
    for (std::uint32_t n = step == 'l' ? 0 : step == 's' ? 1 : kThreads; n > 0; --n)
      store(line, stores++ % kThreads, kNew);
    if (loads != first_load + kThreads) continue;
    // All loads are made: the threads vote.
    bool came = true, whole = true, right = true;
    for (std::uint32_t part = 0; part < kThreads; ++part) {
      came = came && Lines::has_come(loaded[part], part, kNew);
      whole = whole && holds_new(part, loaded[part]);
      right = right && holds_new(part, Lines::reload(line, part, loaded[part]));
    }
    if (!came) return;
    outcomes.came += 1;
    outcomes.torn += whole ? 0 : 1;
    outcomes.wrong += right ? 0 : 1;
    return;
  }
}

Outcomes run_all(std::string steps, std::uint32_t first_store) {
  Outcomes outcomes;
  std::ranges::sort(steps);
  do {
    for (std::uint32_t first_load = 0; first_load < kThreads; ++first_load)
      run(steps, first_load, first_store, outcomes);
  } while (std::ranges::next_permutation(steps).found);
  return outcomes;
}

TEST(PacketLine, IsRightByTheSecondLoadIfTheFlagIsNotSeenBeforeThePayload) {
  for (const char* const steps : {"llllllllw", "llllllllssssssss"}) {
    const Outcomes outcomes = run_all(steps, 0);
    EXPECT_GT(outcomes.came, 0) << steps;
    EXPECT_GT(outcomes.torn, 0) << steps << ": no load was older than the flag";
    EXPECT_EQ(outcomes.wrong, 0) << steps;
  }
}

// What a fabric must not do where LL128 runs.
TEST(PacketLine, IsWrongIfTheFlagIsSeenBeforeThePayload) {
  EXPECT_GT(run_all("llllllllssssssss", kThreads - 1).wrong, 0);
}

}  // namespace
}  // namespace tutti
