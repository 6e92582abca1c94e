// SPDX-License-Identifier: Apache-2.0
// The engine as the model's Store (gpt.hpp): parameters by unit, gradients by unit and slot.
//
// The model computes with fp32. Parameters of a 16-bit compute type are widened when a unit is
// opened, the whole unit at once, into one of two buffers: the embeddings', which stay open for a
// pass, and that of the unit at hand. Both together are widened_bytes().
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/zero.hpp"
#include "zero_gpt/widen.hpp"

namespace tutti::gpt {

class EngineStore {
 public:
  // `compute` as in the engine's Config. The engine must outlive the store.
  EngineStore(zero::Engine& engine, zero::Number compute) : engine_(engine), compute_(compute) {
    if (compute == zero::Number::kFloat32) return;
    const zero::Layout& layout = engine.layout();
    std::uint64_t largest = 0;
    for (int unit = 1; unit < layout.units(); ++unit)
      largest = std::max(largest, layout.elements(unit));
    embeddings_.resize(layout.elements(0));
    at_hand_.resize(largest);
  }

  class Parameters {
   public:
    const float* operator[](int tensor) const {
      if (widened_ == nullptr) return scope_.as<float>(tensor);
      return widened_ + layout_.parameter(unit_, tensor).begin;
    }

   private:
    friend class EngineStore;
    Parameters(zero::Engine::Parameters&& scope, const float* widened, const zero::Layout& layout,
               int unit)
        : scope_(std::move(scope)), widened_(widened), layout_(layout), unit_(unit) {}
    zero::Engine::Parameters scope_;
    const float* widened_;
    const zero::Layout& layout_;
    int unit_;
  };

  [[nodiscard]] Parameters use(int unit, bool backward) {
    const zero::Layout& layout = engine_.layout();
    auto scope = engine_.use(unit, backward ? zero::Pass::kBackward : zero::Pass::kForward);
    if (compute_ == zero::Number::kFloat32) return {std::move(scope), nullptr, layout, unit};
    std::vector<float>& buffer = unit == 0 ? embeddings_ : at_hand_;
    const std::uint64_t elements = layout.elements(unit);
    int tensor = 0;
    for (std::uint64_t done = 0; done < elements; ++tensor) {
      const zero::Range range = layout.parameter(unit, tensor);
      widen(scope[tensor], range.elements(), buffer.data() + range.begin);
      done += range.elements();
    }
    return {std::move(scope), buffer.data(), layout, unit};
  }

  [[nodiscard]] zero::Engine::Gradients gradients(int unit) { return engine_.gradients(unit); }

  [[nodiscard]] std::uint64_t widened_bytes() const {
    return (embeddings_.size() + at_hand_.size()) * sizeof(float);
  }

 private:
  void widen(const void* from, std::uint64_t count, float* to) const {
    if (compute_ == zero::Number::kBfloat16) {
      const auto* const numbers = static_cast<const Bfloat16*>(from);
      std::transform(numbers, numbers + count, to,
                     [](Bfloat16 number) { return bfloat16_to_float(number.bits); });
    } else {
      const auto* const numbers = static_cast<const Half*>(from);
      std::transform(numbers, numbers + count, to,
                     [](Half number) { return half_to_float(number.bits); });
    }
  }

  zero::Engine& engine_;
  zero::Number compute_;
  std::vector<float> embeddings_, at_hand_;
};

}  // namespace tutti::gpt
