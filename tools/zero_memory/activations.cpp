// SPDX-License-Identifier: Apache-2.0
#include "activations.hpp"

namespace tutti::zero_memory {
namespace {

double sbh_of(const GptShape& shape, std::uint64_t microbatch) {
  return static_cast<double>(shape.sequence) * static_cast<double>(microbatch) *
         static_cast<double>(shape.hidden);
}

// What stands outside the tensor-parallel parts: 10 sbh of a layer (2 + 1 attention's input and
// mask, 2 + 1 the perceptron's, 4 norms), which only sequence parallelism splits.
double outside(const TensorParallel& tensor) {
  return tensor.sequence_parallel ? static_cast<double>(tensor.ranks) : 1;
}

}  // namespace

std::string_view name_of(Recomputation recomputation) {
  constexpr std::array<std::string_view, kRecomputations.size()> kNames{"none", "selective",
                                                                        "full"};
  return kNames[static_cast<std::size_t>(recomputation)];
}

// Equations 1 (34 + 5 a s / h), 2 (10 + 24 / t + 5 a s / (h t)) and 4 (all divided by t).
LayerParts layer_parts(const GptShape& shape, std::uint64_t microbatch,
                       const TensorParallel& tensor) {
  const double sbh = sbh_of(shape, microbatch);
  const auto t = static_cast<double>(tensor.ranks), alone = outside(tensor);
  const auto s = static_cast<double>(shape.sequence);
  return {
      .attention = sbh * (3 / alone + 8 / t),
      .scores = 5 * static_cast<double>(shape.heads) * s * s * static_cast<double>(microbatch) / t,
      .perceptron = sbh * (3 / alone + 16 / t),
      .norms = sbh * 4 / alone};
}

double layer_activation_bytes(const GptShape& shape, std::uint64_t microbatch,
                              Recomputation recomputation, const TensorParallel& tensor) {
  const LayerParts parts = layer_parts(shape, microbatch, tensor);
  switch (recomputation) {
    case Recomputation::kNone:
      return parts.total();
    case Recomputation::kSelective:
      return parts.total() - parts.scores;
    case Recomputation::kFull:
      break;
  }
  return 2 * sbh_of(shape, microbatch) / outside(tensor);  // the layer's input alone
}

ActivationBytes activation_bytes(const GptShape& shape, std::uint64_t microbatch,
                                 Recomputation recomputation, const TensorParallel& tensor) {
  const double layer = layer_activation_bytes(shape, microbatch, recomputation, tensor);
  const LayerParts parts = layer_parts(shape, microbatch, tensor);
  ActivationBytes bytes;
  bytes.stored = static_cast<double>(shape.layers) * layer;
  if (recomputation == Recomputation::kFull) bytes.working = parts.total() - layer;
  if (recomputation == Recomputation::kSelective) bytes.working = parts.scores;
  const auto V = static_cast<double>(shape.vocabulary), h = static_cast<double>(shape.hidden);
  bytes.output = 4 * sbh_of(shape, microbatch) * (1 + V / h) / static_cast<double>(tensor.ranks);
  return bytes;
}

double tensor_parallel_bytes(const GptShape& shape, std::uint64_t microbatch, std::uint64_t ranks) {
  const auto t = static_cast<double>(ranks);
  return static_cast<double>(kTensorParallelAllReduces) * 2 * (t - 1) / t * 2 *
         sbh_of(shape, microbatch);
}

}  // namespace tutti::zero_memory
