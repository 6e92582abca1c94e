// SPDX-License-Identifier: Apache-2.0
// Pace: how the time of a schedule grows with the number of slices, in steps.
//
// Every step takes one unit, a message is there when the step that sends it ends, and a slot is
// free when the step that receives from it ends. So the count shows what a schedule's shape allows,
// whatever the machine: a pipeline takes depth + slices, a single lane depth * slices. Pure; runs
// the schedule unproved, and gives up where it is stuck or leaves messages over. Memory of the
// steps and messages of a slice, not of all slices.
#pragma once

#include <cstdint>
#include <optional>

#include "schedule/schedule.hpp"

namespace tutti {

struct Pace {
  std::uint64_t first_slice = 0;  // steps until one slice is done
  double per_slice = 0;           // steps that each further slice adds, many slices on
};

// Steps until `slices` slices are done on all ranks; nothing if the schedule is stuck.
[[nodiscard]] std::optional<std::uint64_t> plan_time(const Schedule& schedule, std::uint32_t slots,
                                                     std::uint32_t slices);
[[nodiscard]] std::optional<Pace> pace_of(const Schedule& schedule, std::uint32_t slots);

}  // namespace tutti
