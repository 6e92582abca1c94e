// SPDX-License-Identifier: Apache-2.0
// Arrangement: an algorithm with its passes, from a problem to what runs.
//
// The problem speaks of ranks, a generator of places: the root stands at its place, each replica's
// ranks stand in an order of their own, then the replicas are put together. Here alone, so that
// what is proved, priced and run is the same object.
#pragma once

#include <span>

#include "algorithms/algorithm.hpp"
#include "schedule/rank_order.hpp"

namespace tutti {

struct Arrangement {
  std::uint32_t replicas = 1;
  // Replica j takes orders[j mod their number]; none: by number.
  std::span<const RankOrder> orders = {};

  [[nodiscard]] bool by_number() const;
};

// The algorithm must support the problem, as check_problem says.
[[nodiscard]] ScheduleShape arranged_shape(const Algorithm& algorithm, const Problem& problem,
                                           const Arrangement& arrangement);
// O(own steps) time and memory, as the generators.
[[nodiscard]] RankProgram arranged_program(const Algorithm& algorithm, const Problem& problem,
                                           const Arrangement& arrangement, Rank rank);
// All ranks' programs. Errors as check_problem.
[[nodiscard]] Result<Schedule> arranged_schedule(const Algorithm& algorithm, const Problem& problem,
                                                 const Arrangement& arrangement);

// Did the test suite prove this very arrangement? The list: every family with its default
// parameters and every direct form, each collective that it supports with each root, at 1 to 33,
// 48, 64, 96 and 128 ranks by number, with 1, 2 and 4 replicas (tests/algorithms/proved_test.cpp);
// and the all-reduce of one_shot, butterfly and tree at 256 and 512 ranks, once: every rank would
// prove it at its first call.
[[nodiscard]] bool proved_by_tests(const Algorithm& algorithm, const Problem& problem,
                                   const Arrangement& arrangement);

}  // namespace tutti
