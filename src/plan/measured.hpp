// SPDX-License-Identifier: Apache-2.0
// What a machine's profile knows of whole plans: their times where somebody measured them, and
// between.
//
// They hold for as many ranks on as many cores of one host as were measured, and for the same kind
// of buffers; to threads of one process, all buffers are what windows are to processes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "model/machine_profile.hpp"
#include "plan/access.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// The plan's time at so many bytes of the whole data, in microseconds. Times between two measured
// sizes are interpolated, linear in both logarithms, unless one size is more than 16 times the
// other. The least and the largest size stand for their size class. Nothing: no size is near
// enough.
[[nodiscard]] std::optional<double> time_at(const MeasuredPlan& plan, std::uint64_t bytes);

// Among all that were measured the plans that hold for a problem on so many cores, by name. They
// stay those of `all`.
using MeasuredByName = std::unordered_map<std::string_view, const MeasuredPlan*>;
[[nodiscard]] MeasuredByName measured_for(std::span<const MeasuredPlan> all, const Problem& problem,
                                          std::int32_t cores, PeerAccess access);

}  // namespace tutti
