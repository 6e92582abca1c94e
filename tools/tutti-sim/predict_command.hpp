// SPDX-License-Identifier: Apache-2.0
// `tutti-sim predict`: a table of times for one cluster, as nccl-tests prints it or as CSV.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "lab/profile.hpp"
#include "topology/cluster.hpp"

namespace tutti::sim {

struct PredictOptions {
  Cluster cluster;
  Profile profile;
  Collective collective = Collective::kNone;
  std::vector<std::string> algorithms;  // of the profile, or schedules of ours
  std::vector<std::uint64_t> sizes_bytes;
  bool simulate = false;  // by flows instead of the price
  bool csv = false;
};

[[nodiscard]] Status predict_table(const PredictOptions& options, std::FILE* out);

// The algorithm of a profile, or, where it has none of this name, our schedule of that name, added
// to the profile.
[[nodiscard]] Result<AlgorithmProfile> resolve_algorithm(Profile& profile, const std::string& name);

}  // namespace tutti::sim
