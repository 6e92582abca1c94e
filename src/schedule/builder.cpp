// SPDX-License-Identifier: Apache-2.0
#include "schedule/builder.hpp"

namespace tutti {

RankProgram assemble(const std::vector<LaneBuilder>& lanes) {
  RankProgram program;
  std::vector<std::uint32_t> place(lanes.size(), 0);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    place[i] = static_cast<std::uint32_t>(program.lanes.size());
    if (!lanes[i].lane().steps.empty()) program.lanes.push_back(lanes[i].lane());
  }
  for (Lane& lane : program.lanes)
    for (Step& step : lane.steps)
      for (Wait& wait : step.waits) wait.lane = place.at(wait.lane);
  return program;
}

RankProgram assemble(LaneBuilder lane) {
  RankProgram program;
  if (!lane.lane().steps.empty()) program.lanes.push_back(lane.take());
  return program;
}

RankProgram copy_alone(const Problem& problem, std::uint32_t chunks) {
  LaneBuilder lane("copy");
  const Span all = operands::chunks(0, chunks);
  StepBuilder copy = lane.step().to(operands::output(all)).from(operands::input(all));
  if (info_of(problem.collective).reduces()) copy.finish();
  return assemble({lane});
}

}  // namespace tutti
