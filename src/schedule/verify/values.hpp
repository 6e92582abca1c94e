// SPDX-License-Identifier: Apache-2.0
// What every location holds: symbolic execution of one slice, then the collective's post-condition,
// read off the table of collectives.
//
// Sizes follow values: a value is as long as the chunk it carries, wherever it goes, and whatever
// names a chunk on its way must name that one, or, in an all-to-all, one of that size.
//
// Any order in which the steps can fire gives the same values, provided that no two accesses race
// (order.hpp proves that), so one order is enough. Input and output are taken for one buffer on all
// ranks (in place), unless the shape keeps them apart: a read of input after a write of the same
// output chunk falls. In place is local to a rank, so this covers every subset of ranks, and none.
#pragma once

#include <vector>

#include "schedule/verify/execution.hpp"
#include "schedule/verify/model.hpp"
#include "schedule/verify/trees.hpp"

namespace tutti::proof {

struct Values {
  Trees trees;
  std::vector<TreeId> outputs;  // [rank * chunks + chunk]
};

[[nodiscard]] Result<Values> run_symbolically(const Model& model,
                                              const std::vector<std::uint32_t>& order);

// kNotSupported for an outcome that expected_at in values.cpp does not know.
[[nodiscard]] Status check_post_condition(const Model& model, Values& values);

}  // namespace tutti::proof
