// SPDX-License-Identifier: Apache-2.0
// An explanation: every candidate for a call with its price by term, what runs, and why the others
// lost. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/choice.hpp"

namespace tutti {

struct ExplainedCandidate {
  std::string name;  // forces it
  std::uint32_t slices = 1;
  PlanCost cost;
  double measured_ns = -1;  // < 0: not known
  bool runs = false;
};

struct Explanation {
  Collective collective = Collective::kNone;
  std::uint64_t bytes = 0;
  std::int32_t ranks = 1;
  std::string where;                           // "2 cores"
  std::string forced;                          // by the user; "": nothing
  std::string source;                          // of the costs
  std::string note;                            // a line more: the ranks' order, how a plan runs
  std::vector<ExplainedCandidate> candidates;  // cheapest first
};

// Is it the plan that runs?
[[nodiscard]] bool runs(const Priced& priced, const Candidate& running);
// `running`: the options of the plan that runs.
[[nodiscard]] std::vector<ExplainedCandidate> explain_candidates(std::span<const Priced> priced,
                                                                 const Candidate& running);
// A table with a heading, lines that end in newlines.
[[nodiscard]] std::string to_text(const Explanation& explanation);

}  // namespace tutti
