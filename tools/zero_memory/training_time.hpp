// SPDX-License-Identifier: Apache-2.0
// Operations and time of a training run, the bubble of a pipeline, and the steps of collectives.
// Pure; any thread.
#pragma once

#include <cstdint>

#include "activations.hpp"
#include "gpt_shape.hpp"

namespace tutti::zero_memory {

inline constexpr double kSecondsPerDay = 86400, kSecondsPerYear = 365.25 * kSecondsPerDay;

// 6 P D: 2 P D in forward, 4 P D in backward. Kaplan et al., Scaling Laws for Neural Language
// Models, 2020, section 2.1.
[[nodiscard]] double training_flops(double parameters, double tokens);
// 12 L h s D in addition: scores and their product with the values, forward and backward, without
// a discount for the causal mask. Chowdhery et al., PaLM, 2022, appendix B.
[[nodiscard]] double attention_flops(const GptShape& shape, double tokens);
// What recomputation adds: all of forward again (2 P D + 4 L h s D), or the attention's scores
// alone (4 L h s D).
[[nodiscard]] double recomputation_flops(double parameters, const GptShape& shape, double tokens,
                                         Recomputation recomputation);

// Model FLOPs utilization: useful operations per second over the peak of all ranks. PaLM, section
// 4.1.
[[nodiscard]] double utilization(double flops, double seconds, double ranks, double peak_flops);
[[nodiscard]] double training_seconds(double flops, double ranks, double peak_flops, double mfu);
// The least whole number that trains in so many seconds.
[[nodiscard]] std::uint64_t ranks_for(double flops, double seconds, double peak_flops, double mfu);

// Idle time of a flushing pipeline of P stages and M microbatches, v chunks of layers a stage:
// (P - 1) / (v M) of the ideal time, (P - 1) / (v M + P - 1) of the total. Narayanan et al.,
// Efficient Large-Scale Language Model Training on GPU Clusters, 2021, section 2.2. GPipe and 1F1B
// have the same.
struct Bubble {
  double of_ideal = 0, of_total = 0;
};
[[nodiscard]] Bubble pipeline_bubble(std::uint64_t stages, std::uint64_t microbatches,
                                     std::uint64_t chunks = 1);
// Microbatches whose activations a stage (from 0) holds at once: all of them in GPipe, at most
// P - stage in 1F1B.
enum class PipelineSchedule : std::uint8_t { kGpipe, kOneForwardOneBackward };
[[nodiscard]] std::uint64_t microbatches_in_flight(PipelineSchedule schedule, std::uint64_t stages,
                                                   std::uint64_t microbatches, std::uint64_t stage);

// Messages that a rank sends one after another in an all-reduce: 2 (N - 1) around a ring,
// 2 log2 N (rounded up) by Rabenseifner's algorithm. Thakur, Rabenseifner and Gropp, 2005.
[[nodiscard]] std::uint64_t ring_rounds(std::uint64_t ranks);
[[nodiscard]] std::uint64_t rabenseifner_rounds(std::uint64_t ranks);

}  // namespace tutti::zero_memory
