// SPDX-License-Identifier: Apache-2.0
// Looking at what all ranks keep together: one parameter's values, and a number that stands for all
// bits. Collective; the engine's thread.
#pragma once

#include <cstdint>
#include <span>

#include "zero/links.hpp"
#include "zero/state.hpp"

namespace tutti::zero {

// What is kept, and by whom.
struct Kept {
  const Plan& plan;
  const Layout& layout;
  std::span<const Unit> units;
  State& state;
  Links& links;
};

void read_parameter(const Kept& kept, int unit, int parameter, std::span<float> values);

// A sum over all elements of all arrays of a mix of the parameter's name, the array, the element's
// number in the parameter and its bits: it has no order, so shards add up. Not cryptographic.
[[nodiscard]] std::uint64_t fingerprint_of(const Kept& kept);

}  // namespace tutti::zero
