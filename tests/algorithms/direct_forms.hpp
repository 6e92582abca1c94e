// SPDX-License-Identifier: Apache-2.0
// The direct forms that have a collective.
#pragma once

#include <vector>

#include "algorithms/algorithm.hpp"

namespace tutti::test {

inline std::vector<const Algorithm*> direct_forms(Collective collective) {
  std::vector<const Algorithm*> forms;
  for (const Algorithm* algorithm : direct_algorithms())
    if (algorithm->supports({.collective = collective, .ranks = 2})) forms.push_back(algorithm);
  return forms;
}

}  // namespace tutti::test
