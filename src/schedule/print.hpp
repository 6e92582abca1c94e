// SPDX-License-Identifier: Apache-2.0
// A schedule for people and other programs: text, JSON, SVG.
#pragma once

#include <string>

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// One line a step, e.g. "r2.up.1: send(0,t0) <- reduce(input[0], recv(4,t0), recv(5,t0))  finish".
[[nodiscard]] std::string to_text(const Schedule& schedule);
// One rank's program alone, so that a large schedule need not be built to be read.
[[nodiscard]] std::string to_text(const ScheduleShape& shape, Rank rank,
                                  const RankProgram& program);
// Stable, versioned; from_json(to_json(s)) == s if the fields that an operand's kind does not use
// have their defaults, as the builder leaves them. from_json trusts nothing: every count and index
// is checked (kInvalidArgument, one line that names the place); what the schedule *means* is left
// to the verifier.
[[nodiscard]] std::string to_json(const Schedule& schedule);
[[nodiscard]] Result<Schedule> from_json(const std::string& text);
// Space-time diagram of one slice: a column a rank, time downwards (by message depth), an arrow a
// message, coloured by tag. To see slices and replicas overlap, unroll() first.
[[nodiscard]] std::string to_svg(const Schedule& schedule);

}  // namespace tutti
