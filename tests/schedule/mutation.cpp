// SPDX-License-Identifier: Apache-2.0
#include "mutation.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::mutation {
namespace {

bool is_message(const Operand& operand) {
  return operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
}

Operand& operand_at(Step& step, std::uint32_t number) {
  const std::size_t destinations = step.destinations.size();
  return number < destinations ? step.destinations[number] : step.sources[number - destinations];
}

bool is_scratch(const Operand& operand) {
  return !is_message(operand) && operand.buffer == BufferKind::kScratch;
}

bool is_output(const Operand& operand) {
  return operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kOutput;
}

// The chunks that the step works on, where an operand names them.
const Span* chunks_named_by(const Step& step) {
  for (const auto* side : {&step.destinations, &step.sources})
    for (const Operand& operand : *side)
      if (!is_scratch(operand)) return &operand.span;
  return nullptr;
}

bool remote_at(const Step& step, std::uint32_t number) {
  const std::size_t destinations = step.destinations.size();
  return (number < destinations ? step.destinations[number] : step.sources[number - destinations])
             .kind == OperandKind::kRemote;
}

// How many mutations of the kind step `at.step` has per operand or wait `at.operand`.
struct Choices {
  std::uint32_t operands = 0;
  std::uint32_t variants = 0;
};

constexpr std::uint32_t kWaitVariants = 4;    // earlier or later step, other lane, one slice back
constexpr std::uint32_t kBufferVariants = 2;  // each of the other two buffers

Choices choices_of(const Schedule& schedule, const RankProgram& program, const Lane& lane,
                   std::uint32_t index, Kind kind) {
  const Step& step = lane.steps[index];
  const auto destinations = static_cast<std::uint32_t>(step.destinations.size());
  const auto sources = static_cast<std::uint32_t>(step.sources.size());
  const auto lanes = static_cast<std::uint32_t>(program.lanes.size());
  const bool last = index + 1 == lane.steps.size();
  const bool first = &lane == &program.lanes.front() && index == 0;
  switch (kind) {
    case Kind::kDeleteStep:
    case Kind::kDuplicateStep:
    case Kind::kToggleFinish:
      return {1, 1};
    case Kind::kSwapSteps:
      return {last ? 0U : 1U, 1};
    case Kind::kMoveStep:
      return {lanes > 1 ? 1U : 0U, 2 * lanes};  // to its front or its back
    case Kind::kDeleteWait:
      return {static_cast<std::uint32_t>(step.waits.size()), 1};
    case Kind::kChangeWait:
      return {static_cast<std::uint32_t>(step.waits.size()), kWaitVariants};
    case Kind::kRedirectSend:
      return {destinations, 1};
    case Kind::kRedirectRecv:
      return {sources, 1};
    case Kind::kChangeTag:
    case Kind::kChangeChunk:
      return {destinations + sources, 1};
    case Kind::kChangeBuffer:
      return {destinations + sources, kBufferVariants};
    case Kind::kSwapSources:
      return {sources == 0 ? 0U : sources - 1, 1};
    case Kind::kDropSource:
    case Kind::kDuplicateSource:
      return {sources, 1};
    case Kind::kDropDestination:
      return {destinations, 1};
    case Kind::kRelabelMessage:
      return {destinations, schedule.shape.chunks > 1 ? 1U : 0U};
    case Kind::kDropMessage:
      return {destinations, 1};
    case Kind::kRedirectRemote:
      return {destinations + sources, 1};
    case Kind::kAddOutput:
      return {1, 1};
    case Kind::kAddRemoteOutput:  // of each peer
      return {1, static_cast<std::uint32_t>(schedule.shape.ranks - 1)};
    case Kind::kScratchToOutput:  // of a whole rank
      return {first ? 1U : 0U, 1};
    case Kind::kReadInputFirst:  // every chunk
      return {first ? 1U : 0U, schedule.shape.chunks};
    case Kind::kFewerVersions:
      return {schedule.shape.scratch_versions > 1 && &program == &schedule.ranks.front() && first
                  ? 1U
                  : 0U,
              1};
  }
  return {};
}

// Whether the kind means anything for the operand it would change.
bool applies(const Schedule& schedule, const Step& step, const Mutation& m) {
  if (m.kind == Kind::kRedirectSend)
    return schedule.shape.ranks > 2 && step.destinations[m.operand].kind == OperandKind::kSend;
  if (m.kind == Kind::kRedirectRecv)
    return schedule.shape.ranks > 2 && step.sources[m.operand].kind == OperandKind::kRecv;
  if (m.kind == Kind::kRelabelMessage)
    return step.destinations[m.operand].kind == OperandKind::kSend &&
           step.destinations[m.operand].span.count() > 0;
  if (m.kind == Kind::kDropMessage) return step.destinations[m.operand].kind == OperandKind::kSend;
  if (m.kind == Kind::kRedirectRemote)
    return schedule.shape.ranks > 2 && remote_at(step, m.operand);
  if (m.kind == Kind::kAddRemoteOutput)
    return chunks_named_by(step) != nullptr && chunks_named_by(step)->count() > 0;
  if (m.kind == Kind::kAddOutput)
    return chunks_named_by(step) != nullptr && chunks_named_by(step)->count() > 0 &&
           std::ranges::none_of(step.destinations, is_output);
  if (m.kind == Kind::kMoveStep) return m.variant / 2 != m.lane;
  const bool any = m.kind == Kind::kChangeTag || m.kind == Kind::kChangeChunk ||
                   m.kind == Kind::kChangeBuffer || m.kind == Kind::kDropSource ||
                   m.kind == Kind::kDuplicateSource || m.kind == Kind::kDropDestination;
  if (!any) return true;
  const std::size_t destinations = step.destinations.size();
  const bool of_sources = m.kind == Kind::kDropSource || m.kind == Kind::kDuplicateSource;
  const Operand& operand = of_sources                 ? step.sources[m.operand]
                           : m.operand < destinations ? step.destinations[m.operand]
                                                      : step.sources[m.operand - destinations];
  const bool empty = operand.span.count() == 0;
  switch (m.kind) {
    case Kind::kChangeTag:
      return is_message(operand);
    case Kind::kChangeChunk:
      return !empty;
    case Kind::kChangeBuffer:
      return !is_message(operand) && !empty;
    default:
      return is_message(operand) || !empty;  // an empty operand carries nothing
  }
}

void change_wait(RankProgram& program, Wait& wait, std::uint32_t variant) {
  const auto lanes = static_cast<std::uint32_t>(program.lanes.size());
  if (wait.lane >= lanes) return;  // by an earlier mutation
  const auto steps =
      std::max(1U, static_cast<std::uint32_t>(program.lanes[wait.lane].steps.size()));
  if (variant == 0) wait.step = (wait.step + 1) % steps;
  if (variant == 1) wait.step = (wait.step + steps - 1) % steps;
  if (variant == 2) wait.lane = (wait.lane + 1) % lanes;
  if (variant == 3) ++wait.back;
}

Rank other_peer(const Schedule& schedule, std::size_t rank, Rank peer) {
  do peer = (peer + 1) % schedule.shape.ranks;
  while (static_cast<std::size_t>(peer) == rank);
  return peer;
}

void change_operand(Schedule& schedule, const Mutation& m, Step& step) {
  Operand& operand = operand_at(step, m.operand);
  const ScheduleShape& shape = schedule.shape;
  if (m.kind == Kind::kChangeTag) operand.tag = static_cast<Tag>(operand.tag + 1);
  if (m.kind == Kind::kChangeChunk) {
    const bool scratch = !is_message(operand) && operand.buffer == BufferKind::kScratch;
    const std::uint32_t limit = scratch ? shape.scratch_chunks * shape.replicas : shape.chunks;
    operand.span.first = (operand.span.first + 1) % std::max(limit, 1U);
  }
  if (m.kind == Kind::kChangeBuffer)
    operand.buffer =
        static_cast<BufferKind>((static_cast<std::uint32_t>(operand.buffer) + 1 + m.variant) % 3);
}

template <typename T>
void erase_at(std::vector<T>& from, std::uint32_t index) {
  from.erase(from.begin() + index);
}

void duplicate_at(std::vector<Operand>& in, std::uint32_t index) {
  const Operand copy = in[index];
  in.insert(in.begin() + index, copy);
}

void move_step(RankProgram& program, const Mutation& m) {
  std::vector<Step>& from = program.lanes[m.lane].steps;
  std::vector<Step>& to = program.lanes[m.variant / 2].steps;
  const Step moved = from[m.step];
  erase_at(from, m.step);
  to.insert(m.variant % 2 == 0 ? to.begin() : to.end(), moved);
}

std::uint32_t next_chunk(const Schedule& schedule, std::uint32_t chunk) {
  return (chunk + 1) % std::max(schedule.shape.chunks, 1U);
}

// Calls visit(step, source) with the receive of the message that is sent at m, wherever that is.
template <typename Visit>
void visit_receive(Schedule& schedule, const Mutation& m, Visit visit) {
  const Operand sent = schedule.ranks[m.rank].lanes[m.lane].steps[m.step].destinations[m.operand];
  const auto from = static_cast<Rank>(m.rank);
  std::uint32_t before = 0;  // messages of the connection sent before this one
  const std::vector<Step>& steps = schedule.ranks[m.rank].lanes[m.lane].steps;
  for (std::uint32_t s = 0; s < m.step; ++s)
    for (const Operand& operand : steps[s].destinations)
      before += operand.kind == OperandKind::kSend && operand.peer == sent.peer &&
                operand.tag == sent.tag;
  for (Lane& lane : schedule.ranks[static_cast<std::size_t>(sent.peer)].lanes)
    for (Step& step : lane.steps)
      for (std::uint32_t i = 0; i < step.sources.size(); ++i) {
        const Operand& operand = step.sources[i];
        if (operand.kind == OperandKind::kRecv && operand.peer == from && operand.tag == sent.tag &&
            before-- == 0)
          return visit(step, i);
      }
}

void relabel_message(Schedule& schedule, const Mutation& m) {
  const auto relabel = [&](Operand& operand) {
    operand.span.first = next_chunk(schedule, operand.span.first);
  };
  visit_receive(schedule, m, [&](Step& step, std::uint32_t i) { relabel(step.sources[i]); });
  relabel(schedule.ranks[m.rank].lanes[m.lane].steps[m.step].destinations[m.operand]);
}

// A step that has nothing else on one side has an empty operand in its place.
void drop_message(Schedule& schedule, const Mutation& m) {
  const auto drop = [](std::vector<Operand>& operands, std::uint32_t index, BufferKind instead) {
    if (operands.size() > 1)
      erase_at(operands, index);
    else
      operands[index] = {.buffer = instead, .span = operands[index].span};
  };
  visit_receive(schedule, m,
                [&](Step& step, std::uint32_t i) { drop(step.sources, i, BufferKind::kInput); });
  drop(schedule.ranks[m.rank].lanes[m.lane].steps[m.step].destinations, m.operand,
       BufferKind::kOutput);
}

// Before all else, the chunk `m.variant` of the input becomes that of the output.
void read_input_first(RankProgram& program, const Mutation& m) {
  const Span chunk{.first = m.variant};
  std::vector<Step>& steps = program.lanes[m.lane].steps;
  Step& copy = *steps.emplace(steps.begin());
  copy.destinations = {{.buffer = BufferKind::kOutput, .span = chunk}};
  copy.sources = {{.buffer = BufferKind::kInput, .span = chunk}};
  for (Lane& lane : program.lanes)
    for (Step& step : lane.steps)
      for (Wait& wait : step.waits)
        if (wait.lane == m.lane) ++wait.step;
}

// As if the rank had an output for every chunk.
void keep_in_output(RankProgram& program) {
  for (Lane& lane : program.lanes)
    for (Step& step : lane.steps) {
      const Span* named = chunks_named_by(step);
      if (named == nullptr) continue;
      const Operand instead{.buffer = BufferKind::kOutput, .span = *named};
      for (auto* side : {&step.destinations, &step.sources})
        std::ranges::replace_if(*side, is_scratch, instead);
    }
}

// A lane that lost its last step goes, as builders drop it, where no wait numbers it or a later
// one.
void drop_empty_lane(RankProgram& program, std::uint32_t lane) {
  if (!program.lanes[lane].steps.empty()) return;
  for (const Lane& other : program.lanes)
    for (const Step& step : other.steps)
      for (const Wait& wait : step.waits)
        if (wait.lane >= lane) return;
  erase_at(program.lanes, lane);
}

}  // namespace

