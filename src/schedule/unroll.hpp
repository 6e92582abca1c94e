// SPDX-License-Identifier: Apache-2.0
// Unroll: a schedule run for `slices` slices, written out as a schedule of one slice.
//
// The executor's slice loop becomes plain data: slice s of chunk c becomes chunk c*slices + s, and
// every lane repeats its steps for the slices of its replica. So a picture shows the pipeline, and
// the verifier can prove the slices one by one instead of by its argument of composition. Pure; any
// thread.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// kNotSupported for a span with both run > 1 and repetitions > 1 (its slices are no Span), for
// blocks in orders that differ by replica, and for more chunks than 32 bits hold. Connections are
// those of the replicas that have a slice.
[[nodiscard]] Result<Schedule> unroll(const Schedule& schedule, std::uint32_t slices);

}  // namespace tutti
