// SPDX-License-Identifier: Apache-2.0
#include "gpt_shape.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace tutti::zero_memory {
namespace {

constexpr std::uint64_t kMostLayers = 1 << 14, kMostHidden = 1 << 18, kMostHeads = 1 << 14;
constexpr std::uint64_t kMostSequence = 1 << 24, kMostVocabulary = 1 << 24;

struct NamedModel {
  std::string_view name;
  std::uint64_t round;  // parameters of this name; 0: as the shape counts
  GptShape shape;
};

// GPT-2: Radford et al., 2019. GPT-3: Brown et al., 2020, table 2.1; "7b" has the shape of its
// 6.7 B. "530b": Smith et al., 2022. "1t": Narayanan et al., 2021, table 1. nano, tiny and small
// have a vocabulary of bytes.
constexpr auto kModels = std::to_array<NamedModel>({
    {"nano", 0, {2, 64, 4, 32, 256}},
    {"tiny", 0, {4, 128, 4, 64, 256}},
    {"small", 0, {6, 256, 8, 128, 256}},
    {"gpt2", 0, {12, 768, 12, 1024, 50257}},
    {"gpt2-xl", 0, {48, 1600, 25, 1024, 50257}},
    {"gpt3", 0, {96, 12288, 96, 2048, 50257}},
    {"7b", 7'000'000'000, {32, 4096, 32, 2048, 50257}},
    {"175b", 175'000'000'000, {96, 12288, 96, 2048, 50257}},
    {"530b", 530'000'000'000, {105, 20480, 128, 2048, 51200}},
    {"1t", 1'000'000'000'000, {128, 25600, 160, 2048, 51200}},
});

Status check_number(std::string_view name, std::uint64_t value, std::uint64_t most) {
  if (value >= 1 && value <= most) return {};
  return make_error(Code::kInvalidArgument,
                    fmt::format("{} is {}; it must be from 1 to {}", name, value, most));
}

}  // namespace

Status check_shape(const GptShape& shape) {
  TUTTI_TRY(check_number("--layers", shape.layers, kMostLayers));
  TUTTI_TRY(check_number("--hidden", shape.hidden, kMostHidden));
  TUTTI_TRY(check_number("--heads", shape.heads, kMostHeads));
  TUTTI_TRY(check_number("--sequence", shape.sequence, kMostSequence));
  TUTTI_TRY(check_number("--vocabulary", shape.vocabulary, kMostVocabulary));
  if (shape.hidden % shape.heads != 0)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("--hidden {} is not divisible by --heads {}", shape.hidden, shape.heads));
  const std::uint64_t total = count_parameters(shape).total();
  if (total > kMostParameters)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("this shape has {} parameters; the most are {}", total, kMostParameters));
  return {};
}

ParameterCount count_parameters(const GptShape& shape) {
  const std::uint64_t h = shape.hidden;
  ParameterCount count;
  count.embedding = shape.vocabulary * h;
  count.positions = shape.sequence * h;
  // Query, key, value: 3 h^2 + 3 h; projection: h^2 + h; perceptron: 4 h^2 + 4 h and 4 h^2 + h; two
  // norms: 4 h. Narayanan et al. (2021), equation 2, has the same terms but for the final norm.
  count.block = 12 * h * h + 13 * h;
  count.blocks = shape.layers * count.block;
  count.final_norm = 2 * h;
  return count;
}

Result<Model> find_model(std::string_view name) {
  const auto found = std::ranges::find(kModels, name, &NamedModel::name);
  if (found != kModels.end()) {
    const std::uint64_t counted = count_parameters(found->shape).total();
    return Model{std::string(name), found->round > 0 ? found->round : counted, found->shape};
  }
  return make_error(Code::kInvalidArgument,
                    fmt::format("--model '{}' is not one of {}", name, known_models()));
}

std::string known_models() {
  std::string names;
  for (const NamedModel& model : kModels)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  return names;
}

std::vector<std::uint64_t> units_of(const Model& model, std::uint64_t otherwise) {
  if (model.shape) {
    const ParameterCount count = count_parameters(*model.shape);
    if (count.total() == model.parameters) {
      std::vector<std::uint64_t> units(model.shape->layers + 1, count.block);
      units.front() = count.embedding + count.positions + count.final_norm;
      return units;
    }
    otherwise = model.shape->layers;
  }
  const std::uint64_t number = std::clamp<std::uint64_t>(otherwise, 1, model.parameters);
  std::vector<std::uint64_t> units(number, model.parameters / number);
  for (std::uint64_t i = 0; i < model.parameters % number; ++i) ++units[i];
  return units;
}

}  // namespace tutti::zero_memory
