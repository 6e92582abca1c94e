// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/checkpoint_note.hpp"

#include <fmt/core.h>

#include <sstream>
#include <stdexcept>
#include <variant>

namespace tutti::gpt {

CheckpointNote note_of(const Options& options, int steps) {
  CheckpointNote note{steps, std::string(options.size.name), options.seed, options.engine.slots,
                      options.batch};
  note.all_steps = options.steps;
  note.learning_rate = options.learning_rate;
  note.warmup_steps = options.warmup_steps;
  note.optimizer = std::holds_alternative<zero::AdamW>(options.optimizer) ? "adamw" : "sgd";
  note.text = options.text_path.empty() ? "generated" : "file";
  return note;
}

std::string to_text(const CheckpointNote& note) {
  return fmt::format(
      "steps {}\nmodel {}\nseed {}\nslots {}\nbatch {}\nall_steps {}\nlearning_rate {}\n"
      "warmup {}\noptimizer {}\ntext {}\n",
      note.steps, note.model, note.seed, note.slots, note.batch, note.all_steps, note.learning_rate,
      note.warmup_steps, note.optimizer, note.text);
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
  next("all_steps", note.all_steps);
  next("learning_rate", note.learning_rate);
  next("warmup", note.warmup_steps);
  next("optimizer", note.optimizer);
  next("text", note.text);
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
  // The learning rate of a step depends on these.
  compare("--steps", saved.all_steps, now.all_steps);
  compare("--lr", saved.learning_rate, now.learning_rate);
  compare("--warmup", saved.warmup_steps, now.warmup_steps);
  compare("--optimizer", saved.optimizer, now.optimizer);
  if (saved.text != now.text)
    found.push_back(now.text == "file" ? "the generated corpus, not --text" : "--text FILE");
  return found;
}

}  // namespace tutti::gpt
