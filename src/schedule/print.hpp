// A schedule for people and other programs: text, JSON, SVG.
#pragma once

#include <string>

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// One line a step, e.g. "r2.up.1: send(0,t0) <- reduce(input[0], recv(4,t0), recv(5,t0))  finish".
[[nodiscard]] std::string to_text(const Schedule& schedule);
// Stable, versioned; from_json(to_json(s)) == s.
[[nodiscard]] std::string to_json(const Schedule& schedule);
[[nodiscard]] Result<Schedule> from_json(const std::string& text);
// Space-time diagram: a column a rank, time downwards (by message depth), an arrow a message.
[[nodiscard]] std::string to_svg(const Schedule& schedule);

}  // namespace tutti