std::vector<Mutation> mutations_of(const Schedule& schedule, Kind kind) {
  std::vector<Mutation> found;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const RankProgram& program = schedule.ranks[r];
    for (std::uint32_t l = 0; l < program.lanes.size(); ++l) {
      const Lane& lane = program.lanes[l];
      for (std::uint32_t s = 0; s < lane.steps.size(); ++s) {
        const Choices choices = choices_of(schedule, program, lane, s, kind);
        for (std::uint32_t o = 0; o < choices.operands; ++o) {
          for (std::uint32_t v = 0; v < choices.variants; ++v) {
            const Mutation mutation{kind, r, l, s, o, v};
            if (applies(schedule, lane.steps[s], mutation)) found.push_back(mutation);
          }
        }
      }
    }
  }
  return found;
}

bool is_fatal(const Schedule& schedule, const Mutation& m) {
  const Step& step = schedule.ranks[m.rank].lanes[m.lane].steps[m.step];
  const bool speaks = std::ranges::any_of(step.destinations, is_message) ||
                      std::ranges::any_of(step.sources, is_message);
  const Traits& traits = kTraits[static_cast<std::size_t>(m.kind)];
  return traits.fatal && (m.kind != Kind::kDuplicateStep || speaks);
}

Schedule apply(Schedule schedule, const Mutation& m) {
  RankProgram& program = schedule.ranks[m.rank];
  std::vector<Step>& steps = program.lanes[m.lane].steps;
  Step& step = steps[m.step];
  switch (m.kind) {
    case Kind::kDeleteStep:
      erase_at(steps, m.step);
      break;
    case Kind::kDuplicateStep:
      steps.insert(steps.begin() + m.step, Step(step));
      break;
    case Kind::kSwapSteps:
      std::swap(step, steps[m.step + 1]);
      break;
    case Kind::kMoveStep:
      move_step(program, m);
      break;
    case Kind::kDeleteWait:
      erase_at(step.waits, m.operand);
      break;
    case Kind::kChangeWait:
      change_wait(program, step.waits[m.operand], m.variant);
      break;
    case Kind::kRedirectSend: {
      Operand& operand = step.destinations[m.operand];
      operand.peer = other_peer(schedule, m.rank, operand.peer);
      break;
    }
    case Kind::kRedirectRecv: {
      Operand& operand = step.sources[m.operand];
      operand.peer = other_peer(schedule, m.rank, operand.peer);
      break;
    }
    case Kind::kChangeTag:
    case Kind::kChangeChunk:
    case Kind::kChangeBuffer:
      change_operand(schedule, m, step);
      break;
    case Kind::kSwapSources:
      std::swap(step.sources[m.operand], step.sources[m.operand + 1]);
      break;
    case Kind::kDropSource:
      erase_at(step.sources, m.operand);
      break;
    case Kind::kDuplicateSource:
      duplicate_at(step.sources, m.operand);
      break;
    case Kind::kDropDestination:
      erase_at(step.destinations, m.operand);
      break;
    case Kind::kToggleFinish:
      step.finish = !step.finish;
      break;
    case Kind::kRelabelMessage:
      relabel_message(schedule, m);
      break;
    case Kind::kDropMessage:
      drop_message(schedule, m);
      break;
    case Kind::kRedirectRemote: {
      Operand& operand = operand_at(step, m.operand);
      operand.peer = other_peer(schedule, m.rank, operand.peer);
      break;
    }
    case Kind::kAddRemoteOutput:
      step.destinations.push_back(
          {.kind = OperandKind::kRemote,
           .buffer = BufferKind::kOutput,
           .peer = static_cast<Rank>((m.rank + 1 + m.variant) % schedule.ranks.size()),
           .span = *chunks_named_by(step)});
      break;
    case Kind::kScratchToOutput:
      keep_in_output(program);
      break;
    case Kind::kAddOutput:
      step.destinations.push_back({.buffer = BufferKind::kOutput, .span = *chunks_named_by(step)});
      break;
    case Kind::kReadInputFirst:
      read_input_first(program, m);
      break;
    case Kind::kFewerVersions:
      --schedule.shape.scratch_versions;
      break;
  }
  drop_empty_lane(program, m.lane);
  return schedule;
}

std::string describe(const Mutation& m) {
  return fmt::format("{}: rank {}, lane {}, step {}, operand {}, variant {}",
                     kTraits[static_cast<std::size_t>(m.kind)].name, m.rank, m.lane, m.step,
                     m.operand, m.variant);
}

}  // namespace tutti::mutation
