// SPDX-License-Identifier: Apache-2.0
// Passes: pure rewrites of a schedule. Each works on one rank's program alone (so that a rank can
// apply it to its own), and on the shape; whatever they give is verified again.
#pragma once

#include <span>

#include "schedule/rank_order.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// Replica j runs the slices congruent to j mod replicas, on tags [j*tags, (j+1)*tags) and lanes of
// its own. It is what pipelines a single lane: with slices outermost, one lane alone does not
// overlap slice s+1 with slice s. `shape` must have replicas == 1.
[[nodiscard]] ScheduleShape replicate_shape(ScheduleShape shape, std::uint32_t replicas);
[[nodiscard]] RankProgram replicate_program(const ScheduleShape& shape, const RankProgram& program,
                                            std::uint32_t replicas);
// The same of programs that differ: replica j runs programs[j], as where its ranks stand in an
// order of its own. Their shapes are alike but for whose blocks stand where.
[[nodiscard]] ScheduleShape replicate_shapes(std::span<const ScheduleShape> shapes);
[[nodiscard]] RankProgram replicate_programs(const ScheduleShape& shape,
                                             std::span<const RankProgram> programs);
[[nodiscard]] Schedule replicate(const Schedule& schedule, std::uint32_t replicas);

// Ranks stand in another order: rank order.rank_at(k) runs the program of place k, every peer is
// the rank at its place, and so is the root. Chunks keep their numbers; where the data is blocks,
// the shape says which rank's stands at each place, so that every rank keeps its own
// (block_map.hpp). Sums that were in rank order are in the order of places afterwards.
// `shape.replicas` is 1.
[[nodiscard]] ScheduleShape reorder_shape(ScheduleShape shape, const RankOrder& order);
// `program`: of the place of the rank that will run it.
[[nodiscard]] RankProgram reorder_program(RankProgram program, const RankOrder& order);
[[nodiscard]] Schedule reorder(const Schedule& schedule, const RankOrder& order);

}  // namespace tutti
