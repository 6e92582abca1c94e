// SPDX-License-Identifier: Apache-2.0
#include "evaluate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sizes.hpp"

namespace tutti::sim {
namespace {

std::size_t measured_count(const Case& each) {
  return static_cast<std::size_t>(
      std::ranges::count_if(each.measured_us, [](double time) { return time > 0; }));
}

double best_of(const Case& each) {
  double best = 0;
  for (const double time : each.measured_us)
    if (time > 0 && (best == 0 || time < best)) best = time;
  return best;
}

double regret(const Case& each, std::size_t chosen) {
  return each.measured_us[chosen] / best_of(each) - 1;
}

// The size at which a/b, known at some sizes, reaches 1 for the last time: where it changes sign
// between two sizes, the sign of its logarithm's line.
struct Ratio {
  double size_bytes, log_ratio;
};

std::optional<double> last_crossing(const std::vector<Ratio>& ratios, bool upwards) {
  std::optional<double> found;
  for (std::size_t i = 0; i + 1 < ratios.size(); ++i) {
    const Ratio &a = ratios[i], &b = ratios[i + 1];
    const bool crosses =
        upwards ? a.log_ratio <= 0 && b.log_ratio > 0 : a.log_ratio >= 0 && b.log_ratio < 0;
    if (!crosses) continue;
    const double share = a.log_ratio / (a.log_ratio - b.log_ratio);
    found = std::exp(std::log(a.size_bytes) +
                     share * (std::log(b.size_bytes) - std::log(a.size_bytes)));
  }
  return found;
}

std::vector<Ratio> ratios_of(const std::vector<Case>& cases, std::size_t group, std::size_t a,
                             std::size_t b, bool measured) {
  std::vector<Ratio> ratios;
  for (const Case& each : cases) {
    if (each.group != group || each.measured_us[a] == 0 || each.measured_us[b] == 0) continue;
    const std::vector<double>& times = measured ? each.measured_us : each.predicted_us;
    ratios.push_back({each.size_bytes, std::log(times[a] / times[b])});
  }
  std::ranges::sort(ratios, {}, &Ratio::size_bytes);
  return ratios;
}

}  // namespace

std::optional<double> Crossover::factor() const {
  if (!predicted_bytes) return std::nullopt;
  const double ratio = *predicted_bytes / measured_bytes;
  return std::max(ratio, 1 / ratio);
}

Errors errors_of(const std::vector<Case>& cases) {
  std::vector<double> errors;
  for (const Case& each : cases)
    for (std::size_t i = 0; i < each.measured_us.size(); ++i)
      if (each.measured_us[i] > 0)
        errors.push_back(std::abs(each.predicted_us[i] / each.measured_us[i] - 1));
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  const auto at = [&](double share) {
    return errors[static_cast<std::size_t>(share * static_cast<double>(errors.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.9), errors.size()};
}

std::vector<std::size_t> predicted_choice(const std::vector<Case>& cases) {
  std::vector<std::size_t> choice;
  for (const Case& each : cases) {
    std::size_t best = each.measured_us.size();
    for (std::size_t i = 0; i < each.measured_us.size(); ++i)
      if (each.measured_us[i] > 0 &&
          (best == each.measured_us.size() || each.predicted_us[i] < each.predicted_us[best]))
        best = i;
    choice.push_back(best);
  }
  return choice;
}

Regret regret_of(const std::vector<Case>& cases, const std::vector<std::size_t>& choice) {
  Regret result;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (measured_count(cases[i]) < 2) continue;
    const double one = regret(cases[i], choice[i]);
    result.mean += one;
    result.worst = std::max(result.worst, one);
    ++result.cases;
  }
  if (result.cases > 0) result.mean /= static_cast<double>(result.cases);
  return result;
}

Winners winners_of(const std::vector<Case>& cases, const std::vector<std::size_t>& choice) {
  Winners winners;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (measured_count(cases[i]) < 2) continue;
    ++winners.of;
    if (regret(cases[i], choice[i]) <= kTie) ++winners.right;
  }
  return winners;
}

std::vector<Crossover> crossovers_of(const std::vector<Case>& cases,
                                     const std::vector<std::string>& candidates) {
  std::set<std::size_t> groups;
  for (const Case& each : cases) groups.insert(each.group);
  std::vector<Crossover> found;
  for (const std::size_t group : groups)
    for (std::size_t a = 0; a < candidates.size(); ++a)
      for (std::size_t b = a + 1; b < candidates.size(); ++b) {
        const auto measured = ratios_of(cases, group, a, b, true);
        if (measured.size() < 2) continue;
        const bool upwards = measured.back().log_ratio > 0;  // b wins large sizes
        const auto crossing = last_crossing(measured, upwards);
        if (!crossing) continue;
        found.push_back({group,
                         upwards ? candidates[a] + " to " + candidates[b]
                                 : candidates[b] + " to " + candidates[a],
                         *crossing, last_crossing(ratios_of(cases, group, a, b, false), upwards)});
      }
  return found;
}

std::vector<std::size_t> choice_of(const SizeRule& rule, const std::vector<Case>& cases) {
  std::vector<std::size_t> choice;
  for (const Case& each : cases) {
    std::size_t part = 0;
    while (part < rule.thresholds_bytes.size() && each.size_bytes >= rule.thresholds_bytes[part])
      ++part;
    // By distance in the rule, the smaller size's candidate first.
    std::size_t chosen = each.measured_us.size();
    for (std::size_t far = 0; far < rule.candidates.size() && chosen == each.measured_us.size();
         ++far) {
      if (far <= part && each.measured_us[rule.candidates[part - far]] > 0)
        chosen = rule.candidates[part - far];
      else if (part + far < rule.candidates.size() &&
               each.measured_us[rule.candidates[part + far]] > 0)
        chosen = rule.candidates[part + far];
    }
    for (std::size_t i = 0; chosen == each.measured_us.size(); ++i)
      if (each.measured_us[i] > 0) chosen = i;
    choice.push_back(chosen);
  }
  return choice;
}

namespace {

// Every rule: candidates of each part, then thresholds from left to right.
class RuleSearch {
 public:
  RuleSearch(const std::vector<Case>& cases, std::size_t candidates)
      : cases_(cases), candidates_(candidates) {
    std::set<double> sizes;
    for (const Case& each : cases) sizes.insert(each.size_bytes);
    double last = 0;
    for (const double size : sizes) {
      if (last > 0) cuts_.push_back(std::sqrt(last * size));
      last = size;
    }
  }

