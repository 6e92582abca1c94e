#include "schedule/passes.hpp"

#include <cassert>

namespace tutti {
namespace {

// The step as replica `replica` runs it: tags, scratch rooms and awaited lanes of its own.
Step move_to_replica(const ScheduleShape& shape, std::size_t lanes, Step step,
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
  for (Wait& wait : step.waits) wait.lane += replica * static_cast<std::uint32_t>(lanes);
  return step;
}

}  // namespace

ScheduleShape replicate_shape(ScheduleShape shape, std::uint32_t replicas) {
  assert(shape.replicas == 1 && replicas >= 1);
  shape.replicas = replicas;
  shape.max_incoming *= replicas;
  shape.max_per_pair *= replicas;
  return shape;
}

RankProgram replicate_program(const ScheduleShape& shape, const RankProgram& program,
                              std::uint32_t replicas) {
  assert(shape.replicas == 1 && replicas >= 1);
  if (replicas == 1) return program;
  RankProgram replicated;
  replicated.lanes.reserve(program.lanes.size() * replicas);
  for (std::uint32_t j = 0; j < replicas; ++j) {
    for (const Lane& lane : program.lanes) {
      Lane& copy = replicated.lanes.emplace_back();
      copy.name = lane.name + "#" + std::to_string(j);
      copy.replica = j;
      copy.steps.reserve(lane.steps.size());
      for (const Step& step : lane.steps)
        copy.steps.push_back(move_to_replica(shape, program.lanes.size(), step, j));
    }
  }
  return replicated;
}

Schedule replicate(const Schedule& schedule, std::uint32_t replicas) {
  Schedule replicated{replicate_shape(schedule.shape, replicas), {}};
  replicated.ranks.reserve(schedule.ranks.size());
  for (const RankProgram& program : schedule.ranks)
    replicated.ranks.push_back(replicate_program(schedule.shape, program, replicas));
  return replicated;
}

}  // namespace tutti
