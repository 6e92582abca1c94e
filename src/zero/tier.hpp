// SPDX-License-Identifier: Apache-2.0
// Where the optimizer's arrays lie between updates: the seam for a second memory, such as the
// host's beside a device, and for disk.
//
// Whoever needs arrays goes through the units in order and acquires one at a time; an update tells
// which comes next. So a tier needs room for two units in memory, whatever the model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "zero/block.hpp"

namespace tutti::zero {

class Tier {
 public:
  virtual ~Tier() = default;
  // Starts to bring a unit's floats into memory and does not wait; a hint.
  virtual void prefetch(int unit) = 0;
  // The unit's floats, which may be read and written until release(). Throws if they cannot be had.
  [[nodiscard]] virtual float* acquire(int unit) = 0;
  // What was written is kept. Reports what failed from the next acquire().
  virtual void release(int unit) noexcept = 0;
  // What it allocated.
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
};

// All of them in memory, at first 0.
[[nodiscard]] std::unique_ptr<Tier> make_memory_tier(std::span<const std::uint64_t> unit_floats);

}  // namespace tutti::zero
