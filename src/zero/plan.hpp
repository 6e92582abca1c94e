// SPDX-License-Identifier: Apache-2.0
// What a configuration comes to: how often gradients are reduced, how many sums and buffers that
// takes, and how many bytes. Everything that the engine allocates is counted here first. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "zero/slots.hpp"

namespace tutti::zero {

// A model's sums of gradients are named by where they live:
//   whole sum    memory for all gradients of the model; survives microsteps
//   shard sum    memory for this rank's shards of all gradients; survives microsteps
//   sum buffer   memory for the largest unit, from the pool; a unit gives it back when its sum is
//                reduced or added to another
// Within a unit's stack of sums the lowest positions lie in whole sums, if there are any, and the
// others in sum buffers.
struct Plan {
  Config config;
  int ranks = 1;
  int shard_ranks = 1;  // ranks that share a replica of the model
  int groups = 1;       // replicas
  bool each_microstep = false;
  SlotShape slots;

  bool whole_parameters = true;  // all parameters are kept, and not this rank's shards alone
  bool whole_state = false;      // every rank updates all parameters (kDdp)
  bool updates = true;           // or do others, as servers do for a worker?
  std::uint64_t leaves = 1;      // slots that are summed before a reduction
  int reductions = 1;            // of each unit, a step
  int whole_sums = 0;
  int shard_sums = 0;
  int sum_buffers = 0;
  int wire_buffers = 0;  // of the largest unit in 16-bit numbers
  int gather_slots = 0;  // of the largest unit; where all units stay, one of its own size for each
  bool gathers = false;  // are parameters gathered for each use (kZero3)?
  // Of a shard's sum between groups: the elements that one group sums, and room for all of them.
  std::uint64_t largest_part_elements = 0;

  [[nodiscard]] bool narrow_compute() const { return config.compute != Number::kFloat32; }
  // Of fp32 numbers that the optimizer keeps of each element: two moments, and the parameter where
  // the compute type has 16 bits.
  [[nodiscard]] std::uint64_t optimizer_arrays() const { return narrow_compute() ? 3 : 2; }
  [[nodiscard]] bool narrow_reduce() const { return config.reduce != Number::kFloat32; }
  [[nodiscard]] std::uint64_t part_elements(std::uint64_t shard_elements) const {
    const auto parts = static_cast<std::uint64_t>(groups);
    return (shard_elements + parts - 1) / parts;
  }
};

// Throws std::invalid_argument for a number that is out of range for any ranks.
void check_config(const Config& config);
// Throws std::invalid_argument if the configuration is wrong for so many ranks.
[[nodiscard]] Plan make_plan(const Config& config, int ranks, const Layout& layout);
// Shards of a configuration: its shard_ranks, checked.
[[nodiscard]] int shards_of(const Config& config, int ranks);
[[nodiscard]] Memory memory_of(const Plan& plan, const Layout& layout);
// Throws std::invalid_argument if it is more than the configuration's limit.
void check_limit(const Memory& memory, const Config& config);

}  // namespace tutti::zero
