// SPDX-License-Identifier: Apache-2.0
// What bench_device_words measures: figures with names, each with a prediction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::probe {

struct Figure {
  std::string name;   // predictions.cpp lists them
  std::string unit;   // "ns" or "GB/s", with GB = 1e9 bytes
  double value = 0;   // median
  double spread = 0;  // half the middle half's width, over the median
};

// One device's.
struct Words {
  std::string device;        // its name
  std::uint32_t blocks = 0;  // of the interpreter, that it runs at once
  std::vector<Figure> figures;
  // Messages that did not hold what was sent, and waits that came to their end: both must be empty.
  std::vector<std::string> faults;

  [[nodiscard]] const Figure* find(std::string_view name) const;
};

struct WordsOptions {
  std::uint64_t operand_bytes = 0;  // of those that are moved; 0: as the machine has it
};

// Measures on the current device. Ends the program on an error of the device. Empty `device`: there
// is none, and the only fault says why. Either CUDA's or that of threads, as is linked.
[[nodiscard]] Words measure_words(const WordsOptions& options);

// What was predicted before anything was measured; 0: nothing.
[[nodiscard]] double predicted(std::string_view name);

}  // namespace tutti::probe
