// SPDX-License-Identifier: Apache-2.0
// The builder: the few words in which a generator writes one rank's program.
//
//   using namespace tutti::operands;
//   LaneBuilder up("up");
//   up.step().to(send(parent, tag, chunk(0))).from(input(chunk(0))).from(recv(left, tag,
//   chunk(0))); return assemble({std::move(up), ...});
//
// reads as the step it makes: send(parent) <- reduce(input[0], recv(left)). Unused fields of an
// operand keep their defaults, so that equal operands compare equal. Pure values; any thread; knows
// no algorithm.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti {

// In a namespace of their own, because send and recv are also names of POSIX.
namespace operands {

[[nodiscard]] inline Span chunk(std::uint32_t k) { return {.first = k}; }
[[nodiscard]] inline Span chunks(std::uint32_t first, std::uint32_t run) {
  return {.first = first, .run = run};
}

[[nodiscard]] inline Operand input(Span span) {
  return {.kind = OperandKind::kLocal, .buffer = BufferKind::kInput, .span = span};
}
[[nodiscard]] inline Operand output(Span span) {
  return {.kind = OperandKind::kLocal, .buffer = BufferKind::kOutput, .span = span};
}
// A scratch span does not wrap: first + everything it reaches lies below shape.scratch_chunks.
[[nodiscard]] inline Operand scratch(Span span) {
  return {.kind = OperandKind::kLocal, .buffer = BufferKind::kScratch, .span = span};
}
[[nodiscard]] inline Operand send(Rank peer, Tag tag, Span span) {
  return {.kind = OperandKind::kSend, .peer = peer, .tag = tag, .span = span};
}
[[nodiscard]] inline Operand recv(Rank peer, Tag tag, Span span) {
  return {.kind = OperandKind::kRecv, .peer = peer, .tag = tag, .span = span};
}
[[nodiscard]] inline Operand remote(Rank peer, BufferKind buffer, Span span) {
  return {.kind = OperandKind::kRemote, .buffer = buffer, .peer = peer, .span = span};
}

}  // namespace operands

// Fills one step, in the statement that opened it: the next step() of the lane ends its life.
class StepBuilder {
 public:
  explicit StepBuilder(Step& step) : step_(&step) {}
  StepBuilder& to(Operand operand) {
    step_->destinations.push_back(operand);
    return *this;
  }
  StepBuilder& from(Operand operand) {
    step_->sources.push_back(operand);
    return *this;
  }
  // Waits for a step of another lane, numbered as in the call of assemble().
  StepBuilder& after(std::uint32_t lane, std::uint32_t step, std::uint32_t back = 0) {
    step_->waits.push_back({lane, step, back});
    return *this;
  }
  StepBuilder& finish() {
    step_->finish = true;
    return *this;
  }

 private:
  Step* step_;
};

class LaneBuilder {
 public:
  explicit LaneBuilder(std::string name) { lane_.name = std::move(name); }
  StepBuilder step() { return StepBuilder(lane_.steps.emplace_back()); }
  [[nodiscard]] const Lane& lane() const { return lane_; }
  [[nodiscard]] Lane take() { return std::move(lane_); }

 private:
  Lane lane_;
};

// The lanes as one program. Lanes without steps are dropped and waits renumbered.
[[nodiscard]] RankProgram assemble(const std::vector<LaneBuilder>& lanes);
// A program of one lane; a lane that is moved here is not copied, however long.
[[nodiscard]] RankProgram assemble(LaneBuilder lane);

// Builds the program that every collective has on a single rank: output <- input, all chunks;
// finished where it reduces.
[[nodiscard]] RankProgram copy_alone(const Problem& problem, std::uint32_t chunks);

}  // namespace tutti
