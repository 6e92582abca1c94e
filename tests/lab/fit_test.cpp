// SPDX-License-Identifier: Apache-2.0
#include "lab/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace tutti {
namespace {

using ::testing::HasSubstr;

// alpha*a + beta*b*n, or a second such line where that is less: as of two protocols.
double time_of(std::span<const double> f, double n) {
  return std::min(10 * f[0] + 1e-2 * f[1] * n, 30 * f[2] + 1e-3 * f[3] * n);
}

FitProblem problem_of(std::vector<double> truth, double noise) {
  FitProblem problem;
  problem.spreads = {3, 3, 3, 3};
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  std::normal_distribution<double> error(0, noise);
  std::vector<double> sizes;
  for (double n = 1; n < 1e7; n *= 4) sizes.push_back(n);
  for (const double n : sizes)
    problem.measured.push_back(time_of(truth, n) * std::exp(error(random)));
  problem.predict = [sizes](std::span<const double> factors) -> Result<std::vector<double>> {
    std::vector<double> times;
    for (const double n : sizes) times.push_back(time_of(factors, n));
    return times;
  };
  return problem;
}

TEST(Fit, FindsTheFactorsThatMadeTheData) {
  const std::vector<double> truth{2, 0.5, 1.5, 0.4};
  FitProblem problem = problem_of(truth, 0);
  problem.noise = 0.01;
  const FitResult fit = fit_factors(problem).value();
  for (std::size_t i = 0; i < truth.size(); ++i) EXPECT_NEAR(fit.factors[i], truth[i], 0.02) << i;
  EXPECT_LT(fit.cost_after, fit.cost_before / 100);
}

TEST(Fit, NoiseMovesFactorsByAboutItsSize) {
  const std::vector<double> truth{2, 0.5, 1.5, 0.4};
  const FitResult fit = fit_factors(problem_of(truth, 0.05)).value();
  for (std::size_t i = 0; i < truth.size(); ++i)
    EXPECT_NEAR(std::log(fit.factors[i] / truth[i]), 0, 0.15) << i;
}

TEST(Fit, WhatTheDataDoNotSayStays) {
  FitProblem problem = problem_of({2, 0.5, 1.5, 0.4}, 0);
  // Only sizes at which the first line's constant part counts.
  problem.measured.resize(5);
  const auto all = problem.predict;
  problem.predict = [all](std::span<const double> f) -> Result<std::vector<double>> {
    auto times = all(f).value();
    times.resize(5);
    return times;
  };
  const FitResult fit = fit_factors(problem).value();
  EXPECT_NEAR(fit.factors[0], 2, 0.1);
  EXPECT_NEAR(fit.factors[3], 1, 1e-3);
}

// Another program had the machine while two of the points were measured.
TEST(Fit, OutliersDoNotBendWhatExplainsTheOthers) {
  FitProblem problem;
  problem.spreads = {3, 3};
  std::vector<double> sizes;
  for (double n = 1; n < 1e7; n *= 4) sizes.push_back(n);
  problem.predict = [sizes](std::span<const double> f) -> Result<std::vector<double>> {
    std::vector<double> times;
    for (const double n : sizes) times.push_back(10 * f[0] + 1e-2 * f[1] * n);
    return times;
  };
  problem.measured = problem.predict(std::vector<double>{2, 0.5}).value();
  problem.measured[1] *= 8;
  problem.measured[10] *= 8;
  const FitResult bent = fit_factors(problem).value();
  problem.outliers = true;
  const FitResult fit = fit_factors(problem).value();
  for (const auto& [i, truth] : {std::pair<std::size_t, double>{0, 2}, {1, 0.5}}) {
    EXPECT_GT(bent.factors[i], 1.2 * truth) << i;
    EXPECT_NEAR(fit.factors[i], truth, 0.1 * truth) << i;
  }
}

TEST(Fit, FactorsStayPositiveAndWithinThreeSpreads) {
  const FitResult fit = fit_factors(problem_of({1e4, 1e-6, 1e4, 1e-6}, 0)).value();
  for (const double factor : fit.factors) {
    EXPECT_GE(factor, 1 / 27.01);
    EXPECT_LE(factor, 27.01);
  }
}

TEST(Fit, NeedsMorePointsThanFactors) {
  FitProblem problem = problem_of({1, 1, 1, 1}, 0);
  problem.measured.resize(4);
  EXPECT_THAT(fit_factors(problem).error().message, HasSubstr("4 points for 4 factors"));
}

TEST(Fit, AnErrorOfThePredictionEndsIt) {
  FitProblem problem = problem_of({1, 1, 1, 1}, 0);
  problem.predict = [](std::span<const double>) -> Result<std::vector<double>> {
    return make_error(Code::kInternalError, "no price");
  };
  EXPECT_EQ(fit_factors(problem).error().message, "no price");
}

}  // namespace
}  // namespace tutti
