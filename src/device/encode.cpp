// SPDX-License-Identifier: Apache-2.0
#include "device/encode.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace tutti::device {
namespace {

// A loop body of more steps than this is not looked for: rings have one step, trees two or three.
constexpr std::uint32_t kLongestBody = 8;

// Reads a plan's lane as if it were rolled up already.
class Roller {
 public:
  Roller(const Plan& plan, const PlanLane& lane)
      : plan_(plan), steps_(std::span(plan.steps).subspan(lane.first_step, lane.steps)) {}

  struct Found {
    std::uint32_t steps = 1, repetitions = 1;
    [[nodiscard]] std::uint32_t saved() const { return steps * (repetitions - 1); }
  };
  // The loop that saves most steps from `at` on.
  [[nodiscard]] Found best(std::uint32_t at) const {
    Found best;
    const auto left = static_cast<std::uint32_t>(steps_.size()) - at;
    for (std::uint32_t body = 1; body <= std::min(kLongestBody, left / 2); ++body) {
      const Found found{body, repetitions(at, body)};
      if (found.saved() > best.saved()) best = found;
    }
    return best;
  }

  [[nodiscard]] const PlanStep& step(std::uint32_t at) const { return steps_[at]; }
  // Returns how far operand `i` advances from step `at` to step `at + body`.
  [[nodiscard]] std::uint32_t advance(std::uint32_t at, std::uint32_t body, std::uint32_t i) const {
    const PlanOperand& here = operand(at, i);
    const std::uint32_t modulus = modulus_of(here);
    return (operand(at + body, i).span.first % modulus + modulus - here.span.first % modulus) %
           modulus;
  }
  // Unsigned and wrapping, as it is added.
  [[nodiscard]] std::uint32_t wait_advance(std::uint32_t at, std::uint32_t body,
                                           std::uint32_t i) const {
    return wait(at + body, i).step - wait(at, i).step;
  }
  [[nodiscard]] const PlanOperand& operand(std::uint32_t at, std::uint32_t i) const {
    return plan_.operands[steps_[at].first_operand + i];
  }
  [[nodiscard]] const Wait& wait(std::uint32_t at, std::uint32_t i) const {
    return plan_.waits[steps_[at].first_wait + i];
  }

 private:
  [[nodiscard]] std::uint32_t modulus_of(const PlanOperand& operand) const {
    const ScheduleShape& shape = plan_.shape;
    return operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch
               ? std::max(shape.scratch_chunks * shape.replicas, 1U)
               : shape.chunks;
  }

  // How often the body from `at` on comes, each time moved on by as much as the first time.
  [[nodiscard]] std::uint32_t repetitions(std::uint32_t at, std::uint32_t body) const {
    std::uint32_t times = 1;
    for (std::uint32_t next = at + body; next + body <= steps_.size(); next += body, ++times)
      for (std::uint32_t i = 0; i < body; ++i)
        if (!follows(at + i, next - body + i, body)) return times;
    return times;
  }

  // Is step `from + body` step `from` moved on by what step `first + body` is from step `first`?
  [[nodiscard]] bool follows(std::uint32_t first, std::uint32_t from, std::uint32_t body) const {
    const PlanStep& a = steps_[from];
    const PlanStep& b = steps_[from + body];
    if (a.destinations != b.destinations || a.sources != b.sources || a.waits != b.waits ||
        a.finish != b.finish)
      return false;
    for (std::uint32_t i = 0; i < std::uint32_t{a.destinations} + a.sources; ++i)
      if (!alike(operand(from, i), operand(from + body, i)) ||
          advance(first, body, i) != advance(from, body, i))
        return false;
    for (std::uint32_t i = 0; i < a.waits; ++i) {
      const Wait &x = wait(from, i), &y = wait(from + body, i);
      if (x.lane != y.lane || x.back != y.back ||
          wait_advance(first, body, i) != wait_advance(from, body, i))
        return false;
    }
    return true;
  }

  [[nodiscard]] static bool alike(const PlanOperand& a, const PlanOperand& b) {
    const bool local = a.kind == OperandKind::kLocal;
    const bool buffers = local || a.kind == OperandKind::kRemote;
    return a.kind == b.kind && (!buffers || a.buffer == b.buffer) &&
           (local || a.connection == b.connection) && a.span.run == b.span.run &&
           a.span.stride == b.span.stride && a.span.repetitions == b.span.repetitions;
  }

  const Plan& plan_;
  std::span<const PlanStep> steps_;
};

void append_step(Program& program, const Roller& lane, std::uint32_t at,
                 const Roller::Found& loop) {
  const PlanStep& from = lane.step(at);
  const bool loops = loop.repetitions > 1;
  program.steps.push_back({.first_operand = static_cast<std::uint32_t>(program.operands.size()),
                           .first_wait = static_cast<std::uint32_t>(program.waits.size()),
                           .destinations = from.destinations,
                           .sources = from.sources,
                           .waits = from.waits,
                           .finish = from.finish});
  for (std::uint32_t i = 0; i < std::uint32_t{from.destinations} + from.sources; ++i) {
    const PlanOperand& operand = lane.operand(at, i);
    program.operands.push_back({.kind = operand.kind,
                                .buffer = operand.buffer,
                                .connection = operand.connection,
                                .advance = loops ? lane.advance(at, loop.steps, i) : 0,
                                .span = operand.span});
  }
  for (std::uint32_t i = 0; i < from.waits; ++i)
    program.waits.push_back(
        {.wait = lane.wait(at, i), .advance = loops ? lane.wait_advance(at, loop.steps, i) : 0});
}

void append_lane(Program& program, const Plan& plan, const PlanLane& from) {
  const Roller lane(plan, from);
  program.lanes.push_back({.first_loop = static_cast<std::uint32_t>(program.loops.size()),
                           .steps = from.steps,
                           .replica = from.replica});
  for (std::uint32_t at = 0; at < from.steps;) {
    const Roller::Found loop = lane.best(at);
    program.loops.push_back({.first_step = static_cast<std::uint32_t>(program.steps.size()),
                             .steps = loop.steps,
                             .repetitions = loop.repetitions});
    for (std::uint32_t i = 0; i < loop.steps; ++i) append_step(program, lane, at + i, loop);
    at += loop.steps * loop.repetitions;
  }
  Lane& lane_of = program.lanes.back();
  lane_of.loops = static_cast<std::uint32_t>(program.loops.size()) - lane_of.first_loop;
}

}  // namespace

Result<Program> encode_program(const Plan& plan) {
  for (const PlanStep& step : plan.steps)
    if (const auto operands = std::uint32_t{step.destinations} + step.sources;
        operands > kMaxOperands)
      return make_error(
          Code::kNotSupported,
          fmt::format("{} among {} ranks has steps with {} operands, but a device block holds {}; "
                      "use another algorithm",
                      plan.shape.algorithm, plan.shape.ranks, operands, kMaxOperands));
  Program program;
  program.shape = plan.shape;
  for (const PlanLane& lane : plan.lanes) append_lane(program, plan, lane);
  return program;
}

std::uint64_t Program::bytes() const {
  return lanes.size() * sizeof(Lane) + loops.size() * sizeof(Loop) + steps.size() * sizeof(Step) +
         operands.size() * sizeof(Operand) + waits.size() * sizeof(LoopWait);
}

}  // namespace tutti::device
