// SPDX-License-Identifier: Apache-2.0
#include "validate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "lab/fit.hpp"
#include "lab/predict.hpp"

namespace tutti::sim {
namespace {

// A measured point with what predicts it.
struct Sample {
  const Predictor* predictor = nullptr;
  std::string protocol;
  std::size_t group = 0, candidate = 0, at = 0;  // at: which size of its group
  Point point;
};

// Every point of a study, with one predictor for each (group, algorithm).
class Samples {
 public:
  static Result<Samples> make(const Study& study, const Profile& profile) {
    Samples samples;
    for (std::size_t g = 0; g < study.groups.size(); ++g)
      for (const Series& series : study.groups[g].series)
        TUTTI_TRY(samples.add(study.groups[g], g, series, profile));
    return samples;
  }

  [[nodiscard]] const std::vector<Sample>& all() const { return all_; }
  [[nodiscard]] const std::vector<std::string>& candidates() const { return candidates_; }

 private:
  Status add(const Group& group, std::size_t g, const Series& series, const Profile& profile) {
    const AlgorithmProfile* const algorithm = profile.find(series.algorithm);
    if (algorithm == nullptr)
      return make_error(Code::kInvalidArgument,
                        fmt::format("{}: profile {} has no algorithm '{}'", group.name,
                                    profile.name, series.algorithm));
    auto& predictor = predictors_[fmt::format("{}/{}", g, series.algorithm)];
    if (predictor == nullptr) {
      TUTTI_TRY_ASSIGN(Predictor made,
                       Predictor::make(group.cluster, profile, *algorithm, group.collective));
      predictor = std::make_unique<Predictor>(std::move(made));
    }
    auto found = std::ranges::find(candidates_, series.label);
    if (found == candidates_.end()) found = candidates_.insert(found, series.label);
    const auto candidate = static_cast<std::size_t>(found - candidates_.begin());
    for (std::size_t i = 0; i < series.points.size(); ++i)
      all_.push_back({predictor.get(), series.protocol, g, candidate, i, series.points[i]});
    return {};
  }

  std::map<std::string, std::unique_ptr<Predictor>> predictors_;
  std::vector<std::string> candidates_;
  std::vector<Sample> all_;
};

Result<std::vector<double>> predict_us(const std::vector<Sample>& samples, const Profile& profile) {
  std::vector<double> times;
  for (const Sample& sample : samples) {
    TUTTI_TRY_ASSIGN(
        const Prediction prediction,
        sample.predictor->predict(profile, static_cast<std::uint64_t>(sample.point.size_bytes),
                                  sample.protocol));
    times.push_back(prediction.time_ns / 1e3);
  }
  return times;
}

// The profile with each group's constants scaled. No link gives more than all it has.
Profile scaled(const Profile& profile, std::span<const double> factors) {
  Profile result = profile;
  for (std::size_t i = 0; i < factors.size(); ++i)
    for (const std::string& name : profile.fit[i].constants) {
      double& constant = *find_constant(result, name);
      constant *= factors[i];
      if (name.ends_with("efficiency")) constant = std::min(constant, 1.0);
    }
  return result;
}

// Pairs of samples of one size of one group, of two candidates: a choice rests on their ratio, in
// which common errors cancel.
std::vector<std::pair<std::size_t, std::size_t>> rivals_among(const std::vector<Sample>& samples) {
  std::map<std::pair<std::size_t, double>, std::vector<std::size_t>> by_size;
  for (std::size_t i = 0; i < samples.size(); ++i)
    by_size[{samples[i].group, samples[i].point.size_bytes}].push_back(i);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const auto& [key, members] : by_size)
    for (std::size_t i = 1; i < members.size(); ++i) pairs.emplace_back(members[0], members[i]);
  return pairs;
}

// Times and, after them, ratios of rivals.
void append_ratios(const std::vector<std::pair<std::size_t, std::size_t>>& rivals,
                   std::vector<double>& times) {
  for (const auto& [a, b] : rivals) times.push_back(times[a] / times[b]);
}

Result<FitResult> fit_on(const std::vector<Sample>& samples, const Profile& profile) {
  FitProblem problem;
  for (const Sample& sample : samples) problem.measured.push_back(sample.point.time_us);
  for (const FitGroup& group : profile.fit) problem.spreads.push_back(group.spread);
  if (problem.spreads.empty()) return FitResult{};
  if (problem.measured.size() <= problem.spreads.size())
    return make_error(Code::kInvalidArgument,
                      fmt::format("profile {} has {} groups of constants, too many for {} points",
                                  profile.name, problem.spreads.size(), problem.measured.size()));
  const auto rivals = rivals_among(samples);
  append_ratios(rivals, problem.measured);
  problem.predict = [&](std::span<const double> factors) -> Result<std::vector<double>> {
    TUTTI_TRY_ASSIGN(std::vector<double> times, predict_us(samples, scaled(profile, factors)));
    append_ratios(rivals, times);
    return times;
  };
  return fit_factors(problem);
}

// The groups of constants that strayed as far as a fit lets them.
std::vector<std::string> bounds_of(const Profile& profile, const FitResult& fit) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < fit.at_bound.size(); ++i)
    if (fit.at_bound[i]) names.push_back(profile.fit[i].name);
  return names;
}

