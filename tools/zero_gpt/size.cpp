// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/size.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "zero_gpt/random.hpp"

namespace tutti::gpt {
namespace {

// `odd` has no power of two where one would be natural: it exercises padding, remainders of vectors
// and a vocabulary smaller than a byte.
constexpr std::array kSizes = {
    Size{"nano", 256, 32, 64, 4, 2},
    Size{"tiny", 256, 64, 128, 4, 4},
    Size{"small", 256, 128, 256, 8, 6},
    Size{"odd", 97, 27, 48, 4, 3},
};

constexpr float kDeviation = 0.02F;  // GPT-2's

TensorUnit block_of(const Size& size, int layer) {
  const std::int64_t c = size.channels;
  // GPT-2: what adds to the residual is smaller the more layers add to it.
  const float residual = kDeviation / std::sqrt(2.0F * static_cast<float>(size.layers));
  const std::string name = "block" + std::to_string(layer);
  const auto full = [&](const char* tensor) { return name + "." + tensor; };
  return {name,
          {{full("norm1.gain"), {c}, Fill::kOne},
           {full("norm1.bias"), {c}, Fill::kZero},
           {full("qkv.weight"), {c, 3 * c}, Fill::kNormal, kDeviation},
           {full("qkv.bias"), {3 * c}, Fill::kZero},
           {full("projection.weight"), {c, c}, Fill::kNormal, residual},
           {full("projection.bias"), {c}, Fill::kZero},
           {full("norm2.gain"), {c}, Fill::kOne},
           {full("norm2.bias"), {c}, Fill::kZero},
           {full("up.weight"), {c, 4 * c}, Fill::kNormal, kDeviation},
           {full("up.bias"), {4 * c}, Fill::kZero},
           {full("down.weight"), {4 * c, c}, Fill::kNormal, residual},
           {full("down.bias"), {c}, Fill::kZero}}};
}

}  // namespace

std::span<const Size> all_sizes() { return kSizes; }

const Size* find_size(std::string_view name) {
  const auto* const found = std::ranges::find(kSizes, name, &Size::name);
  return found == kSizes.end() ? nullptr : found;
}

std::string size_names() {
  std::string names;
  for (const Size& size : kSizes) names += (names.empty() ? "" : ", ") + std::string(size.name);
  return names;
}

std::uint64_t Size::flops_per_token() const {
  const auto c = static_cast<std::uint64_t>(channels), l = static_cast<std::uint64_t>(layers);
  const std::uint64_t matrices = 12 * l * c * c + static_cast<std::uint64_t>(vocabulary) * c;
  return 6 * matrices + 12 * l * c * static_cast<std::uint64_t>(context);
}

std::uint64_t Tensor::elements() const {
  std::uint64_t product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<std::uint64_t>(extent);
  return product;
}

std::vector<TensorUnit> units_of(const Size& size) {
  const std::int64_t c = size.channels;
  std::vector<TensorUnit> units = {
      {"embeddings",
       {{"token_embedding", {size.vocabulary, c}, Fill::kNormal, kDeviation},
        {"position_embedding", {size.context, c}, Fill::kNormal, kDeviation}}}};
  for (int layer = 0; layer < size.layers; ++layer) units.push_back(block_of(size, layer));
  units.push_back({"final_norm",
                   {{"final_norm.gain", {c}, Fill::kOne}, {"final_norm.bias", {c}, Fill::kZero}}});
  return units;
}

std::uint64_t parameters_of(const Size& size) {
  std::uint64_t sum = 0;
  for (const TensorUnit& unit : units_of(size))
    for (const Tensor& tensor : unit.tensors) sum += tensor.elements();
  return sum;
}

void fill_tensor(const Tensor& tensor, std::uint64_t seed, std::uint64_t first,
                 std::span<float> values) {
  const std::uint64_t name = hash_of(tensor.name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (tensor.fill) {
      case Fill::kZero:
        values[i] = 0;
        break;
      case Fill::kOne:
        values[i] = 1;
        break;
      case Fill::kNormal:
        values[i] = tensor.deviation * random_normal(seed, name, first + i);
        break;
    }
  }
}

}  // namespace tutti::gpt
