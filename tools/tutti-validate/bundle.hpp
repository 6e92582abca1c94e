// SPDX-License-Identifier: Apache-2.0
// What tutti-validate keeps of a run.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "common/contest.hpp"
#include "model/machine_profile.hpp"

namespace tutti::validate {

// One collective's contests.
struct Study {
  Collective collective = Collective::kNone;
  std::vector<perf::ContestSize> sizes;
};

struct Run {
  std::string host;
  int ranks = 1, cores = 1;
  bool windows = false;     // buffers in symmetric windows
  MachineProfile profile;   // with whose costs `auto` priced
  std::string cost_source;  // whence these came, for people
  std::vector<Study> studies;
};

// FOLDER/manifest.json and a table for each collective, as tools/tutti-sim/README.md describes
// them, and what `auto` priced with: machine.json, for TUTTI_PROFILE, and profile.json, the same
// costs as the profile that the manifest names. The folder is made. kSystemError with the path that
// cannot be written.
[[nodiscard]] Status write_bundle(const Run& run, const std::string& folder);

// The profile that the library prices with under the TUTTI_PROFILE of this process; its own costs
// where there is none.
void take_profile(Run& run);

// Puts the medians into the profile, in place of those between the same sizes of the same
// collectives, among as many ranks on as many cores with the same kind of buffers.
void learn(const Run& run, MachineProfile& profile);

}  // namespace tutti::validate
