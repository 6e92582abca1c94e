// The families by name, for registry.cpp and for families that compose others. One file each.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "algorithms/algorithm.hpp"

namespace tutti {

const Algorithm& ring();
const Algorithm& one_shot();
const Algorithm& tree();
const Algorithm& butterfly();
const Algorithm& rabenseifner();
const Algorithm& circulant();
const Algorithm& two_shot();
const Algorithm& two_shot_remote();  // its form with remote operands
const Algorithm& pat();
const Algorithm& hierarchical();

// For a family's supports().
[[nodiscard]] inline bool is_among(Collective collective, std::initializer_list<Collective> list) {
  return std::find(list.begin(), list.end(), collective) != list.end();
}

}  // namespace tutti
