// SPDX-License-Identifier: Apache-2.0
// The calculators and the engine (src/zero) state the same bytes: padding, state and the buffers of
// gathered units, for every stage, number of ranks and of microsteps, and with shards inside hosts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "model_state.hpp"
#include "tutti/zero.hpp"

namespace tutti::zero_memory {
namespace {

// Of awkward sizes: some smaller than their padding, one empty.
constexpr std::uint64_t kUnitElements[] = {16'385, 97, 49'984, 1, 0, 4'096};

std::vector<zero::Unit> engine_units() {
  std::vector<zero::Unit> units;
  for (const std::uint64_t elements : kUnitElements) {
    const std::string name = fmt::format("unit{}", units.size());
    units.push_back({name, {{name + ".weight", {static_cast<std::int64_t>(elements)}}}});
  }
  return units;
}

struct Case {
  Stage stage;
  int ranks, shard_ranks, microsteps;
  zero::Order order;
  zero::Number compute;
};

void compare(const Case& of) {
  zero::Config config;
  config.stage = static_cast<zero::Stage>(of.stage);
  config.order = of.order;
  config.compute = of.compute;
  config.slots = of.ranks * of.microsteps;
  config.microsteps = of.microsteps;
  config.shard_ranks = of.shard_ranks;
  const zero::Memory engine = zero::memory_of(engine_units(), config, of.ranks);

  // Gradients are summed in fp32, in canonical order by a tree that keeps a sum for each level that
  // is open; 16-bit parameters have a master copy.
  Accounting accounting = kFloat32;
  if (of.compute != zero::Number::kFloat32) accounting = {2, 4, 12};
  if (of.order == zero::Order::kCanonical)
    accounting.gradient *= static_cast<std::uint64_t>(
        std::max(1, static_cast<int>(std::bit_width(unsigned(of.microsteps))) - 1));
  const Sharding sharding{of.stage, static_cast<std::uint64_t>(of.ranks),
                          static_cast<std::uint64_t>(of.shard_ranks)};
  const std::vector<std::uint64_t> units = padded_units(kUnitElements, sharding.shards());
  const ExactStateBytes ours = exact_state_bytes(units, of.stage, accounting, sharding.shards());
  const TransientBytes transient =
      transient_bytes(units, of.stage, accounting, static_cast<std::uint64_t>(config.units_in_use),
                      static_cast<std::uint64_t>(config.prefetch));
  EXPECT_EQ(ours.parameters, engine.parameters);
  EXPECT_EQ(ours.gradients, engine.gradients);
  EXPECT_EQ(ours.optimizer, engine.optimizer);
  EXPECT_EQ(ours.total(), engine.state());
  EXPECT_EQ(transient.gathered, engine.gathered);
}

TEST(EngineMemory, IsThatOfTheCalculators) {
  const std::vector<zero::Unit> units = engine_units();
  for (const int ranks : {2, 3, 4, 8})
    for (int unit = 0; unit < static_cast<int>(units.size()); ++unit)
      EXPECT_EQ(zero::Layout(units, ranks).padded_elements(unit),
                padded_elements(kUnitElements[unit], static_cast<std::uint64_t>(ranks)));
  for (const Stage stage : kStages)
    for (const int microsteps : {1, 2, 4})
      for (const zero::Number compute : {zero::Number::kFloat32, zero::Number::kBfloat16}) {
        SCOPED_TRACE(fmt::format("{}, G = {}", name_of(stage), microsteps));
        for (const int ranks : {2, 3, 5, 8})
          compare({stage, ranks, 0, microsteps, zero::Order::kFast, compute});
        for (const int ranks : {2, 4, 8})
          compare({stage, ranks, 0, microsteps, zero::Order::kCanonical, compute});
        compare({stage, 8, 4, microsteps, zero::Order::kFast, compute});
        compare({stage, 8, 2, microsteps, zero::Order::kCanonical, compute});
      }
}

}  // namespace
}  // namespace tutti::zero_memory
