// SPDX-License-Identifier: Apache-2.0
// The tables of a model on so many ranks: state and volume by stage, activations by recomputation,
// operations, time and bubble. Numbers first, then as text or as JSON. Pure; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "activations.hpp"
#include "advise.hpp"
#include "article_figures.hpp"
#include "gpt_shape.hpp"
#include "model_state.hpp"
#include "training_time.hpp"

namespace tutti::zero_memory {

struct ReportQuestion {
  Model model;
  Accounting accounting;
  std::uint64_t ranks = 64, memory_bytes = 0;
  std::uint64_t microbatch = 1, microsteps = 1;
  TensorParallel tensor;
  std::uint64_t stages = 1, pipeline_microbatches = 1, chunks = 1;
  double tokens = 0, peak_flops = 0, mfu = 0, days = 0;
};

struct StageRow {
  Stage stage;
  StateBytes state;
  double reduction = 1, limit = 1;  // limit: infinite for ZeRO-3
  VolumeBytes volume;               // of an optimizer step
  std::optional<std::uint64_t> least_ranks;
  std::uint64_t largest_model = 0;
};
struct ActivationRow {
  Recomputation recomputation;
  double layer = 0;
  ActivationBytes bytes;
  double more_operations = 0;  // share of 6 P D
};
struct Report {
  ReportQuestion question;
  std::vector<StageRow> stages;
  std::vector<ActivationRow> activations;  // empty without a shape
  double flops = 0, attention_flops = 0, seconds = 0;
  std::uint64_t step_tokens = 0;  // 0 without a shape
  double step_seconds = 0;
  std::uint64_t ranks_for_days = 0;
  Bubble bubble;
};
[[nodiscard]] Report make_report(const ReportQuestion& question);

[[nodiscard]] std::string to_text(const Report& report);
[[nodiscard]] nlohmann::json to_json(const Report& report);
[[nodiscard]] nlohmann::json to_json(const std::vector<Figure>& figures);

[[nodiscard]] std::string to_text(const AdviseQuestion& question,
                                  const std::vector<Advice>& advice);
[[nodiscard]] nlohmann::json to_json(const AdviseQuestion& question,
                                     const std::vector<Advice>& advice);

}  // namespace tutti::zero_memory
