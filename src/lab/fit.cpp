// SPDX-License-Identifier: Apache-2.0
#include "lab/fit.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

constexpr int kMostSteps = 15;
constexpr int kMostDampings = 5;
constexpr double kFirstDamping = 1e-3;
constexpr int kReweighings = 3;
constexpr double kDifference =
    0.02;                           // of a factor's logarithm, over the grain of protocols' switch
constexpr double kSettled = 1e-3;   // relative gain of a step below which the fit ends
constexpr double kMostSpreads = 3;  // a factor strays this many spreads at most

using Vector = std::vector<double>;

// Solves a*x = b for a symmetric positive definite a (row by row), in place of b.
void solve(Vector a, Vector& b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t row = i + 1; row < n; ++row) {
      const double factor = a[row * n + i] / a[i * n + i];
      for (std::size_t k = i; k < n; ++k) a[row * n + k] -= factor * a[i * n + k];
      b[row] -= factor * b[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
}

double square_sum(const Vector& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

class Fit {
 public:
  explicit Fit(const FitProblem& problem)
      : problem_(problem), weights_(problem.measured.size(), 1.0) {}

  Result<FitResult> run() {
    Vector x(problem_.spreads.size(), 0.0);
    FitResult result;
    TUTTI_TRY_ASSIGN(const Vector start, residuals_at(x));
    result.cost_before = square_sum(start);
    TUTTI_TRY(descend(x, result));
    for (int again = 0; problem_.outliers && again < kReweighings; ++again) {
      TUTTI_TRY(weigh(x));
      TUTTI_TRY(descend(x, result));
    }
    for (std::size_t j = 0; j < x.size(); ++j) {
      result.factors.push_back(std::exp(x[j]));
      result.at_bound.push_back(std::abs(x[j]) >= most(j));
    }
    return result;
  }

 private:
  // Steps until none gains; with the weights as they are.
  [[nodiscard]] Status descend(Vector& x, FitResult& result) {
    damping_ = kFirstDamping;
    TUTTI_TRY_ASSIGN(Vector residuals, residuals_at(x));
    double cost = square_sum(residuals);
    for (int steps = 0; steps < kMostSteps; ++steps, ++result.steps) {
      TUTTI_TRY_ASSIGN(const bool better, step(x, residuals, cost));
      if (!better) break;
    }
    result.cost_after = cost;
    return {};
  }

  // So that the square of a point's residual becomes its size where that is far beyond the noise.
  [[nodiscard]] Status weigh(const Vector& x) {
    std::ranges::fill(weights_, 1.0);
    TUTTI_TRY_ASSIGN(const Vector residuals, residuals_at(x));
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = std::pow(1 + residuals[i] * residuals[i], -0.25);
    return {};
  }

  // Returns the residuals of the data, then those of the factors.
  [[nodiscard]] Result<Vector> residuals_at(const Vector& x) const {
    Vector factors;
    for (const double each : x) factors.push_back(std::exp(each));
    TUTTI_TRY_ASSIGN(const Vector predicted, problem_.predict(factors));
    Vector residuals;
    for (std::size_t i = 0; i < predicted.size(); ++i)
      residuals.push_back(weights_[i] * std::log(predicted[i] / problem_.measured[i]) /
                          problem_.noise);
    for (std::size_t j = 0; j < x.size(); ++j)
      residuals.push_back(x[j] / std::log(problem_.spreads[j]));
    return residuals;
  }

  // A factor's logarithm at most.
  [[nodiscard]] double most(std::size_t j) const {
    return kMostSpreads * std::log(problem_.spreads[j]);
  }

  // J^T J and -J^T r at x.
  [[nodiscard]] Status normal_equations(const Vector& x, const Vector& residuals, Vector& left,
                                        Vector& right) const {
    const std::size_t n = x.size();
    std::vector<Vector> columns;
    for (std::size_t j = 0; j < n; ++j) {
      Vector moved = x;
      moved[j] += kDifference;
      TUTTI_TRY_ASSIGN(Vector column, residuals_at(moved));
      for (std::size_t i = 0; i < column.size(); ++i)
        column[i] = (column[i] - residuals[i]) / kDifference;
      columns.push_back(std::move(column));
    }
    left.assign(n * n, 0);
    right.assign(n, 0);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = 0; i < residuals.size(); ++i) {
        right[j] -= columns[j][i] * residuals[i];
        for (std::size_t k = 0; k < n; ++k) left[j * n + k] += columns[j][i] * columns[k][i];
      }
    return {};
  }

  // One damped step; false where none gains.
  [[nodiscard]] Result<bool> step(Vector& x, Vector& residuals, double& cost) {
    Vector left, right;
    TUTTI_TRY(normal_equations(x, residuals, left, right));
    const std::size_t n = x.size();
    for (int attempt = 0; attempt < kMostDampings; ++attempt, damping_ *= 4) {
      Vector damped = left, move = right;
      for (std::size_t j = 0; j < n; ++j) damped[j * n + j] *= 1 + damping_;
      solve(std::move(damped), move);
      Vector next = x;
      for (std::size_t j = 0; j < n; ++j) {
        next[j] = std::clamp(x[j] + move[j], -most(j), most(j));
      }
      TUTTI_TRY_ASSIGN(Vector at_next, residuals_at(next));
      const double next_cost = square_sum(at_next);
      if (next_cost >= cost) continue;
      const bool settled = next_cost > cost * (1 - kSettled);
      x = std::move(next);
      residuals = std::move(at_next);
      cost = next_cost;
      damping_ = std::max(1e-6, damping_ / 8);
      return !settled;
    }
    return false;
  }

  const FitProblem& problem_;
  Vector weights_;  // of the data
  double damping_ = kFirstDamping;
};

}  // namespace

Result<FitResult> fit_factors(const FitProblem& problem) {
  if (problem.measured.size() <= problem.spreads.size())
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} points for {} factors; a fit needs more points than factors",
                                  problem.measured.size(), problem.spreads.size()));
  return Fit(problem).run();
}

}  // namespace tutti
