// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/checkpoint_note.hpp"

#include <fmt/core.h>

#include <sstream>
#include <stdexcept>

namespace tutti::gpt {

CheckpointNote note_of(const Options& options, int steps) {
  return {steps, std::string(options.size.name), options.seed, options.engine.slots, options.batch};
}

std::string to_text(const CheckpointNote& note) {
  return fmt::format("steps {}\nmodel {}\nseed {}\nslots {}\nbatch {}\n", note.steps, note.model,
                     note.seed, note.slots, note.batch);
}

CheckpointNote parse_note(const std::string& text) {
  std::istringstream in(text);
  CheckpointNote note;
  const auto next = [&](const char* name, auto& value) {
    std::string found;
    if (!(in >> found >> value) || found != name)
      throw std::runtime_error(
          fmt::format("the checkpoint is not one of zero_gpt: its note does not say '{}'", name));
  };
  next("steps", note.steps);
  next("model", note.model);
  next("seed", note.seed);
  next("slots", note.slots);
  next("batch", note.batch);
  if (note.steps < 0) throw std::runtime_error("the checkpoint's number of steps is negative");
  return note;
}

std::vector<std::string> differences(const CheckpointNote& saved, const CheckpointNote& now) {
  std::vector<std::string> found;
  const auto compare = [&](const char* flag, const auto& before, const auto& after) {
    if (before != after) found.push_back(fmt::format("{} {}, not {}", flag, before, after));
  };
  compare("--model", saved.model, now.model);
  compare("--seed", saved.seed, now.seed);
  compare("--slots", saved.slots, now.slots);
  compare("--batch", saved.batch, now.batch);
  return found;
}

}  // namespace tutti::gpt