// By (group, size).
Result<std::vector<Case>> cases_of(const std::vector<Sample>& samples, const Profile& profile,
                                   std::size_t candidates) {
  TUTTI_TRY_ASSIGN(const std::vector<double> predicted, predict_us(samples, profile));
  std::map<std::pair<std::size_t, double>, Case> by_size;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    Case& one = by_size[{sample.group, sample.point.size_bytes}];
    one.size_bytes = sample.point.size_bytes;
    one.group = sample.group;
    one.measured_us.resize(candidates);
    one.predicted_us.resize(candidates);
    one.measured_us[sample.candidate] = sample.point.time_us;
    one.predicted_us[sample.candidate] = predicted[i];
  }
  std::vector<Case> cases;
  for (auto& [key, one] : by_size) cases.push_back(std::move(one));
  return cases;
}

// Returns the name of the fold that leaves a sample out.
std::string part_of(const Study& study, const Sample& sample) {
  const Group& group = study.groups[sample.group];
  switch (study.leave_out) {
    case LeaveOut::kNodes:
      return fmt::format("{} nodes", group.cluster.nodes);
    case LeaveOut::kCluster:
      return group.cluster_name;
    case LeaveOut::kSizes:
      return sample.at % 2 == 0 ? "even sizes" : "odd sizes";
    case LeaveOut::kNothing:
      break;
  }
  return "nothing";
}

void add_baselines(const std::vector<Case>& train, const std::vector<Case>& test,
                   std::size_t candidates, const std::vector<std::string>& names, Fold& fold) {
  const auto add = [&](std::string kind, const SizeRule& rule) {
    if (!rule.candidates.empty())
      fold.baselines.push_back(
          {std::move(kind), to_string(rule, names), regret_of(test, choice_of(rule, test))});
  };
  for (std::size_t i = 0; i < candidates; ++i) add("always " + names[i], {{i}, {}});
  if (candidates < 2) return;
  add("one threshold", best_rule(train, 1, candidates));
  add("two thresholds", best_rule(train, 2, candidates));
}

Result<Fold> run_fold(const Study& study, const Profile& profile, const Samples& samples,
                      const std::string& part) {
  std::vector<Sample> train, test;
  for (const Sample& sample : samples.all()) {
    const bool left_out = part_of(study, sample) == part;
    if (left_out) test.push_back(sample);
    if (!left_out || study.leave_out == LeaveOut::kNothing) train.push_back(sample);
  }
  Fold fold;
  fold.left_out = part;
  fold.profile = profile;
  if (study.leave_out != LeaveOut::kNothing) {
    fold.fitted_points = train.size();
    fold.factors = profile.fit.size();
    TUTTI_TRY_ASSIGN(const FitResult fit, fit_on(train, profile));
    fold.profile = scaled(profile, fit.factors);
    for (std::size_t i = 0; i < fit.factors.size(); ++i)
      fold.changes.push_back(fmt::format("{} {:.2f}", profile.fit[i].name, fit.factors[i]));
    fold.at_bound = bounds_of(profile, fit);
  }
  const std::size_t count = samples.candidates().size();
  TUTTI_TRY_ASSIGN(const std::vector<Case> fitted, cases_of(train, fold.profile, count));
  TUTTI_TRY_ASSIGN(const std::vector<Case> cases, cases_of(test, fold.profile, count));
  const std::vector<std::size_t> choice = predicted_choice(cases);
  fold.fit_errors = errors_of(fitted);
  fold.errors = errors_of(cases);
  fold.regret = regret_of(cases, choice);
  fold.winners = winners_of(cases, choice);
  fold.crossovers = crossovers_of(cases, samples.candidates());
  add_baselines(fitted, cases, count, samples.candidates(), fold);
  fold.cases = cases;
  return fold;
}

}  // namespace

Result<StudyResult> validate(const Study& study, const Profile& profile) {
  TUTTI_TRY_ASSIGN(const Samples samples, Samples::make(study, profile));
  std::vector<std::string> parts;
  for (const Sample& sample : samples.all()) {
    const std::string part = part_of(study, sample);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  if (study.leave_out != LeaveOut::kNothing && parts.size() < 2)
    return make_error(Code::kInvalidArgument,
                      fmt::format("study '{}' leaves out {}, but there is nothing else to fit to",
                                  study.name, parts.empty() ? "nothing" : parts[0]));
  StudyResult result{samples.candidates(), {}};
  for (const std::string& part : parts) {
    TUTTI_TRY_ASSIGN(Fold fold, run_fold(study, profile, samples, part));
    result.folds.push_back(std::move(fold));
  }
  return result;
}

Overall overall_of(const StudyResult& result) {
  Overall overall;
  std::vector<Case> all;
  const auto join = [](Regret& to, const Regret& part) {
    const double sum =
        to.mean * static_cast<double>(to.cases) + part.mean * static_cast<double>(part.cases);
    to.cases += part.cases;
    if (to.cases > 0) to.mean = sum / static_cast<double>(to.cases);
    to.worst = std::max(to.worst, part.worst);
  };
  for (const Fold& fold : result.folds) {
    all.insert(all.end(), fold.cases.begin(), fold.cases.end());
    overall.winners.right += fold.winners.right;
    overall.winners.of += fold.winners.of;
    join(overall.regret, fold.regret);
    for (const BaselineScore& each : fold.baselines) {
      auto found = std::ranges::find(overall.baselines, each.kind, &BaselineScore::kind);
      if (found == overall.baselines.end())
        found = overall.baselines.insert(found, {each.kind, {}, {}});
      join(found->regret, each.regret);
    }
  }
  overall.errors = errors_of(all);
  return overall;
}

Result<WholeFit> fit_all(const Study& study, const Profile& profile) {
  TUTTI_TRY_ASSIGN(const Samples samples, Samples::make(study, profile));
  TUTTI_TRY_ASSIGN(const FitResult fit, fit_on(samples.all(), profile));
  return WholeFit{scaled(profile, fit.factors), bounds_of(profile, fit)};
}

}  // namespace tutti::sim
