// SPDX-License-Identifier: Apache-2.0
// A study of measured tables: fits a profile on part of them, predicts the rest, and says how well
// that would have chosen.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "evaluate.hpp"
#include "lab/profile.hpp"
#include "measured.hpp"

namespace tutti::sim {

struct BaselineScore {
  std::string kind;  // "always ring", "one threshold", "two thresholds": alike in all folds
  std::string rule;
  Regret regret;
};

// One part left out.
struct Fold {
  std::string left_out;
  std::size_t fitted_points = 0, factors = 0;
  Profile profile;                   // fitted
  std::vector<std::string> changes;  // "network 1.31"
  // Groups of constants that strayed as far as a fit lets them: the data ask for more.
  std::vector<std::string> at_bound;
  Errors fit_errors;  // on what was fitted
  Errors errors;      // on what was left out, as the rest
  Regret regret;
  Winners winners;
  std::vector<Crossover> crossovers;
  std::vector<BaselineScore> baselines;  // found on what was fitted
  std::vector<Case> cases;               // those left out
};

struct StudyResult {
  std::vector<std::string> candidates;
  std::vector<Fold> folds;
};

// Over all folds together, each case counting once; baselines by kind.
struct Overall {
  Errors errors;
  Regret regret;
  Winners winners;
  std::vector<BaselineScore> baselines;
};
[[nodiscard]] Overall overall_of(const StudyResult& result);

// Profile: the study's, loaded. kInvalidArgument where the profile lacks an algorithm of a table,
// or a part has no more points than the profile has groups of constants.
[[nodiscard]] Result<StudyResult> validate(const Study& study, const Profile& profile);

// The profile fitted on all of the study: what a default is made of.
struct WholeFit {
  Profile profile;
  std::vector<std::string> at_bound;  // as of a fold
};
[[nodiscard]] Result<WholeFit> fit_all(const Study& study, const Profile& profile);

}  // namespace tutti::sim
