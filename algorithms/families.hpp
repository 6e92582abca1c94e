// SPDX-License-Identifier: Apache-2.0
// The families by name: the list from which registry.cpp makes its tables, and the functions that
// families which compose others call. A new family is its file, its line in this list and its
// file's name in CMakeLists.txt.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "algorithms/algorithm.hpp"

namespace tutti {

// The one list of families, in the order in which tables list them: of a file x.cpp its line
// family(x). A direct form, with remote operands, stands under what it is a form of.
// clang-format off
#define TUTTI_FAMILIES(family, direct_form) \
  family(ring)                              \
  family(tree)                              \
  family(butterfly)                         \
  family(rabenseifner)                      \
  family(circulant)                         \
  family(one_shot)                          \
  direct_form(one_shot_remote)              \
  direct_form(one_shot_store)               \
  family(two_shot)                          \
  direct_form(two_shot_remote)              \
  direct_form(two_shot_store)               \
  family(pat)                               \
  family(hierarchical)
// clang-format on

#define TUTTI_DECLARE(name) const Algorithm& name();
TUTTI_FAMILIES(TUTTI_DECLARE, TUTTI_DECLARE)
#undef TUTTI_DECLARE

// Holds a family for as long as the process is there: threads of ranks may outlive main and its
// destructors.
template <typename T>
union NeverDestroyed {
  template <typename... Arguments>
  explicit constexpr NeverDestroyed(Arguments&&... arguments)
      : value(std::forward<Arguments>(arguments)...) {}
  constexpr ~NeverDestroyed() {}  // `value` stays
  const T value;
};

// For a family's supports().
[[nodiscard]] inline bool is_among(Collective collective, std::initializer_list<Collective> list) {
  return std::find(list.begin(), list.end(), collective) != list.end();
}

// The shape of a program in which every pair of ranks has a connection each way, and the data a
// chunk for each rank.
[[nodiscard]] inline ScheduleShape pairwise_shape(std::string_view name, const Problem& problem) {
  const auto others = static_cast<std::uint32_t>(problem.ranks - 1);
  return {.algorithm = std::string(name),
          .collective = problem.collective,
          .ranks = problem.ranks,
          .root = problem.root,
          .chunks = others + 1,
          .max_incoming = others,
          .max_per_pair = std::min(others, 1U)};
}

}  // namespace tutti
