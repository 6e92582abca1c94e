// SPDX-License-Identifier: Apache-2.0
// Happens-before: no two conflicting accesses to one location are unordered, and accesses to a
// peer's memory lie between the peer's begin and end.
//
// Order comes from the program order of a lane (slices included), from waits, and from message k
// being sent before it is received. Free slots are not order: a plan may run with more of them.
//
// How many slices, how many operations.
// * Every edge stays in its slice or goes to a later one, and the edges of the slices s..s+d do not
//   depend on s. So whether an access in slice s is ordered before one in slice s+d does not depend
//   on s either. Slices share scratch of one version only, V = scratch_versions apart, so the pairs
//   (0, 0) and (0, V) say all; (0, kV) follows from (0, V) by transitivity, as the accesses repeat.
// * A rank's lanes start an operation when all its lanes have ended the one before (the executor's
//   join), so its own accesses are ordered across operations. Its peers' accesses lie between its
//   begin and its end of the operation, which is checked here on one slice: the strictest case,
//   because the only slice is the first and the last. Connections balance, so that messages of two
//   operations never mix.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/verify/model.hpp"

namespace tutti::proof {

// `order`: one in which the steps of a slice can fire. Gives the number of steps walked.
[[nodiscard]] Result<std::uint64_t> check_order(const Model& model,
                                                const std::vector<std::uint32_t>& order);

}  // namespace tutti::proof
