// SPDX-License-Identifier: Apache-2.0
// The text form: one line a step, for a person at a terminal. Not read back; JSON is for that.
//
// Chunks are shown once where they are the same for the whole step: a message names its span only
// if no local operand of the step has that very span.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "schedule/print.hpp"
#include "schedule/step_text.hpp"

namespace tutti {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string text_of(const Span& span) {
  if (span.count() == 0) return "[]";
  std::string text =
      span.run == 1 ? fmt::format("[{}", span.first)
                    : fmt::format("[{}..{}", span.first, std::uint64_t{span.first} + span.run - 1);
  if (span.repetitions > 1) text += fmt::format(" +{}x{}", span.stride, span.repetitions - 1);
  return text + "]";
}

std::string_view name_of(BufferKind buffer) {
  switch (buffer) {
    case BufferKind::kInput:
      return "input";
    case BufferKind::kOutput:
      return "output";
    case BufferKind::kScratch:
      return "scratch";
  }
  return "?";
}

std::string text_of(const Operand& operand, bool with_span) {
  const std::string span = with_span ? text_of(operand.span) : "";
  switch (operand.kind) {
    case OperandKind::kLocal:
      return fmt::format("{}{}", name_of(operand.buffer), text_of(operand.span));
    case OperandKind::kSend:
      return fmt::format("send({},t{}){}", operand.peer, operand.tag, span);
    case OperandKind::kRecv:
      return fmt::format("recv({},t{}){}", operand.peer, operand.tag, span);
    case OperandKind::kRemote:
      return fmt::format("remote({},{}){}", operand.peer, name_of(operand.buffer),
                         text_of(operand.span));
  }
  return "?";
}

void append_program(std::string& text, Rank rank, const RankProgram& program) {
  for (const Lane& lane : program.lanes)
    for (std::size_t i = 0; i < lane.steps.size(); ++i)
      fmt::format_to(Out(text), "r{}.{}.{}: {}\n", rank, lane.name, i,
                     step_text(lane.steps[i], program.lanes));
}

std::string header(const ScheduleShape& shape) {
  std::string text = fmt::format("# {} {}: ranks {}, chunks {}, tags {}", shape.algorithm,
                                 name_of(shape.collective), shape.ranks, shape.chunks, shape.tags);
  if (shape.replicas > 1) text += fmt::format(", replicas {}", shape.replicas);
  if (shape.root != 0) text += fmt::format(", root {}", shape.root);
  if (shape.scratch_chunks > 0)
    text += fmt::format(", scratch {} x {} versions", shape.scratch_chunks, shape.scratch_versions);
  if (shape.apart) text += ", input and output apart";
  if (!shape.block_ranks.empty())
    text += fmt::format(", blocks of ranks {}", fmt::join(shape.block_ranks, " "));
  return text + fmt::format("; connections into a rank {}, of a pair {}\n", shape.max_incoming,
                            shape.max_per_pair);
}

}  // namespace

std::string step_text(const Step& step, const std::vector<Lane>& lanes) {
  const auto names_span = [&](const Span& span) {
    const auto same = [&](const Operand& o) {
      return o.kind == OperandKind::kLocal && o.buffer != BufferKind::kScratch && o.span == span;
    };
    return std::any_of(step.destinations.begin(), step.destinations.end(), same) ||
           std::any_of(step.sources.begin(), step.sources.end(), same);
  };
  const auto list = [&](const std::vector<Operand>& operands, std::string_view separator) {
    std::string text;
    for (const Operand& operand : operands) {
      if (!text.empty()) text += separator;
      text += text_of(operand, !names_span(operand.span));
    }
    return text.empty() ? std::string("nothing") : text;
  };
  const std::string sources = list(step.sources, ", ");
  std::string text = fmt::format("{} <- {}", list(step.destinations, " + "),
                                 step.sources.size() > 1 ? "reduce(" + sources + ")" : sources);
  for (const Wait& wait : step.waits) {
    const std::string lane = wait.lane < lanes.size() ? lanes[wait.lane].name : "?";
    text += fmt::format("  after {}.{}", lane, wait.step);
    if (wait.back > 0) text += fmt::format(" of {} slices before", wait.back);
  }
  if (step.finish) text += "  finish";
  return text;
}

std::string to_text(const ScheduleShape& shape, Rank rank, const RankProgram& program) {
  std::string text = header(shape);
  append_program(text, rank, program);
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text = header(schedule.shape);
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
    append_program(text, static_cast<Rank>(r), schedule.ranks[r]);
  return text;
}

}  // namespace tutti
