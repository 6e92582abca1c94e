// SPDX-License-Identifier: Apache-2.0
// Models as the calculators see them: a number of parameters, and the shape of a GPT where it is
// known.
//
// A GPT here is GPT-2's: learned positions, pre-norm blocks with biases, a head that shares the
// embedding's matrix (Radford et al., Language Models are Unsupervised Multitask Learners, 2019).
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::zero_memory {

struct GptShape {
  std::uint64_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
};
// Bounds within which every number of this folder is exact in 64 bits.
inline constexpr std::uint64_t kMostParameters = std::uint64_t{1} << 53;
// kInvalidArgument names the number that is zero, beyond its bound, or does not divide.
[[nodiscard]] Status check_shape(const GptShape& shape);

struct ParameterCount {
  std::uint64_t embedding = 0;   // V h, the head too
  std::uint64_t positions = 0;   // s h
  std::uint64_t block = 0;       // of one layer
  std::uint64_t blocks = 0;      // of all
  std::uint64_t final_norm = 0;  // 2 h
  [[nodiscard]] std::uint64_t total() const { return embedding + positions + blocks + final_norm; }
};
[[nodiscard]] ParameterCount count_parameters(const GptShape& shape);

struct Model {
  std::string name;
  std::uint64_t parameters = 0;
  std::optional<GptShape> shape;
};
// Models by name: of some the exact count, of those that are called by a round number this number.
[[nodiscard]] Result<Model> find_model(std::string_view name);
[[nodiscard]] std::string known_models();  // "nano, tiny, ..."

// What is gathered and reduced together, in elements: embedding, positions and final norm as the
// first unit, then each block. Where the shape is unknown or counts otherwise than the model, there
// are as many units of near equal size as layers, or `otherwise`.
[[nodiscard]] std::vector<std::uint64_t> units_of(const Model& model, std::uint64_t otherwise);

}  // namespace tutti::zero_memory
