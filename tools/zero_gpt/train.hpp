// SPDX-License-Identifier: Apache-2.0
// A rank's part of a training run. All ranks call it alike; rank 0 prints and writes files.
#pragma once

#include <string>
#include <vector>

#include "tutti/tutti.hpp"
#include "tutti/zero.hpp"
#include "zero_gpt/options.hpp"
#include "zero_gpt/text.hpp"

namespace tutti::gpt {

struct TextSource {
  std::string name;        // for messages
  double entropy = 0;      // nats per byte that the grammar put in; 0: unknown
  std::string bytes = {};  // what Text is made of
};

// The model's units as the engine takes them.
[[nodiscard]] std::vector<zero::Unit> engine_units(const Size& size);

// Why the engine would refuse a run of these options, in one line; empty if it would not. Pure.
[[nodiscard]] std::string engine_refuses(const Options& options);

// Returns what --expect-margin asked for and training did not reach, on rank 0; else nothing.
// Throws what the engine and the library throw, and std::runtime_error for files.
[[nodiscard]] std::string train(Communicator& comm, const Options& options,
                                const TextSource& source, const Text& text);

}  // namespace tutti::gpt
