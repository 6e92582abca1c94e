// SPDX-License-Identifier: Apache-2.0
// One slice run from empty connections with a given number of slots: does it complete, and in
// which order.
//
// Why one run of one slice says everything. Steps are deterministic, each connection has one
// sending and one receiving lane, and a step that is enabled stays enabled until it fires (what it
// needs, namely messages, free slots and completed steps, only its own lane takes away). Such a
// network is confluent: all maximal executions fire the same steps. So either all complete or all
// get stuck in the same state. Slices, operations: if one slice completes from empty connections,
// it leaves them empty, because they balance; then "slice after slice, operation after operation"
// is one execution that completes, in which waits for earlier slices hold; hence all complete.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/verify/model.hpp"

namespace tutti::proof {

struct Execution {
  std::vector<std::uint32_t> order;  // flat steps as they fired
  std::vector<std::uint32_t> next;   // per lane, the first step that did not fire
  [[nodiscard]] bool complete(const Model& model) const {
    return order.size() == model.steps.size();
  }
};

[[nodiscard]] Execution run_slice(const Model& model, std::uint32_t slots);

// Says which lane is stuck where and on what, after an execution that did not complete.
[[nodiscard]] std::string explain_stuck(const Model& model, const Execution& execution,
                                        std::uint32_t slots);

}  // namespace tutti::proof
