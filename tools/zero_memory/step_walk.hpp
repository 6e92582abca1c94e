// SPDX-License-Identifier: Apache-2.0
// Walks a training step unit by unit: one queue of computation, one of communication.
// advise.hpp states the rule. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::zero_memory {

// Seconds. A collective of 0 is not made.
struct UnitWork {
  double forward = 0, backward = 0;
  double gather = 0;  // before forward and before backward
  double reduce = 0;  // after backward
};
struct StepWalk {
  double compute = 0;        // sum of the work
  double communication = 0;  // sum of the collectives
  double total = 0;          // until both queues are empty
};
// `inner`: microsteps but the last, which is `last`; both list the units in forward order.
// `prefetch`: is a unit gathered while the one before it computes, or when it is needed?
[[nodiscard]] StepWalk walk_step(const std::vector<UnitWork>& inner,
                                 const std::vector<UnitWork>& last, std::uint64_t microsteps,
                                 bool prefetch = true);

}  // namespace tutti::zero_memory
