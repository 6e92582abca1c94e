// SPDX-License-Identifier: Apache-2.0
// What a rank keeps from forward to backward: activations of a GPT in 16 bits, with dropout.
//
// After Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022:
// s sequence, b microbatch, h hidden, a heads, L layers, t tensor-parallel ranks, V vocabulary.
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gpt_shape.hpp"

namespace tutti::zero_memory {

enum class Recomputation : std::uint8_t { kNone, kSelective, kFull };
inline constexpr std::array kRecomputations{Recomputation::kNone, Recomputation::kSelective,
                                            Recomputation::kFull};
[[nodiscard]] std::string_view name_of(Recomputation recomputation);

struct TensorParallel {
  std::uint64_t ranks = 1;
  bool sequence_parallel = false;  // norms and dropout are split along the sequence too
};

// The parts of one layer, in bytes, on one rank (section 4.1, and the tables of 4.2).
struct LayerParts {
  double attention = 0;   // 11 sbh: inputs of its matrices, its output's dropout mask
  double scores = 0;      // 5 a s^2 b: softmax, its dropout and mask; what selective recomputes
  double perceptron = 0;  // 19 sbh: 2 input, 8 of GeLU, 8 of the second matrix, 1 mask
  double norms = 0;       // 4 sbh
  [[nodiscard]] double total() const { return attention + scores + perceptron + norms; }
};
[[nodiscard]] LayerParts layer_parts(const GptShape& shape, std::uint64_t microbatch,
                                     const TensorParallel& tensor = {});

// Bytes of one layer: s b h (34 + 5 a s / h), 34 s b h, 2 s b h where nothing is split.
[[nodiscard]] double layer_activation_bytes(const GptShape& shape, std::uint64_t microbatch,
                                            Recomputation recomputation,
                                            const TensorParallel& tensor = {});
// Of a rank that holds all layers of one microbatch.
struct ActivationBytes {
  double stored = 0;   // L layers
  double working = 0;  // of the layer whose activations are being recomputed
  double output = 0;   // 4 s b h (1 + V / h) / t: final norm, head, logits in fp32 (section 4.3)
  [[nodiscard]] double total() const { return stored + working + output; }
};
[[nodiscard]] ActivationBytes activation_bytes(const GptShape& shape, std::uint64_t microbatch,
                                               Recomputation recomputation,
                                               const TensorParallel& tensor = {});

// All-reduces of b s h elements that Megatron's tensor parallelism makes in a layer: after
// attention and after the perceptron in forward, before them in backward (Shoeybi et al.,
// Megatron-LM, 2019, section 3).
inline constexpr std::uint64_t kTensorParallelAllReduces = 4;
// Bytes that a rank sends for them, in one layer and microbatch of 16-bit activations.
[[nodiscard]] double tensor_parallel_bytes(const GptShape& shape, std::uint64_t microbatch,
                                           std::uint64_t ranks);

}  // namespace tutti::zero_memory
