// SPDX-License-Identifier: Apache-2.0
// The command line of zero_gpt. Reading it is pure; a mistake is one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "tutti/zero.hpp"
#include "zero_gpt/size.hpp"

namespace tutti::gpt {

inline constexpr int kMostProcesses = 1024;

enum class Matmul : std::uint8_t { kOwn, kBlas };

struct Options {
  int processes = 1;      // --procs, or what a launcher started
  bool launched = false;  // by a launcher: nothing is forked
  Size size{};
  zero::Config engine;
  std::optional<zero::Servers> servers;  // --stage ps
  int steps = 1000;
  int batch = 4;  // sequences of a slot
  float learning_rate = 3e-3F;
  int warmup_steps = 50;
  std::variant<zero::AdamW, zero::Sgd> optimizer;
  std::uint64_t seed = 1;
  std::string text_path;  // empty: the generated corpus
  std::string csv_path, svg_path;
  int sample_bytes = 0;
  std::string save_path, load_path;
  int save_every = 0;      // 0: at the end
  int eval_every = 0;      // 0: at the end
  int eval_windows = 0;    // of the held-out text; 0: all
  float least_margin = 0;  // of the trained model over the trigram model; 0: any
  int log_every = 10;
  int threads = 0;  // of a rank; 0: the cores divided among the forked ranks
  Matmul matmul = Matmul::kOwn;

  // Ranks that compute: all but those that only serve.
  [[nodiscard]] int workers() const {
    return servers && !servers->colocated ? processes - servers->count : processes;
  }
  // Of all slots of a step.
  [[nodiscard]] std::uint64_t tokens_per_step() const {
    return static_cast<std::uint64_t>(engine.slots) * static_cast<std::uint64_t>(batch) *
           static_cast<std::uint64_t>(size.context);
  }
};

struct ParsedOptions {
  std::optional<Options> options;  // empty: end with `status`
  int status = 0;
};

// Prints help, the version or what is wrong, unless another process of the launcher does it
// (`speaks`). `launched`: processes that a launcher started together; 1: none.
[[nodiscard]] ParsedOptions parse_options(int argc, char** argv, int launched, bool speaks);

// Linear to the full rate within the first steps, then half a cosine to a tenth of it. Pure.
// `step` counts from 0.
[[nodiscard]] float learning_rate(const Options& options, int step);

}  // namespace tutti::gpt
