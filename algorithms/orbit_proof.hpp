// SPDX-License-Identifier: Apache-2.0
// Proof by orbit: a schedule in which every rank does what rank 0 does, verified from the program
// of rank 0 alone. For rank counts at which the programs of all ranks no longer fit in memory.
//
// The algorithm declares moves of ranks (symmetry.hpp). What they do to chunks is read off the
// programs of a few ranks: a shift of ranks shifts the chunks, an exclusive-or takes bits of
// theirs. Then the rules of the verifier are checked on the program of rank 0:
// * Form: step by step, as StepChecker does. A message that rank 0 receives from s on a tag is the
//   image of the one that rank 0 sends, on the same tag, to where the move from s to 0 takes 0.
// * Deadlock: all ranks fire the image of a step at one time. An enabled step stays enabled,
//   so this run stands for all others (verify/execution.hpp), and it is stuck only if every run is.
// * Order: one lane a rank and no operand in a peer's memory, so program order is all there is.
// * Data: every chunk is the image of one of a few. One of these is followed through all ranks,
//   which takes as long as rank 0's program. It must be finished once, by one rank: then all ranks
//   hold copies of one value, and the order of its sum is the same everywhere.
//
// All of this holds if the programs are images of rank 0's, which is compared, not believed: rank
// by rank in a job, where each rank compares its own, and for a sample of ranks by tutti-plan.
// Pure; any thread. Memory and time of O(chunks + steps of one rank), and of each rank compared.
#pragma once

#include <cstdint>
#include <span>

#include "algorithms/algorithm.hpp"
#include "schedule/verifier.hpp"

namespace tutti {

// The facts of the proof; sums in rank order and equal shapes are not looked for (false).
// `compare`: ranks whose programs are compared with the image of rank 0's.
// kInvalidUsage names the rule that the schedule breaks; kNotSupported says why the method does not
// apply; and check_problem's errors.
[[nodiscard]] Result<Proof> prove_by_orbit(const Algorithm& algorithm, const Problem& problem,
                                           const VerifyOptions& options,
                                           std::span<const Rank> compare = {});

// From the programs of all ranks, if these are few enough to hold. kNotSupported: they are not;
// says what to do.
[[nodiscard]] Result<Proof> prove_whole(const Algorithm& algorithm, const Problem& problem,
                                        const VerifyOptions& options);

// By orbit, or as a whole where that does not apply. kNotSupported: neither.
[[nodiscard]] Result<Proof> prove_any(const Algorithm& algorithm, const Problem& problem,
                                      const VerifyOptions& options,
                                      std::span<const Rank> compare = {});

// Does prove_any() have a way, as far as shape, symmetry and one program say? Cheap; of a problem
// that the algorithm supports. The error is prove_any()'s.
[[nodiscard]] Status check_provable(const Algorithm& algorithm, const Problem& problem);

}  // namespace tutti
