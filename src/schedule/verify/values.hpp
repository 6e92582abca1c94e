// What every location holds: symbolic execution of one slice, then the collective's post-condition.
//
// Any order in which the steps can fire gives the same values, provided that no two accesses race
// (order.hpp proves that), so one order is enough. Input and output are taken for one buffer on all
// ranks (in place): a read of input after a write of the same output chunk falls. In place is
// local to a rank, so this covers every subset of ranks, and none.
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

// kNotSupported for a collective without a post-condition: add one to expected_at in values.cpp.
[[nodiscard]] Status check_post_condition(const Model& model, Values& values);

}  // namespace tutti::proof
