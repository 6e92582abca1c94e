// SPDX-License-Identifier: Apache-2.0
// From a plan to its device form, on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program.hpp"
#include "plan/plan.hpp"

namespace tutti::device {

struct Program {
  std::vector<Lane> lanes;
  std::vector<Loop> loops;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<LoopWait> waits;
  ScheduleShape shape;

  [[nodiscard]] std::uint64_t bytes() const;
};

// Errors: kNotSupported for a step of more than kMaxOperands operands.
[[nodiscard]] Result<Program> encode_program(const Plan& plan);

}  // namespace tutti::device
