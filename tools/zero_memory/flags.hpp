// SPDX-License-Identifier: Apache-2.0
// zero_memory's flags, and the questions that they ask. Numbers such as 7e9 are read as whole ones.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "report.hpp"

namespace tutti::zero_memory {

struct Flags {
  std::string model, svg, cluster, profile;
  std::optional<double> parameters, layers, hidden, heads, sequence, vocabulary;
  std::string bytes = "2,2,12";
  bool fp32 = false;
  std::optional<double> ranks, batch, microsteps, microbatch;
  std::optional<double> gpu_memory, peak_flops;
  double reserve = 0, tokens = 300e9, mfu = 0.4, days = 30;
  double tensor_parallel = 1;
  bool sequence_parallel = false, attention = false;
  double pipeline = 1, pipeline_microbatches = 8, chunks = 1;
  double units = 32, units_in_use = 2, prefetch = 1;
  bool articles = false, json = false;
};
void add_flags(CLI::App& app, Flags& flags);

// Errors name the flag and what it must be.
[[nodiscard]] Result<Model> model_of(const Flags& flags);
[[nodiscard]] Result<Accounting> accounting_of(const Flags& flags);
[[nodiscard]] Result<ReportQuestion> report_question(const Flags& flags);
// Of a cluster's ranks; `gpu` is the model of each, "" for cores. Where that is not the default's
// (H100), memory and FLOP/s must be given.
[[nodiscard]] Result<AdviseQuestion> advise_question(const Flags& flags, std::uint64_t ranks,
                                                     std::uint64_t ranks_per_host,
                                                     std::string_view gpu);

}  // namespace tutti::zero_memory
