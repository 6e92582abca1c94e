// What tutti-validate keeps of a run.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "common/contest.hpp"
#include "model/machine_profile.hpp"

namespace tutti::validate {

struct Run {
  std::string host;
  int ranks = 1, cores = 1;
  std::vector<perf::ContestSize> sizes;
};

// FOLDER/manifest.json and FOLDER/all_reduce.csv, as tools/tutti-sim/README.md describes them; the
// folder is made. kSystemError with the path that cannot be written.
[[nodiscard]] Status write_bundle(const Run& run, const std::string& folder);

// Puts the medians and spreads into the profile, in place of those of the same ranks.
void learn(const Run& run, MachineProfile& profile);

}  // namespace tutti::validate
