// SPDX-License-Identifier: Apache-2.0
// A fit of few factors to many measured times, by relative residuals.
//
// Minimises   sum_i (log(predicted_i / measured_i) / noise)^2 + sum_j (log f_j / log spread_j)^2
//
// over factors f_j > 0: a factor scales constants that are known to within `spread`, so that what
// the data do not say stays where it was, and nothing becomes negative. Gauss-Newton with
// Levenberg's damping; derivatives by differences, since a prediction is a longest path.
// Pure; any thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace tutti {

struct FitProblem {
  std::vector<double> measured;  // > 0, in any unit
  std::vector<double> spreads;   // > 1, one a factor
  // Predicted times for given factors, in the order and unit of `measured`, > 0.
  std::function<Result<std::vector<double>>(std::span<const double>)> predict;
  // The noise of measurement and model together: residuals of this size count as none.
  double noise = 0.1;
  // Count residuals far beyond the noise by their size, not its square: some measurements went
  // wrong, and should not bend what explains the others.
  bool outliers = false;
};

struct FitResult {
  std::vector<double> factors;
  std::vector<bool> at_bound;  // of each: it strayed as far as it may, the data ask more
  double cost_before = 0, cost_after = 0;  // of the sum above
  int steps = 0;
};

// kInvalidArgument where there are no more points than factors; the first error of predict().
[[nodiscard]] Result<FitResult> fit_factors(const FitProblem& problem);

}  // namespace tutti
