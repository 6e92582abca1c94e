// SPDX-License-Identifier: Apache-2.0
// One step as the printers show it. For the files of this folder.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti {

// "send(0,t0) <- reduce(input[0], recv(4,t0))  finish"; `lanes` names the awaited lanes.
[[nodiscard]] std::string step_text(const Step& step, const std::vector<Lane>& lanes);

}  // namespace tutti
