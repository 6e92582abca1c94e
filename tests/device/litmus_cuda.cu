// SPDX-License-Identifier: Apache-2.0
#include "device_words/cuda_machine.cuh"
#include "litmus_parts.hpp"

namespace tutti::probe {

LitmusResult run_litmus(const LitmusOptions& options) {
  LitmusResult result;
  result.why_none = CudaMachine::unusable();
  if (!result.why_none.empty()) return result;
  // Of all streaming blocks several times what the second-level cache holds.
  constexpr std::uint64_t kStreamBytes = 4 << 20;
  CudaMachine machine;
  result.device = machine.name();
  result.parts = LitmusRun<CudaMachine>(machine, options, kStreamBytes).all_parts();
  return result;
}

}  // namespace tutti::probe
