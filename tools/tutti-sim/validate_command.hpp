// SPDX-License-Identifier: Apache-2.0
// `tutti-sim validate`: the report on a folder of measured tables.
#pragma once

#include <cstdio>
#include <string>

#include "base/result.hpp"

namespace tutti::sim {

struct ValidateOptions {
  std::string folder;
  std::string profile;   // instead of each study's; empty: as the manifest says
  bool points = false;   // each point that was left out, as CSV
  std::string save_fit;  // a folder: each study's profile, fitted on all of it, as JSON
};

[[nodiscard]] Status validate_folder(const ValidateOptions& options, std::FILE* out);

}  // namespace tutti::sim
