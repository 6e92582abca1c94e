// SPDX-License-Identifier: Apache-2.0
// Right schedules, written for the verifier's tests, that use what ring, one_shot and tree do not:
// waits, scratch with versions, lanes of one rank that share memory, and a peer's memory.
#pragma once

#include "schedule/builder.hpp"

namespace tutti::samples {

// Fills in the counts that the shape declares, by counting.
void declare_counts(Schedule& schedule);

// All-reduce in three lanes. "spread" sends the input to all; "collect" puts what comes into
// scratch rooms, one a peer, in `versions` versions; "reduce" waits for them and adds in rank
// order. Waits in the slice: reduce for collect, and, in place, reduce for spread. Waits back:
// collect does not overwrite a version before reduce has read it.
[[nodiscard]] Schedule staged(std::int32_t ranks, std::uint32_t versions);

// Reduce-scatter in four lanes, with every message packed into scratch before it is sent and kept
// in scratch when it has come: "pack" and "spread", "collect" and "reduce" wait for each other
// forth and back, in `versions` versions. Only its messages name chunks between one input and one
// output.
[[nodiscard]] Schedule packed(std::int32_t ranks, std::uint32_t versions);

// All-reduce by load access: after a signal from each peer, a rank reads all inputs where they
// are, keeps the result in scratch, says so, and writes its output once all have said so.
[[nodiscard]] Schedule peer_read(std::int32_t ranks);

}  // namespace tutti::samples
