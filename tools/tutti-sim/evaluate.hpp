// SPDX-License-Identifier: Apache-2.0
// Measured against predicted times: errors, winners, crossovers, regret, and the same of baselines
// that know sizes alone. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::sim {

// A size at which several candidates were measured. Candidates are numbered alike in all cases of a
// study; one that was not measured here has time 0.
struct Case {
  double size_bytes = 0;
  std::vector<double> measured_us, predicted_us;  // by candidate
  std::size_t group = 0;  // cases of one group, by size: where crossovers are looked for
};

struct Errors {
  double median = 0, p90 = 0;  // of |predicted / measured - 1|
  std::size_t points = 0;
};

// Mean and worst of (time of the chosen / time of the best - 1).
struct Regret {
  double mean = 0, worst = 0;
  std::size_t cases = 0;  // with two candidates at least
};

struct Winners {
  std::size_t right = 0, of = 0;  // a choice within 5 % of the best is right
};

// Between two candidates of a group: the size from which the one that wins large sizes stays ahead.
struct Crossover {
  std::size_t group = 0;
  std::string pair;  // "tree to ring"
  double measured_bytes = 0;
  std::optional<double> predicted_bytes;  // none: predicted lines do not cross where measured
  // Predicted over measured or the inverse, at least 1.
  [[nodiscard]] std::optional<double> factor() const;
};

inline constexpr double kTie = 0.05;

[[nodiscard]] Errors errors_of(const std::vector<Case>& cases);
// The candidate with the least predicted time, per case.
[[nodiscard]] std::vector<std::size_t> predicted_choice(const std::vector<Case>& cases);
[[nodiscard]] Regret regret_of(const std::vector<Case>& cases,
                               const std::vector<std::size_t>& choice);
[[nodiscard]] Winners winners_of(const std::vector<Case>& cases,
                                 const std::vector<std::size_t>& choice);
// Of each pair of candidates and each group whose measured lines cross; log-log between sizes.
[[nodiscard]] std::vector<Crossover> crossovers_of(const std::vector<Case>& cases,
                                                   const std::vector<std::string>& candidates);

// A rule that knows the size alone: candidates[i] below thresholds[i], the last one above all. One
// that was not measured gives way to its neighbours in the rule, then to whatever was.
struct SizeRule {
  std::vector<std::size_t> candidates;
  std::vector<double> thresholds_bytes;
};
[[nodiscard]] std::vector<std::size_t> choice_of(const SizeRule& rule,
                                                 const std::vector<Case>& cases);
// The rule with `thresholds` thresholds that regrets least on `cases`, of all rules.
[[nodiscard]] SizeRule best_rule(const std::vector<Case>& cases, std::size_t thresholds,
                                 std::size_t candidates);
[[nodiscard]] std::string to_string(const SizeRule& rule,
                                    const std::vector<std::string>& candidates);

}  // namespace tutti::sim
