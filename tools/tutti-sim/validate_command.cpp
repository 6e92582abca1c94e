// SPDX-License-Identifier: Apache-2.0
#include "validate_command.hpp"

#include <fmt/format.h>

#include <fstream>

#include "lab/profile.hpp"
#include "manifest.hpp"
#include "measured.hpp"
#include "sizes.hpp"
#include "validate.hpp"

namespace tutti::sim {
namespace {

double percent(double share) { return 100 * share; }

void print_crossovers(const Fold& fold, const Study& study, std::FILE* out) {
  for (const Crossover& each : fold.crossovers) {
    const std::string_view group = study.groups[each.group].name;
    if (!each.predicted_bytes) {
      fmt::print(out, "    crossover {}, {}: measured {}, predicted outside the sizes\n", each.pair,
                 group, short_size(each.measured_bytes));
      continue;
    }
    fmt::print(out, "    crossover {}, {}: measured {}, predicted {}: factor {:.2f}\n", each.pair,
               group, short_size(each.measured_bytes), short_size(*each.predicted_bytes),
               *each.factor());
  }
}

void print_regrets(const Regret& chosen, const std::vector<BaselineScore>& baselines,
                   std::FILE* out) {
  fmt::print(out, "    regret     {:>7.1f} % mean {:>7.1f} % worst  chosen by price\n",
             percent(chosen.mean), percent(chosen.worst));
  for (const BaselineScore& each : baselines)
    fmt::print(out, "    baseline   {:>7.1f} % mean {:>7.1f} % worst  {}{}{}\n",
               percent(each.regret.mean), percent(each.regret.worst), each.kind,
               each.rule.empty() || each.rule == each.kind ? "" : ": ",
               each.rule == each.kind ? "" : each.rule);
}

void print_bounds(const std::vector<std::string>& names, std::FILE* out) {
  if (names.empty()) return;
  fmt::print(out,
             "    at bound   {}: the fit reached its limit; the tables suggest a value beyond it\n",
             fmt::join(names, ", "));
}

void print_fold(const Fold& fold, const Study& study, std::FILE* out) {
  if (study.leave_out == LeaveOut::kNothing) {
    fmt::print(out, "  not fitted, all scored\n");
  } else {
    fmt::print(out, "  left out: {}; {} factors fitted on {} other points\n", fold.left_out,
               fold.factors, fold.fitted_points);
    fmt::print(out, "    factors    {}\n", fmt::join(fold.changes, ", "));
    print_bounds(fold.at_bound, out);
    fmt::print(out, "    fitted on  median error {:.1f} %, p90 {:.1f} %\n",
               percent(fold.fit_errors.median), percent(fold.fit_errors.p90));
  }
  fmt::print(out, "    predicted  median error {:.1f} %, p90 {:.1f} %, {} points\n",
             percent(fold.errors.median), percent(fold.errors.p90), fold.errors.points);
  fmt::print(out, "    winner     right {} of {} (ties within {:.0f} % count)\n",
             fold.winners.right, fold.winners.of, percent(kTie));
  print_crossovers(fold, study, out);
  print_regrets(fold.regret, fold.baselines, out);
}

void print_overall(const StudyResult& result, std::FILE* out) {
  if (result.folds.size() < 2) return;
  const Overall overall = overall_of(result);
  fmt::print(out, "  over all parts, each predicted by the others\n");
  fmt::print(out, "    predicted  median error {:.1f} %, p90 {:.1f} %, {} points\n",
             percent(overall.errors.median), percent(overall.errors.p90), overall.errors.points);
  fmt::print(out, "    winner     right {} of {}\n", overall.winners.right, overall.winners.of);
  print_regrets(overall.regret, overall.baselines, out);
}

void print_points(const Fold& fold, const Study& study, const std::vector<std::string>& candidates,
                  std::FILE* out) {
  fmt::print(out, "group,left_out,size_bytes,algorithm,measured_us,predicted_us\n");
  for (const Case& each : fold.cases)
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (each.measured_us[i] > 0)
        fmt::print(out, "{},{},{:.0f},{},{:.3f},{:.3f}\n", study.groups[each.group].name,
                   fold.left_out, each.size_bytes, candidates[i], each.measured_us[i],
                   each.predicted_us[i]);
}

Status save(const Study& study, const Profile& profile, const std::string& folder, std::FILE* out) {
  constexpr std::string_view kPrior = "-prior";
  TUTTI_TRY_ASSIGN(WholeFit whole, fit_all(study, profile));
  Profile& fitted = whole.profile;
  if (fitted.name.ends_with(kPrior)) fitted.name.resize(fitted.name.size() - kPrior.size());
  fitted.description =
      fmt::format("Fitted by tutti-sim validate to all of: {}. Started from {}: {}", study.name,
                  profile.name, profile.description);
  const std::string path = fmt::format("{}/{}.json", folder, fitted.name);
  std::ofstream file(path);
  file << to_json(fitted) << "\n";
  if (!file.flush())
    return make_error(Code::kSystemError, fmt::format("{} cannot be written", path));
  if (out == nullptr) return {};
  fmt::print(out, "  fitted to all tables, in {}\n", path);
  print_bounds(whole.at_bound, out);
  return {};
}

}  // namespace

Status validate_folder(const ValidateOptions& options, std::FILE* out) {
  TUTTI_TRY_ASSIGN(const Measurements measurements,
                   read_measurements(options.folder, std::string(built_in_manifest())));
  for (const Study& study : measurements.studies) {
    TUTTI_TRY_ASSIGN(const Profile profile,
                     load_profile(options.profile.empty() ? study.profile : options.profile));
    TUTTI_TRY_ASSIGN(const StudyResult result, validate(study, profile));
    if (!options.points) fmt::print(out, "{}; profile {}\n", study.name, profile.name);
    for (const Fold& fold : result.folds) {
      if (options.points) {
        print_points(fold, study, result.candidates, out);
      } else {
        print_fold(fold, study, out);
      }
    }
    if (!options.points) print_overall(result, out);
    if (!options.save_fit.empty())
      TUTTI_TRY(save(study, profile, options.save_fit, options.points ? nullptr : out));
  }
  if (options.points) return {};
  fmt::print(out, "skipped {} files\n", measurements.skipped.size());
  for (const std::string& each : measurements.skipped) fmt::print(out, "  {}\n", each);
  return {};
}

}  // namespace tutti::sim
