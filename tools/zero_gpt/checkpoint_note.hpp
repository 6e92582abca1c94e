// SPDX-License-Identifier: Apache-2.0
// What a checkpoint remembers besides the engine's state, as lines of "name value". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero_gpt/options.hpp"

namespace tutti::gpt {

struct CheckpointNote {
  int steps = 0;  // done
  std::string model;
  std::uint64_t seed = 0;
  int slots = 0, batch = 0;
  int all_steps = 0;  // that were to be done
  float learning_rate = 0;
  int warmup_steps = 0;
  std::string optimizer = "adamw", text = "generated";
};

[[nodiscard]] CheckpointNote note_of(const Options& options, int steps);
[[nodiscard]] std::string to_text(const CheckpointNote& note);
// Throws std::runtime_error for what to_text() never writes.
[[nodiscard]] CheckpointNote parse_note(const std::string& text);
// What was another way in `saved`, like "--seed 2": training goes on, on other bits.
[[nodiscard]] std::vector<std::string> differences(const CheckpointNote& saved,
                                                   const CheckpointNote& now);

}  // namespace tutti::gpt
