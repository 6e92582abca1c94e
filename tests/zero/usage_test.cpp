// SPDX-License-Identifier: Apache-2.0
// What was sent, gathered and allocated, against the formulas of the ZeRO paper, with ==. What was
// sent is also what the library counted.
#include <algorithm>

#include "model.hpp"

namespace tutti::zero::test {
namespace {

// Bytes that each rank sends for all units once, as a ring would: (ranks - 1) / ranks of them.
struct Volume {
  std::uint64_t elements;
  int ranks;
  [[nodiscard]] std::uint64_t once(std::uint64_t bytes_each) const {
    const auto n = static_cast<std::uint64_t>(ranks);
    return elements / n * (n - 1) * bytes_each;
  }
};

constexpr int kSteps = 3;
constexpr std::uint64_t kUnits = 5;

// The engine's own counters, and the library's.
struct Measured : Usage {
  std::uint64_t library_bytes = 0;
};

// Trains, and hands the usage of the steps after the first to `check`, on each rank.
void measure(int ranks, const Config& config,
             const std::function<void(const Measured&, const Engine&)>& check) {
  Training setup{.ranks = ranks, .config = config, .steps = kSteps};
  std::vector<std::uint64_t> before(static_cast<std::size_t>(ranks));
  setup.watch = [&](Engine& engine, int rank, int done) {
    std::uint64_t& library_bytes = before[static_cast<std::size_t>(rank)];
    if (done == 1) {
      library_bytes = engine.library_bytes();
      engine.reset_usage();
    }
    if (done == kSteps) check({engine.usage(), engine.library_bytes() - library_bytes}, engine);
  };
  static_cast<void>(train(setup));
}

constexpr std::uint64_t kMeasured = kSteps - 1;

// Norm: 8 bytes of the greatest magnitude, 8 that stand for the optimizer and 24 of the sum, from
// each rank to each; fingerprints of 8 bytes after each step (train() asks for one).
std::uint64_t other_bytes(int ranks) {
  return kMeasured * static_cast<std::uint64_t>(ranks - 1) * (8 + 8 + 24 + 8);
}

TEST(ZeroUsage, BytesAreThoseOfTheFormulas) {
  for (const int ranks : {1, 2, 4})
    for (const int microsteps : {1, 2, 4}) {
      if (8 % (ranks * microsteps) != 0) continue;
      const auto g = static_cast<std::uint64_t>(microsteps);
      for (const Stage stage : {Stage::kDdp, Stage::kZero1, Stage::kZero2, Stage::kZero3})
        measure(ranks, {.stage = stage, .microsteps = microsteps},
                [&](const Measured& usage, const Engine& engine) {
                  const std::uint64_t once =
                      kMeasured * Volume{engine.layout().padded_elements(), ranks}.once(4);
                  const bool zero3 = stage == Stage::kZero3;
                  const bool sharded = zero3 || stage == Stage::kZero2;
                  const std::uint64_t reductions = sharded ? g : 1;
                  EXPECT_EQ(usage.gradient_bytes,
                            once * (reductions + (stage == Stage::kDdp ? 1 : 0)));
                  // The last step's gathers ahead are on their way too, and the first's went
                  // before.
                  EXPECT_EQ(usage.forward_gather_bytes, zero3 ? once * g : 0);
                  EXPECT_EQ(usage.backward_gather_bytes, zero3 ? once * g : 0);
                  EXPECT_EQ(usage.update_gather_bytes,
                            stage == Stage::kZero1 || stage == Stage::kZero2 ? once : 0);
                  EXPECT_EQ(usage.other_bytes, other_bytes(ranks));
                  EXPECT_EQ(usage.library_bytes, usage.gradient_bytes + usage.forward_gather_bytes +
                                                     usage.backward_gather_bytes +
                                                     usage.update_gather_bytes + usage.other_bytes);
                  EXPECT_EQ(usage.gathers, zero3 && ranks > 1 ? kMeasured * 2 * kUnits * g : 0);
                  EXPECT_EQ(usage.prefetch_hits, usage.gathers);
                });
    }
}

TEST(ZeroUsage, SendingGradientsEachMicrostepCostsAsManyReductions) {
  for (const Stage stage : {Stage::kDdp, Stage::kZero1})
    measure(2, {.stage = stage, .microsteps = 4, .sync = Config::Sync::kEachMicrostep},
            [&](const Measured& usage, const Engine& engine) {
              const std::uint64_t once =
                  kMeasured * Volume{engine.layout().padded_elements(), 2}.once(4);
              EXPECT_EQ(usage.gradient_bytes, once * (stage == Stage::kDdp ? 5 : 4));
              EXPECT_EQ(usage.library_bytes,
                        usage.gradient_bytes + usage.update_gather_bytes + usage.other_bytes);
            });
}

TEST(ZeroUsage, KeptUnitsAreGatheredOnce) {
  measure(
      4, {.microsteps = 2, .keep_after_forward = true},
      [](const Measured& usage, const Engine& engine) {
        const std::uint64_t once = kMeasured * Volume{engine.layout().padded_elements(), 4}.once(4);
        EXPECT_EQ(usage.gathers, kMeasured * kUnits * 2);
        EXPECT_EQ(usage.forward_gather_bytes, 2 * once);
        EXPECT_EQ(usage.backward_gather_bytes, 0U);
        EXPECT_EQ(usage.peak_gathered_bytes, 4 * engine.layout().padded_elements());
      });
}

TEST(ZeroUsage, NarrowNumbersHalveTheirBytes) {
  for (const Number number : {Number::kBfloat16, Number::kFloat16})
    measure(4, {.compute = number, .reduce = number},
            [](const Measured& usage, const Engine& engine) {
              const std::uint64_t once =
                  kMeasured * Volume{engine.layout().padded_elements(), 4}.once(2);
              EXPECT_EQ(usage.gradient_bytes, once);
              EXPECT_EQ(usage.forward_gather_bytes, once);
              EXPECT_EQ(usage.library_bytes, 3 * once + usage.other_bytes);
            });
}

// Inside the group as ever; between the groups each rank sends its part of its shard's sum to the
// other groups, and gets the others' totals.
TEST(ZeroUsage, GroupsExchangeShardsAlone) {
  measure(4, {.shard_ranks = 2}, [](const Measured& usage, const Engine& engine) {
    const std::uint64_t padded = engine.layout().padded_elements();
    const std::uint64_t within = Volume{padded, 2}.once(4),
                        across = 2 * Volume{padded / 2, 2}.once(4);
    EXPECT_EQ(usage.gradient_bytes, kMeasured * (within + across));
    EXPECT_EQ(usage.forward_gather_bytes, kMeasured * within);
    EXPECT_EQ(usage.library_bytes, usage.gradient_bytes + usage.forward_gather_bytes +
                                       usage.backward_gather_bytes + usage.other_bytes);
    EXPECT_EQ(engine.memory().optimizer, 8 * padded / 2);
  });
}

TEST(ZeroUsage, MemoryIsWhatWasPlanned) {
  for (const Stage stage : {Stage::kDdp, Stage::kZero1, Stage::kZero2, Stage::kZero3})
    for (const int microsteps : {1, 4})
      for (const Number number : {Number::kFloat32, Number::kBfloat16})
        for (const int shard_ranks : {0, 1}) {
          const Config config{.stage = stage,
                              .compute = number,
                              .reduce = number,
                              .microsteps = microsteps,
                              .shard_ranks = shard_ranks};
          const std::vector<Unit> units = units_of({1, 1, 1, 1, 1});
          const Memory planned = memory_of(units, config, 2);
          measure(2, config, [&](const Measured& usage, const Engine& engine) {
            const Memory& memory = engine.memory();
            EXPECT_EQ(memory.parameters, planned.parameters);
            EXPECT_EQ(memory.gradients, planned.gradients);
            EXPECT_EQ(memory.optimizer, planned.optimizer);
            EXPECT_EQ(memory.gathered, planned.gathered);
            EXPECT_EQ(memory.reducing, planned.reducing);
            EXPECT_LE(usage.peak_gathered_bytes, memory.gathered);
            EXPECT_LE(usage.peak_reducing_bytes, memory.reducing);
          });
        }
}

// With one unit in use and one ahead there are never more than two.
TEST(ZeroUsage, PeakOfGatheredUnitsIsTheirBound) {
  measure(4, {.prefetch = 1, .units_in_use = 1}, [](const Measured& usage, const Engine& engine) {
    std::uint64_t two = 0;
    for (int unit = 0; unit + 1 < engine.layout().units(); ++unit)
      two = std::max(
          two, engine.layout().padded_elements(unit) + engine.layout().padded_elements(unit + 1));
    EXPECT_EQ(usage.peak_gathered_bytes, 4 * two);
    EXPECT_EQ(usage.peak_reducing_bytes, engine.memory().reducing);
  });
}

}  // namespace
}  // namespace tutti::zero::test
