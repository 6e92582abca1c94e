// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes.hpp"

#include <algorithm>
#include <cassert>

#include "schedule/block_map.hpp"

namespace tutti {
namespace {

// The step as replica `replica` runs it: tags, scratch rooms and awaited lanes of its own, which
// begin at `first_lane`.
Step move_to_replica(const ScheduleShape& shape, std::size_t first_lane, Step step,
                     std::uint32_t replica) {
  const auto move = [&](Operand& operand) {
    const bool message = operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
    if (message)
      operand.tag = static_cast<Tag>(operand.tag + replica * shape.tags);
    else if (operand.buffer == BufferKind::kScratch)
      operand.span.first += replica * shape.scratch_chunks;
  };
  for (Operand& operand : step.destinations) move(operand);
  for (Operand& operand : step.sources) move(operand);
  for (Wait& wait : step.waits) wait.lane += static_cast<std::uint32_t>(first_lane);
  return step;
}

void append_replica(const ScheduleShape& shape, const RankProgram& program, std::uint32_t replica,
                    RankProgram& to) {
  const std::size_t first_lane = to.lanes.size();
  for (const Lane& lane : program.lanes) {
    Lane& copy = to.lanes.emplace_back();
    copy.name = lane.name + "#" + std::to_string(replica);
    copy.replica = replica;
    copy.steps.reserve(lane.steps.size());
    for (const Step& step : lane.steps)
      copy.steps.push_back(move_to_replica(shape, first_lane, step, replica));
  }
}

}  // namespace

ScheduleShape replicate_shape(ScheduleShape shape, std::uint32_t replicas) {
  assert(shape.replicas == 1 && replicas >= 1);
  shape.replicas = replicas;
  shape.max_incoming *= replicas;
  shape.max_per_pair *= replicas;
  const std::vector<Rank> blocks = shape.block_ranks;
  for (std::uint32_t j = 1; j < replicas; ++j)
    shape.block_ranks.insert(shape.block_ranks.end(), blocks.begin(), blocks.end());
  return shape;
}

ScheduleShape replicate_shapes(std::span<const ScheduleShape> shapes) {
  ScheduleShape shape = replicate_shape(shapes.front(), static_cast<std::uint32_t>(shapes.size()));
  shape.block_ranks.clear();
  const bool by_number = std::ranges::all_of(
      shapes, [](const ScheduleShape& each) { return each.block_ranks.empty(); });
  for (const ScheduleShape& each : shapes) {
    if (by_number) break;
    for (Rank place = 0; place < shape.ranks; ++place)
      shape.block_ranks.push_back(block_map(each, 0).rank_at(place));
  }
  return shape;
}

RankProgram replicate_program(const ScheduleShape& shape, const RankProgram& program,
                              std::uint32_t replicas) {
  assert(shape.replicas == 1 && replicas >= 1);
  if (replicas == 1) return program;
  RankProgram replicated;
  replicated.lanes.reserve(program.lanes.size() * replicas);
  for (std::uint32_t j = 0; j < replicas; ++j) append_replica(shape, program, j, replicated);
  return replicated;
}

RankProgram replicate_programs(const ScheduleShape& shape, std::span<const RankProgram> programs) {
  assert(shape.replicas == 1 && !programs.empty());
  RankProgram replicated;
  for (std::uint32_t j = 0; j < programs.size(); ++j)
    append_replica(shape, programs[j], j, replicated);
  return replicated;
}

Schedule replicate(const Schedule& schedule, std::uint32_t replicas) {
  Schedule replicated{replicate_shape(schedule.shape, replicas), {}};
  replicated.ranks.reserve(schedule.ranks.size());
  for (const RankProgram& program : schedule.ranks)
    replicated.ranks.push_back(replicate_program(schedule.shape, program, replicas));
  return replicated;
}

ScheduleShape reorder_shape(ScheduleShape shape, const RankOrder& order) {
  if (order.is_by_number()) return shape;
  shape.root = order.rank_at(shape.root);
  if (!info_of(shape.collective).blocks) return shape;
  assert(shape.replicas == 1 && "blocks stand in an order of each replica");
  const BlockMap blocks = block_map(shape, 0);
  std::vector<Rank> moved;
  for (Rank place = 0; place < shape.ranks; ++place)
    moved.push_back(order.rank_at(blocks.rank_at(place)));
  shape.block_ranks = std::move(moved);
  return shape;
}

RankProgram reorder_program(RankProgram program, const RankOrder& order) {
  if (order.is_by_number()) return program;
  const auto rename = [&](Operand& operand) {
    if (operand.kind != OperandKind::kLocal) operand.peer = order.rank_at(operand.peer);
  };
  for (Lane& lane : program.lanes)
    for (Step& step : lane.steps) {
      std::ranges::for_each(step.destinations, rename);
      std::ranges::for_each(step.sources, rename);
    }
  return program;
}

Schedule reorder(const Schedule& schedule, const RankOrder& order) {
  Schedule reordered{reorder_shape(schedule.shape, order), {}};
  reordered.ranks.reserve(schedule.ranks.size());
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    reordered.ranks.push_back(
        reorder_program(schedule.ranks[static_cast<std::size_t>(order.place_of(rank))], order));
  return reordered;
}

}  // namespace tutti
