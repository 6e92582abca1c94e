// SPDX-License-Identifier: Apache-2.0
#include "algorithms/compose.hpp"

#include <algorithm>

namespace tutti {
namespace {

bool is_data(const Operand& operand) { return operand.kind == OperandKind::kLocal; }

bool is_scratch(const Operand& operand) {
  return is_data(operand) && operand.buffer == BufferKind::kScratch;
}

// A part's scratch holds values of chunks for which the part has no output. The whole has an output
// for every chunk: such a value goes where the step's other operands say that it belongs.
Operand without_scratch(const Operand& operand, const Step& step) {
  if (!is_scratch(operand)) return operand;
  for (const auto* side : {&step.destinations, &step.sources})
    for (const Operand& other : *side)
      if (!is_scratch(other)) return {.buffer = BufferKind::kOutput, .span = other.span};
  return operand;  // of no step that the verifier passes
}

// Every chunk of the user's buffers that a step touches. In place they are one memory.
template <typename Visit>
void for_each_chunk(const Step& step, std::uint32_t chunks, Visit visit) {
  const auto walk = [&](const std::vector<Operand>& operands, bool write) {
    for (const Operand& operand : operands)
      if (is_data(operand))
        for (std::uint32_t k = 0; k < operand.span.count(); ++k)
          visit(operand.span.at(k, chunks), write);
  };
  walk(step.sources, false);
  walk(step.destinations, true);
}

}  // namespace

Span Composition::place(const Span& span, const Placement& at) const {
  if (at.axis == Placement::Axis::kRows) {
    const bool run = span.repetitions == 1;
    const Span rows{.first = span.first * grid_.columns + at.first_column,
                    .run = at.width,
                    .stride = run ? grid_.columns : span.stride * grid_.columns,
                    .repetitions = run ? span.run : span.repetitions};
    if (!run || at.width != grid_.columns) return rows;
    return {.first = rows.first, .run = span.run * grid_.columns};
  }
  // The columns before chunk k; from the part's last chunk on around to its first.
  const auto before = [&](std::uint32_t k) {
    const std::uint32_t turns = k / at.chunks;
    return turns * grid_.columns +
           static_cast<std::uint32_t>(std::uint64_t{k % at.chunks} * grid_.columns / at.chunks);
  };
  const std::uint32_t first = before(span.first);
  const std::uint32_t columns = before(span.first + span.run) - first;
  if (columns == grid_.columns && first == 0) return {.first = 0, .run = columns * grid_.rows};
  return {.first = first,
          .run = columns,
          .stride = grid_.rows == 1 ? 0 : grid_.columns,
          .repetitions = grid_.rows};
}

Operand Composition::place(const Operand& operand, const Placement& at) const {
  Operand placed = operand;
  placed.span = place(operand.span, at);
  if (operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kInput)
    placed.buffer = at.input;
  if (operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv) {
    placed.peer = at.rank_of(operand.peer);
    placed.tag = static_cast<Tag>(at.first_tag + operand.tag);
  }
  return placed;
}

Step Composition::place(const Step& step, const Placement& at) const {
  Step placed;
  for (const Operand& source : step.sources)
    placed.sources.push_back(place(without_scratch(source, step), at));
  for (const Operand& operand : step.destinations) {
    const Operand destination = place(without_scratch(operand, step), at);
    // Data that is there already need not be copied.
    const bool there = placed.sources.size() == 1 && placed.sources.front() == destination;
    if (!there || step.destinations.size() == 1) placed.destinations.push_back(destination);
  }
  placed.finish = step.finish && at.finish;
  const auto first_lane = static_cast<std::uint32_t>(program_.lanes.size());
  for (const Wait& wait : step.waits)
    placed.waits.push_back({first_lane + wait.lane, wait.step, wait.back});
  return placed;
}

// `awaited`: by lane, how many of its steps the present lane has waited for already.
void Composition::add_waits(Step& step, std::vector<std::uint32_t>& awaited) const {
  std::vector<std::uint32_t> needed(awaited.size(), 0);
  for_each_chunk(step, grid_.rows * grid_.columns, [&](std::uint32_t chunk, bool write) {
    for (const Use& use : uses_[chunk])
      if (write || use.write) needed[use.lane] = std::max(needed[use.lane], use.step + 1);
  });
  for (std::uint32_t lane = 0; lane < needed.size(); ++lane) {
    if (needed[lane] <= awaited[lane]) continue;
    step.waits.push_back({.lane = lane, .step = needed[lane] - 1});
    awaited[lane] = needed[lane];
  }
}

void Composition::record_uses(std::uint32_t first_lane) {
  for (std::uint32_t l = first_lane; l < program_.lanes.size(); ++l) {
    const std::vector<Step>& steps = program_.lanes[l].steps;
    for (std::uint32_t s = 0; s < steps.size(); ++s)
      for_each_chunk(steps[s], grid_.rows * grid_.columns, [&](std::uint32_t chunk, bool write) {
        std::vector<Use>& uses = uses_[chunk];
        const auto same = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
          return use.lane == l && use.write == write;
        });
        if (same == uses.end()) {
          uses.push_back({l, s, write});
        } else {
          same->step = s;
        }
      });
  }
}

void Composition::add(const RankProgram& part, const Placement& placement) {
  const auto first_lane = static_cast<std::uint32_t>(program_.lanes.size());
  std::vector<Lane> lanes;
  for (const Lane& lane : part.lanes) {
    Lane& placed = lanes.emplace_back();
    placed.name = placement.name + lane.name;
    std::vector<std::uint32_t> awaited(first_lane, 0);
    for (const Step& step : lane.steps) {
      placed.steps.push_back(place(step, placement));
      add_waits(placed.steps.back(), awaited);
    }
  }
  std::move(lanes.begin(), lanes.end(), std::back_inserter(program_.lanes));
  record_uses(first_lane);
}

}  // namespace tutti
