// SPDX-License-Identifier: Apache-2.0
// The text that rank 0 prints. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/parameter_server.hpp"
#include "tutti/zero.hpp"
#include "zero_gpt/options.hpp"

namespace tutti::gpt {

// What is known when the run begins.
struct StartFacts {
  std::string instruction_set;
  double own_flops = 0, blas_flops = 0;  // of one rank while all measure
  double peak_flops = 0;                 // of the code in use, of all ranks together
  std::string blas;                      // empty: none
  int threads = 1;
  zero::Memory memory;
  std::uint64_t server_bytes = 0;  // of a rank that only serves; 0: none does
  std::uint64_t activation_bytes = 0;
  std::string text;
  std::uint64_t training_bytes = 0, held_out_bytes = 0;
  double trigram = 0, floor = 0;  // nats per token; floor 0: unknown
};
// Lines that begin with '#'.
[[nodiscard]] std::string start_text(const Options& options, const StartFacts& facts);

// Of the steps since the last line.
struct Progress {
  int step = 0, steps_since = 0;
  double loss = 0;
  float learning_rate = 0, gradient_norm = 0;
  double seconds = 0;
  double sent_bytes = 0;     // of all ranks together
  double stall_seconds = 0;  // the mean of the ranks
};
[[nodiscard]] std::string progress_line(const Options& options, const Progress& progress,
                                        double peak_flops);

// The same of worker 0 alone, where workers do not wait for each other.
[[nodiscard]] std::string worker_line(const Options& options, const Progress& progress);
// Lines on how old the parameters of asynchronous updates were; empty without any.
[[nodiscard]] std::string arrivals_text(const std::vector<zero::Arrival>& arrivals);

// "12.3 MB": powers of 1000.
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace tutti::gpt
