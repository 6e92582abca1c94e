// SPDX-License-Identifier: Apache-2.0
#include "algorithms/compose.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti {
namespace {

bool is_data(const Operand& operand) { return operand.kind == OperandKind::kLocal; }

bool is_scratch(const Operand& operand) {
  return is_data(operand) && operand.buffer == BufferKind::kScratch;
}

// Scratch has no names: the value there belongs to the chunks that the step's other operands name.
const Span& named_span(const Operand& operand, const Step& step) {
  if (!is_scratch(operand)) return operand.span;
  for (const auto* side : {&step.destinations, &step.sources})
    for (const Operand& other : *side)
      if (!is_scratch(other)) return other.span;
  return operand.span;  // of no step that the verifier passes
}

// Every chunk of the user's buffers, which in place are one memory, and after them every slot that
// a step touches.
template <typename Visit>
void for_each_chunk(const Step& step, std::uint32_t chunks, Visit visit) {
  const auto walk = [&](const std::vector<Operand>& operands, bool write) {
    for (const Operand& operand : operands) {
      if (!is_data(operand)) continue;
      const bool slots = is_scratch(operand);
      for (std::uint32_t k = 0; k < operand.span.count(); ++k)
        visit(slots ? chunks + operand.span.at(k, UINT32_MAX) : operand.span.at(k, chunks), write);
    }
  };
  walk(step.sources, false);
  walk(step.destinations, true);
}

bool has_waits(const RankProgram& part) {
  for (const Lane& lane : part.lanes)
    for (const Step& step : lane.steps)
      if (!step.waits.empty()) return true;
  return false;
}

// Does it copy data onto itself, and nothing else?
bool is_idle(const Step& step) {
  return !step.finish && step.sources.size() == 1 && step.destinations.size() == 1 &&
         step.sources.front() == step.destinations.front();
}

}  // namespace

Span Composition::place(const Span& span, const Placement& at) const {
  if (at.axis == Placement::Axis::kRow) {
    Span columns = span;
    columns.first += at.row * grid_.columns;
    return columns;
  }
  if (at.axis == Placement::Axis::kRows) {
    if (at.width == grid_.columns)
      return {.first = span.first * grid_.columns,
              .run = span.run * grid_.columns,
              .stride = span.stride * grid_.columns,
              .repetitions = span.repetitions};
    const bool run = span.repetitions == 1;
    return {.first = span.first * grid_.columns + at.first_column,
            .run = at.width,
            .stride = run ? grid_.columns : span.stride * grid_.columns,
            .repetitions = run ? span.run : span.repetitions};
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

// The slots of chunks of the grid. Their stride is a number of rows.
Span Composition::in_tile(const Span& span, const Tile& tile) const {
  const std::uint32_t row = span.first / grid_.columns, column = span.first % grid_.columns;
  const Span slots{.first = (row - tile.first_row) * tile.columns + column - tile.first_column,
                   .run = span.run,
                   .stride = span.stride / grid_.columns * tile.columns,
                   .repetitions = span.repetitions};
  if (slots.stride != slots.run) return slots;
  return {.first = slots.first, .run = slots.run * slots.repetitions};
}

Operand Composition::place(const Operand& operand, const Step& step, const Placement& at) const {
  Operand placed = operand;
  if (is_scratch(operand) && at.own_slots) {
    const std::uint32_t width = at.axis == Placement::Axis::kRows ? at.width : 1;
    placed.span = {.first = operand.span.first * width,
                   .run = operand.span.run * width,
                   .stride = operand.span.stride * width,
                   .repetitions = operand.span.repetitions};
    return placed;
  }
  placed.span = place(named_span(operand, step), at);
  if (is_data(operand)) {
    placed.buffer = operand.buffer == BufferKind::kInput    ? at.input
                    : operand.buffer == BufferKind::kOutput ? at.output
                                                            : at.sums;
    if (is_scratch(placed)) placed.span = in_tile(placed.span, at.tile);
  }
  if (operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv) {
    placed.peer = at.rank_of(operand.peer);
    placed.tag = static_cast<Tag>(at.first_tag + operand.tag);
  }
  return placed;
}

Step Composition::place(const Step& step, const Placement& at) const {
  Step placed;
  for (const Operand& source : step.sources) placed.sources.push_back(place(source, step, at));
  for (const Operand& operand : step.destinations) {
    const Operand destination = place(operand, step, at);
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
  for_each_chunk(step, chunks(), [&](std::uint32_t chunk, bool write) {
    for (const Use& use : uses_[chunk])
      if (write || use.write) needed[use.lane] = std::max(needed[use.lane], use.last + 1);
  });
  for (std::uint32_t lane = 0; lane < needed.size(); ++lane) {
    if (needed[lane] <= awaited[lane]) continue;
    step.waits.push_back({.lane = lane, .step = needed[lane] - 1});
    awaited[lane] = needed[lane];
  }
}

// A slot's first use in a slice waits for what later lanes did with it in the slice that had this
// version before. They wait for the earlier lane themselves, within the slice.
void Composition::add_waits_for_slots() {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::uint32_t, std::uint32_t>> last;
  for (std::size_t slot = chunks(); slot < uses_.size(); ++slot)
    for (const Use& early : uses_[slot])
      for (const Use& late : uses_[slot]) {
        if (early.lane >= late.lane || (!early.write && !late.write)) continue;
        std::uint32_t& step = last[{early.lane, late.lane}][early.first];
        step = std::max(step, late.last + 1);
      }
  for (const auto& [lanes, needs] : last) {
    std::uint32_t awaited = 0;
    for (const auto& [step, needed] : needs) {
      if (needed <= awaited) continue;
      program_.lanes[lanes.first].steps[step].waits.push_back(
          {.lane = lanes.second, .step = needed - 1, .back = versions_});
      awaited = needed;
    }
  }
}

void Composition::record_uses() {
  uses_.resize(std::size_t{chunks()} + scratch_);
  for (std::uint32_t& l = recorded_; l < program_.lanes.size(); ++l) {
    const std::vector<Step>& steps = program_.lanes[l].steps;
    for (std::uint32_t s = 0; s < steps.size(); ++s)
      for_each_chunk(steps[s], chunks(), [&](std::uint32_t chunk, bool write) {
        std::vector<Use>& uses = uses_[chunk];
        const auto same = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
          return use.lane == l && use.write == write;
        });
        if (same == uses.end()) {
          uses.push_back({l, s, s, write});
        } else {
          same->last = s;
        }
      });
  }
}

void Composition::add(const RankProgram& part, const Placement& placement) {
  const auto first_lane = static_cast<std::uint32_t>(program_.lanes.size());
  if (first_lane > 0) record_uses();
  const bool numbered = has_waits(part);  // then no step may be left out
  std::vector<Lane> lanes;
  for (const Lane& lane : part.lanes) {
    Lane placed{.name = placement.name + lane.name, .steps = {}};
    std::vector<std::uint32_t> awaited(first_lane, 0);
    for (const Step& step : lane.steps) {
      Step own = place(step, placement);
      if (!numbered && is_idle(own)) continue;
      if (first_lane > 0) add_waits(own, awaited);
      placed.steps.push_back(std::move(own));
    }
    if (!placed.steps.empty()) lanes.push_back(std::move(placed));
  }
  std::move(lanes.begin(), lanes.end(), std::back_inserter(program_.lanes));
}

RankProgram Composition::take() {
  if (recorded_ > 0 && scratch_ > 0) {
    record_uses();
    add_waits_for_slots();
  }
  return std::move(program_);
}

}  // namespace tutti
