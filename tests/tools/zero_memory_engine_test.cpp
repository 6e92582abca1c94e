// SPDX-License-Identifier: Apache-2.0
// The calculators and the engine (src/zero) state the same bytes, for every stage, number of ranks
// and of microsteps, and with shards inside hosts: padding, state and unit buffers; and what an
// engine sends in a step is the volume that is stated.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <thread>
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
  zero::Number compute = zero::Number::kFloat32;
  int slots_each = 1;  // of a rank in a microstep
};

zero::Config config_of(const Case& of) {
  zero::Config config;
  config.stage = static_cast<zero::Stage>(of.stage);
  config.order = of.order;
  config.compute = of.compute;
  config.slots = of.ranks * of.microsteps * of.slots_each;
  config.microsteps = of.microsteps;
  config.shard_ranks = of.shard_ranks;
  return config;
}

Sharding sharding_of(const Case& of) {
  return {of.stage, static_cast<std::uint64_t>(of.ranks),
          static_cast<std::uint64_t>(of.shard_ranks), static_cast<std::uint64_t>(of.microsteps)};
}

// The sums that the groups of hybrid sharding exchange in canonical order: of each group a part of
// the shard, as it came and in fp32.
std::uint64_t group_bytes(const Case& of, std::uint64_t largest_shard) {
  const std::uint64_t groups = sharding_of(of).replicas();
  if (of.order != zero::Order::kCanonical || groups == 1) return 0;
  return groups * ((largest_shard + groups - 1) / groups) * 2 * sizeof(float);
}

void compare(const Case& of) {
  const zero::Config config = config_of(of);
  const zero::Memory engine = zero::memory_of(engine_units(), config, of.ranks);

  // Gradients are summed in fp32, in canonical order by a tree that keeps a sum for each level that
  // is open; 16-bit parameters have a master copy.
  Accounting accounting = kFloat32;
  if (of.compute != zero::Number::kFloat32) accounting = {2, 4, 12};
  if (of.order == zero::Order::kCanonical)
    accounting.gradient *= static_cast<std::uint64_t>(
        std::max(1, static_cast<int>(std::bit_width(unsigned(of.microsteps))) - 1));
  const Sharding sharding = sharding_of(of);
  const std::vector<std::uint64_t> units = padded_units(kUnitElements, sharding.shards());
  const ExactStateBytes ours = exact_state_bytes(units, of.stage, accounting, sharding.shards());
  EXPECT_EQ(ours.parameters, engine.parameters);
  EXPECT_EQ(ours.gradients, engine.gradients);
  EXPECT_EQ(ours.optimizer, engine.optimizer);
  EXPECT_EQ(ours.total(), engine.state());

  // A buffer of gradients is fp32, however many sums the state has of each.
  Accounting of_buffers = accounting;
  of_buffers.gradient = sizeof(float);
  const auto slots = static_cast<unsigned>(of.slots_each);
  const auto sums = of.order == zero::Order::kCanonical
                        ? static_cast<std::uint64_t>(std::bit_width(slots))
                        : std::min<std::uint64_t>(slots, 2);
  const TransientBytes transient =
      transient_bytes(units, of.stage, of_buffers,
                      {static_cast<std::uint64_t>(config.units_in_use),
                       static_cast<std::uint64_t>(config.prefetch), sums});
  EXPECT_EQ(transient.gathered, engine.gathered);
  const std::uint64_t largest_shard = *std::ranges::max_element(units) / sharding.shards();
  // DDP and ZeRO-1 sum in the state; what they need beside it is the tree's alone.
  if (shards_gradients(of.stage)) {
    EXPECT_EQ(transient.reducing + group_bytes(of, largest_shard), engine.reducing);
  }
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
        for (const zero::Order order : {zero::Order::kFast, zero::Order::kCanonical})
          for (const int slots_each : {2, 4}) {
            if (!shards_gradients(stage)) continue;
            compare({stage, 4, 0, microsteps, order, compute, slots_each});
            compare({stage, 4, 2, microsteps, order, compute, slots_each});
          }
      }
}

// A step in which the model computes nothing.
void step_through(zero::Engine& engine) {
  const int units = engine.layout().units();
  for (int micro = 0; micro < engine.microsteps(); ++micro) {
    for (int unit = 0; unit < units; ++unit)
      static_cast<void>(engine.use(unit, zero::Pass::kForward));
    for (int unit = units; unit-- > 0;) {
      const auto scope = engine.use(unit, zero::Pass::kBackward);
      const zero::Range slots = engine.slots(micro);
      for (std::uint64_t slot = slots.begin; slot < slots.end; ++slot)
        static_cast<void>(engine.gradients(unit));
    }
  }
  engine.step(zero::AdamW{});
}

// The bytes of the second of two steps, of rank 0.
zero::Usage usage_of(const Case& of) {
  std::vector<Communicator> comms = Communicator::init_all(of.ranks);
  zero::Usage usage;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < of.ranks; ++rank)
    threads.emplace_back([&, rank] {
      Communicator& comm = comms[static_cast<std::size_t>(rank)];
      try {
        zero::Engine engine(comm, engine_units(), config_of(of));
        engine.initialize([](const zero::Parameter&, std::uint64_t, std::span<float> values) {
          std::ranges::fill(values, 1.0F);
        });
        step_through(engine);
        engine.reset_usage();
        step_through(engine);
        if (rank == 0) usage = engine.usage();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        comm.abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return usage;
}

TEST(EngineVolume, IsThatOfTheCalculators) {
  for (const Stage stage : kStages)
    for (const int microsteps : {1, 2, 4})
      for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(fmt::format("{}, G = {}, {} ranks", name_of(stage), microsteps, ranks));
        for (const int shard_ranks : {0, 2}) {
          if (shard_ranks > 0 && ranks < 4) continue;
          const Case of{stage, ranks, shard_ranks, microsteps, zero::Order::kCanonical};
          const Sharding sharding = sharding_of(of);
          std::uint64_t elements = 0;
          for (const std::uint64_t padded : padded_units(kUnitElements, sharding.shards()))
            elements += padded;
          const VolumeBytes stated = volume_bytes(elements, kFloat32, sharding);
          const zero::Usage sent = usage_of(of);
          const std::uint64_t gathered =
              sent.forward_gather_bytes + sent.backward_gather_bytes + sent.update_gather_bytes;
          // DDP's gathering is a part of its all-reduce.
          const double of_ddp = stage == Stage::kDdp ? stated.gathered : 0;
          EXPECT_EQ(static_cast<double>(sent.gradient_bytes),
                    stated.gradients + stated.replicas + of_ddp);
          EXPECT_EQ(static_cast<double>(gathered), stated.gathered - of_ddp);
        }
      }
}

}  // namespace
}  // namespace tutti::zero_memory