  SizeRule find(std::size_t thresholds) {
    SizeRule rule;
    add_candidate(rule, thresholds);
    return best_;
  }

 private:
  void add_candidate(SizeRule& rule, std::size_t thresholds) {
    if (rule.candidates.size() > thresholds) return add_threshold(rule, thresholds, 0);
    for (std::size_t i = 0; i < candidates_; ++i) {
      if (!rule.candidates.empty() && rule.candidates.back() == i) continue;
      rule.candidates.push_back(i);
      add_candidate(rule, thresholds);
      rule.candidates.pop_back();
    }
  }
  void add_threshold(SizeRule& rule, std::size_t thresholds, std::size_t from) {
    if (rule.thresholds_bytes.size() == thresholds) {
      const double regret = regret_of(cases_, choice_of(rule, cases_)).mean;
      if (best_.candidates.empty() || regret < least_) {
        least_ = regret;
        best_ = rule;
      }
      return;
    }
    for (std::size_t i = from; i < cuts_.size(); ++i) {
      rule.thresholds_bytes.push_back(cuts_[i]);
      add_threshold(rule, thresholds, i + 1);
      rule.thresholds_bytes.pop_back();
    }
  }

  const std::vector<Case>& cases_;
  std::size_t candidates_;
  std::vector<double> cuts_;
  SizeRule best_;
  double least_ = 0;
};

}  // namespace

SizeRule best_rule(const std::vector<Case>& cases, std::size_t thresholds, std::size_t candidates) {
  for (; thresholds > 0; --thresholds)
    if (SizeRule rule = RuleSearch(cases, candidates).find(thresholds); !rule.candidates.empty())
      return rule;
  return RuleSearch(cases, candidates).find(0);
}

std::string to_string(const SizeRule& rule, const std::vector<std::string>& candidates) {
  if (rule.thresholds_bytes.empty())
    return rule.candidates.empty() ? "none" : "always " + candidates[rule.candidates[0]];
  std::string text = candidates[rule.candidates[0]];
  for (std::size_t i = 0; i < rule.thresholds_bytes.size(); ++i)
    text += fmt::format(", {} from {}", candidates[rule.candidates[i + 1]],
                        short_size(rule.thresholds_bytes[i]));
  return text;
}

}  // namespace tutti::sim
