// SPDX-License-Identifier: Apache-2.0
// The costs of plans that follow from a device's words.
#pragma once

#include <string>
#include <vector>

#include "device_words/words.hpp"
#include "model/device_costs.hpp"

namespace tutti::probe {

// The costs that `auto` prices with, of ranks of one device; `missing` names what was not measured.
struct DerivedCosts {
  DeviceCosts costs;
  std::vector<std::string> missing;
};
[[nodiscard]] DerivedCosts derive_costs(const Words& words);

}  // namespace tutti::probe
