// SPDX-License-Identifier: Apache-2.0
#include "plan/measured.hpp"

#include <algorithm>
#include <cmath>

namespace tutti {

std::optional<double> time_at(const MeasuredPlan& plan, std::uint64_t bytes) {
  constexpr double kMostApart = 16;
  const double kClass = std::exp2(0.25);  // half a size class
  const auto ratio = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  const auto& times = plan.times;
  const auto above = std::ranges::lower_bound(times, bytes, {}, &MeasuredTime::bytes);
  if (above != times.end() && above->bytes == bytes) return above->time_us;
  if (above != times.begin() && above != times.end()) {
    const MeasuredTime &low = *std::prev(above), &high = *above;
    const double apart = ratio(high.bytes, low.bytes);
    if (apart > kMostApart) return std::nullopt;
    const double part = std::log(ratio(bytes, low.bytes)) / std::log(apart);
    return low.time_us * std::pow(high.time_us / low.time_us, part);
  }
  if (above != times.end() && ratio(above->bytes, bytes) <= kClass) return above->time_us;
  if (above != times.begin() && ratio(bytes, times.back().bytes) <= kClass)
    return times.back().time_us;
  return std::nullopt;
}

MeasuredByName measured_for(std::span<const MeasuredPlan> all, const Problem& problem,
                            std::int32_t cores, PeerAccess access) {
  MeasuredByName found;
  const bool mapped = access == PeerAccess::kMapped;
  for (const MeasuredPlan& plan : all)
    if (plan.collective == problem.collective && plan.ranks == problem.ranks &&
        plan.cores == cores && plan.windows == mapped)
      found.emplace(plan.name, &plan);
  return found;
}

}  // namespace tutti
