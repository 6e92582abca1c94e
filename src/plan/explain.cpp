// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

struct Term {
  const char* name;
  double PlanCost::*ns;
};
constexpr std::array kTerms{
    Term{"messages", &PlanCost::messages_ns}, Term{"switches", &PlanCost::switches_ns},
    Term{"steps", &PlanCost::steps_ns},       Term{"bytes", &PlanCost::bytes_ns},
    Term{"wire", &PlanCost::wire_ns},         Term{"remote", &PlanCost::remote_ns},
};

// The term by which it is dearest beside what runs.
std::string why_not(const ExplainedCandidate& one, const ExplainedCandidate& running, bool forced) {
  if (one.runs) return "runs";
  const auto more = [&](const Term& term) { return one.cost.*term.ns - running.cost.*term.ns; };
  const Term& most = *std::ranges::max_element(kTerms, {}, more);
  const double ratio = one.cost.time_ns / running.cost.time_ns;
  if (ratio < 1)
    return fmt::format("x{:.2f}: {}", ratio,
                       forced ? "cheaper, but another is forced"
                       : running.measured_ns > 0
                           ? one.measured_ns > 0 ? "cheaper by price, but measured to be slower"
                                                 : "cheaper by price, but not measured"
                           : "cheaper for this size, but not for the whole size class, or measured "
                             "on rank 0 to be slower");
  return fmt::format("x{:.2f}: {} +{:.4g} us", ratio, most.name, more(most) / 1e3);
}

}  // namespace

bool runs(const Priced& priced, const Candidate& running) {
  return priced.candidate->algorithm == running.algorithm &&
         priced.candidate->options == running.options;
}

std::vector<ExplainedCandidate> explain_candidates(std::span<const Priced> priced,
                                                   const Candidate& running) {
  std::vector<ExplainedCandidate> all;
  for (const Priced& one : priced) {
    const Candidate& candidate = *one.candidate;
    all.push_back({.name = plan_name(*candidate.algorithm, candidate.options),
                   .slices = one.slices,
                   .cost = one.cost,
                   .measured_ns = one.measured_us ? *one.measured_us * 1e3 : -1,
                   .runs = runs(one, running)});
  }
  return all;
}

std::string to_text(const Explanation& e) {
  std::string text = fmt::format("{} of {} bytes among {} ranks on {}; prices by {}{}\n",
                                 name_of(e.collective), e.bytes, e.ranks, e.where, e.source,
                                 e.forced.empty() ? "" : fmt::format("; forced: {}", e.forced));
  if (!e.note.empty()) text += e.note + "\n";
  text +=
      "price: the sum of the terms from messages to remote; measured: of whole calls, from rank "
      "0's profile; slices: parts of each chunk\n";
  text += "why: the price beside that of the candidate that runs, and the term that adds most\n";
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:>10} {:>10}", "price us", "measured");
  for (const Term& term : kTerms) fmt::format_to(out, " {:>9}", term.name);
  fmt::format_to(out, " {:>6}  {:<40} {}\n", "slices", "candidate", "why");
  const auto running = std::ranges::find(e.candidates, true, &ExplainedCandidate::runs);
  for (const ExplainedCandidate& one : e.candidates) {
    fmt::format_to(out, "{:>10.4g} {:>10}", one.cost.time_ns / 1e3,
                   one.measured_ns < 0 ? "-" : fmt::format("{:.4g}", one.measured_ns / 1e3));
    for (const Term& term : kTerms) fmt::format_to(out, " {:>9.4g}", one.cost.*term.ns / 1e3);
    fmt::format_to(out, " {:>6}  {:<40} {}\n", one.slices, one.name,
                   running == e.candidates.end() ? "-" : why_not(one, *running, !e.forced.empty()));
  }
  return text;
}

}  // namespace tutti
