// SPDX-License-Identifier: Apache-2.0
// What tests of direct forms share: which forms there are, and their schedules with a signal less.
#pragma once

#include <optional>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tutti::test {

// Families and direct forms.
inline std::vector<const Algorithm*> every_form() {
  std::vector<const Algorithm*> all;
  for (const auto& list : {all_algorithms(), direct_algorithms()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

// The direct forms that have a collective.
inline std::vector<const Algorithm*> direct_forms(Collective collective) {
  std::vector<const Algorithm*> forms;
  for (const Algorithm* algorithm : direct_algorithms())
    if (algorithm->supports({.collective = collective, .ranks = 2})) forms.push_back(algorithm);
  return forms;
}

// The schedule without the `which`-th signal from one rank to another; nothing: there are not so
// many.
inline std::optional<Schedule> without_signal(Schedule schedule, Rank from, Rank to, int which) {
  int sends = which, recvs = which;
  for (Step& step : schedule.ranks[static_cast<std::size_t>(from)].lanes[0].steps)
    std::erase_if(step.destinations, [&](const Operand& operand) {
      return operand.kind == OperandKind::kSend && operand.peer == to && sends-- == 0;
    });
  for (Step& step : schedule.ranks[static_cast<std::size_t>(to)].lanes[0].steps)
    std::erase_if(step.sources, [&](const Operand& operand) {
      return operand.kind == OperandKind::kRecv && operand.peer == from && recvs-- == 0;
    });
  if (sends >= 0) return std::nullopt;
  // A step that told or heard nobody else has nothing left to do.
  for (const Rank rank : {from, to})
    std::erase_if(
        schedule.ranks[static_cast<std::size_t>(rank)].lanes[0].steps,
        [](const Step& step) { return step.destinations.empty() || step.sources.empty(); });
  return schedule;
}

}  // namespace tutti::test
