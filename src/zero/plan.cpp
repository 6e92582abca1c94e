// SPDX-License-Identifier: Apache-2.0
#include "zero/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "zero/tree.hpp"

namespace tutti::zero {
namespace {

// Bounds that no sensible configuration meets; they keep products within an int.
constexpr int kMostSlots = 1 << 24;
constexpr int kMostUnitsAtOnce = 1 << 16;

void check_range(const char* name, int value, int least, int most) {
  if (value >= least && value <= most) return;
  throw std::invalid_argument(std::string("Config::") + name + " is " + std::to_string(value) +
                              "; it may be " + std::to_string(least) + " to " +
                              std::to_string(most));
}

bool power_of_two(float value) {
  int exponent = 0;
  return std::isfinite(value) && std::frexp(value, &exponent) == 0.5F;
}

bool reduces_each_microstep(const Config& config) {
  if (config.sync != Config::Sync::kByStage) return config.sync == Config::Sync::kEachMicrostep;
  return config.stage == Stage::kZero2 || config.stage == Stage::kZero3;
}

void plan_sums(Plan& plan, int units) {
  const Config& config = plan.config;
  const bool several = plan.each_microstep && config.microsteps > 1;
  const auto microsteps = static_cast<std::uint64_t>(config.microsteps);
  const auto each = static_cast<std::uint64_t>(plan.slots.each());
  plan.reductions = several ? config.microsteps : 1;
  plan.leaves = several ? each : each * microsteps;
  const bool sharded = config.stage == Stage::kZero2 || config.stage == Stage::kZero3;
  if (!sharded || (!several && microsteps > 1))
    plan.whole_sums = tree::positions_of_sums(config.order, several ? 1 : microsteps);
  if (plan.whole_sums == 0 || several)
    plan.shard_sums =
        tree::positions_of_sums(config.order, static_cast<std::uint64_t>(plan.reductions));

  const int depth = tree::positions(config.order, plan.leaves);
  const int open = std::min(config.units_in_use, units);
  const bool sends = plan.ranks > 1;
  plan.sum_buffers = open * (depth - std::min(depth, plan.whole_sums));
  if (sends && plan.whole_sums == 0 && !plan.narrow_reduce() && config.overlap)
    ++plan.sum_buffers;  // one is filled while the one before it is sent
  if (sends && plan.narrow_reduce()) plan.wire_buffers = config.overlap ? 2 : 1;
}

}  // namespace

void check_config(const Config& config) {
  check_range("slots", config.slots, 1, kMostSlots);
  check_range("microsteps", config.microsteps, 1, config.slots);
  check_range("prefetch", config.prefetch, 0, kMostUnitsAtOnce);
  check_range("units_in_use", config.units_in_use, 1, kMostUnitsAtOnce);
  check_range("loss_scaling.growth_steps", config.loss_scaling.growth_steps, 1,
              std::numeric_limits<int>::max());
  if (!(config.clip_norm >= 0) || !std::isfinite(config.clip_norm))
    throw std::invalid_argument("Config::clip_norm is " + std::to_string(config.clip_norm) +
                                "; it may be 0 (no clipping) or a positive number");
  const float scale = config.loss_scaling.initial;
  if (scale != 0 && !(scale > 0 && power_of_two(scale)))
    throw std::invalid_argument("Config::loss_scaling.initial is " + std::to_string(scale) +
                                "; it may be 0 (no scaling) or a power of two");
}

int shards_of(const Config& config, int ranks) {
  if (ranks < 1)
    throw std::invalid_argument("a number of ranks is at least 1, not " + std::to_string(ranks));
  if (config.shard_ranks == 0) return ranks;
  if (config.shard_ranks < 0 || ranks % config.shard_ranks != 0)
    throw std::invalid_argument("Config::shard_ranks is " + std::to_string(config.shard_ranks) +
                                ", which does not divide " + std::to_string(ranks) + " ranks");
  return config.shard_ranks;
}

Plan make_plan(const Config& config, int ranks, const Layout& layout) {
  check_config(config);
  if (layout.elements() == 0)
    throw std::invalid_argument("the model's parameters have no elements");
  Plan plan;
  plan.config = config;
  plan.ranks = ranks;
  plan.shard_ranks = shards_of(config, ranks);
  plan.groups = ranks / plan.shard_ranks;
  plan.each_microstep = reduces_each_microstep(config);
  plan.slots = {config.slots, config.microsteps, ranks, plan.shard_ranks, plan.each_microstep};
  if (const std::string text = why_not(plan.slots, config.order); !text.empty())
    throw std::invalid_argument(text);

  plan.whole_state = config.stage == Stage::kDdp;
  plan.whole_parameters = config.stage != Stage::kZero3;
  plan_sums(plan, layout.units());
  plan.gathers = config.stage == Stage::kZero3 && plan.shard_ranks > 1;
  if (plan.gathers)
    plan.gather_slots = config.keep_after_forward
                            ? layout.units()
                            : std::min(layout.units(), config.units_in_use + config.prefetch);
  if (plan.groups > 1)
    plan.largest_part_elements = plan.part_elements(layout.largest_padded_elements() /
                                                    static_cast<std::uint64_t>(plan.shard_ranks));
  return plan;
}

Memory memory_of(const Plan& plan, const Layout& layout) {
  const auto count = [](int number) { return static_cast<std::uint64_t>(number); };
  const std::uint64_t whole = layout.padded_elements();
  const std::uint64_t shard = whole / count(plan.shard_ranks);
  const std::uint64_t largest = layout.largest_padded_elements();
  const std::uint64_t compute_bytes = bytes_of(plan.config.compute);
  const std::uint64_t reduce_bytes = bytes_of(plan.config.reduce);
  constexpr std::uint64_t kFloatBytes = sizeof(float);

  Memory memory;
  memory.parameters = compute_bytes * (plan.whole_parameters ? whole : shard);
  memory.gradients =
      kFloatBytes * (count(plan.whole_sums) * whole + count(plan.shard_sums) * shard);
  if (plan.updates)
    memory.optimizer = kFloatBytes * plan.optimizer_arrays() * (plan.whole_state ? whole : shard);
  memory.gathered =
      compute_bytes *
      (plan.gathers && plan.config.keep_after_forward ? whole : count(plan.gather_slots) * largest);
  memory.reducing = count(plan.sum_buffers) * largest * kFloatBytes +
                    count(plan.wire_buffers) * largest * reduce_bytes;
  if (plan.config.order == Order::kCanonical)
    memory.reducing +=
        count(plan.groups) * plan.largest_part_elements * (reduce_bytes + kFloatBytes);
  return memory;
}

void check_limit(const Memory& memory, const Config& config) {
  const std::uint64_t limit = config.memory_limit_bytes;
  if (limit == 0 || memory.total() <= limit) return;
  throw std::invalid_argument(
      "this configuration needs " + std::to_string(memory.total()) + " bytes (parameters " +
      std::to_string(memory.parameters) + ", gradients " + std::to_string(memory.gradients) +
      ", optimizer " + std::to_string(memory.optimizer) + ", gathered " +
      std::to_string(memory.gathered) + ", reducing " + std::to_string(memory.reducing) +
      "); Config::memory_limit_bytes is " + std::to_string(limit));
}

Memory memory_of(std::span<const Unit> units, const Config& config, int ranks) {
  const Layout layout(units, shards_of(config, ranks));
  return memory_of(make_plan(config, ranks, layout), layout);
}

}  // namespace tutti::zero
