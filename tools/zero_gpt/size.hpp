// SPDX-License-Identifier: Apache-2.0
// The sizes of the model, and the tensors that a size has, in units. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::gpt {

struct Size {
  std::string_view name;
  int vocabulary;
  int context;  // the most tokens that a sequence has
  int channels;
  int heads;  // divides channels
  int layers;

  [[nodiscard]] int head_channels() const { return channels / heads; }
  // First unit: the embeddings; then one for each block; last: the final layer norm.
  [[nodiscard]] int units() const { return layers + 2; }
  [[nodiscard]] int last_unit() const { return layers + 1; }
  // Floating-point operations for each token of a training step, as they are usually counted: 6 for
  // each weight of a matrix, and 12 * layers * channels * context for attention, without a discount
  // for what the causal mask leaves out. Recomputation would not count.
  [[nodiscard]] std::uint64_t flops_per_token() const;
};

// All sizes. To add one, add a row.
[[nodiscard]] std::span<const Size> all_sizes();
// Null if there is none of that name.
[[nodiscard]] const Size* find_size(std::string_view name);
[[nodiscard]] std::string size_names();  // "nano, tiny, ..."

enum class Fill : std::uint8_t { kZero, kOne, kNormal };

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Fill fill = Fill::kNormal;
  float deviation = 0;  // kNormal: its standard deviation

  [[nodiscard]] std::uint64_t elements() const;
  [[nodiscard]] bool decays() const { return shape.size() > 1; }  // AdamW's decay: matrices alone
};

struct TensorUnit {
  std::string name;
  std::vector<Tensor> tensors;
};

// Where a tensor stands in its unit.
enum Embeddings { kTokenEmbedding, kPositionEmbedding, kEmbeddingTensors };
enum Block {
  kNorm1Gain,
  kNorm1Bias,
  kQkvWeight,  // matrices are [inputs, outputs]
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Gain,
  kNorm2Bias,
  kUpWeight,
  kUpBias,
  kDownWeight,
  kDownBias,
  kBlockTensors
};
enum FinalNorm { kFinalGain, kFinalBias, kFinalNormTensors };

[[nodiscard]] std::vector<TensorUnit> units_of(const Size& size);
[[nodiscard]] std::uint64_t parameters_of(const Size& size);

// The initial values of elements [first, first + values.size()) of a tensor: a function of the
// seed, the tensor's name and the element alone.
void fill_tensor(const Tensor& tensor, std::uint64_t seed, std::uint64_t first,
                 std::span<float> values);

}  // namespace tutti::gpt
