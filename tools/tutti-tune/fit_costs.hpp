// SPDX-License-Identifier: Apache-2.0
// Costs from measured times of plans: factors on the library's own, by relative residuals. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "model/machine_profile.hpp"
#include "tutti-tune/plans.hpp"

namespace tutti::tune {

struct Fitted {
  CostSet costs;
  double residual_before = 0;          // median of |predicted / measured - 1| with the costs so far
  double residual = 0;                 // and with these
  std::vector<double> predicted_us{};  // by sample, with these
  // "flagged alpha_ns": as far from the library's own as a fit goes, so not to be trusted.
  std::vector<std::string> at_bound{};
};

// Errors: those of the plans' names; kInvalidArgument for too few samples.
[[nodiscard]] Result<Fitted> fit_costs(std::span<const Sample> samples, int cores);

}  // namespace tutti::tune
