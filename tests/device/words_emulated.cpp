// SPDX-License-Identifier: Apache-2.0
// The words of blocks that are threads of the host: no figure of a GPU, but all that the program
// does.
#include "device_words/measure.hpp"
#include "emulated_machine.hpp"

namespace tutti::probe {

Words measure_words(const WordsOptions& options) {
  constexpr std::uint64_t kOperandBytes = 256 << 10;
  test::EmulatedMachine machine;
  Words words{.device = machine.name(), .blocks = machine.blocks(), .figures = {}, .faults = {}};
  Measurement<test::EmulatedMachine> measurement(machine, words);
  measurement.bandwidths(options.operand_bytes != 0 ? options.operand_bytes : kOperandBytes);
  measurement.latencies();
  return words;
}

}  // namespace tutti::probe
