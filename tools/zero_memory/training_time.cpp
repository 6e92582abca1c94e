// SPDX-License-Identifier: Apache-2.0
#include "training_time.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::zero_memory {
namespace {

double layers_hidden_sequence(const GptShape& shape) {
  return static_cast<double>(shape.layers) * static_cast<double>(shape.hidden) *
         static_cast<double>(shape.sequence);
}

}  // namespace

double training_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

double attention_flops(const GptShape& shape, double tokens) {
  return 12 * layers_hidden_sequence(shape) * tokens;
}

double recomputation_flops(double parameters, const GptShape& shape, double tokens,
                           Recomputation recomputation) {
  const double scores = 4 * layers_hidden_sequence(shape) * tokens;
  switch (recomputation) {
    case Recomputation::kNone:
      break;
    case Recomputation::kSelective:
      return scores;
    case Recomputation::kFull:
      return 2 * parameters * tokens + scores;
  }
  return 0;
}

double utilization(double flops, double seconds, double ranks, double peak_flops) {
  return flops / (seconds * ranks * peak_flops);
}

double training_seconds(double flops, double ranks, double peak_flops, double mfu) {
  return flops / (ranks * peak_flops * mfu);
}

std::uint64_t ranks_for(double flops, double seconds, double peak_flops, double mfu) {
  return static_cast<std::uint64_t>(std::ceil(flops / (seconds * peak_flops * mfu)));
}

Bubble pipeline_bubble(std::uint64_t stages, std::uint64_t microbatches, std::uint64_t chunks) {
  const auto idle = static_cast<double>(stages - 1);
  const auto ideal = static_cast<double>(chunks * microbatches);
  return {idle / ideal, idle / (ideal + idle)};
}

std::uint64_t microbatches_in_flight(PipelineSchedule schedule, std::uint64_t stages,
                                     std::uint64_t microbatches, std::uint64_t stage) {
  if (schedule == PipelineSchedule::kGpipe) return microbatches;
  return std::min(microbatches, stages - stage);
}

std::uint64_t ring_rounds(std::uint64_t ranks) { return 2 * (ranks - 1); }

std::uint64_t rabenseifner_rounds(std::uint64_t ranks) {
  return 2 * static_cast<std::uint64_t>(std::bit_width(ranks - 1));
}

}  // namespace tutti::zero_memory
