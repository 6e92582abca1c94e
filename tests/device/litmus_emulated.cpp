// SPDX-License-Identifier: Apache-2.0
// The litmus of blocks that are threads of the host, a few epochs of it.
#include "emulated_machine.hpp"
#include "litmus_parts.hpp"

namespace tutti::probe {

LitmusResult run_litmus(const LitmusOptions& options) {
  constexpr std::uint64_t kStreamBytes = 64 << 10, kMostEpochs = 200;
  test::EmulatedMachine machine;
  LitmusOptions few = options;
  few.epochs = std::min(few.epochs, kMostEpochs);
  return {.device = machine.name(),
          .why_none = {},
          .parts = LitmusRun<test::EmulatedMachine>(machine, few, kStreamBytes).all_parts()};
}

}  // namespace tutti::probe
