// Passes: pure rewrites of a schedule. Each works on one rank's program alone (so that a rank can
// apply it to its own), and on the shape; whatever they give is verified again.
#pragma once

#include "schedule/schedule.hpp"

namespace tutti {

// Replica j runs the slices congruent to j mod replicas, on tags [j*tags, (j+1)*tags) and lanes of
// its own. It is what pipelines a single lane: with slices outermost, one lane alone does not
// overlap slice s+1 with slice s. `shape` must have replicas == 1.
[[nodiscard]] ScheduleShape replicate_shape(ScheduleShape shape, std::uint32_t replicas);
[[nodiscard]] RankProgram replicate_program(const ScheduleShape& shape, const RankProgram& program,
                                            std::uint32_t replicas);
[[nodiscard]] Schedule replicate(const Schedule& schedule, std::uint32_t replicas);

}  // namespace tutti
