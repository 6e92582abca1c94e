// SPDX-License-Identifier: Apache-2.0
// A Store of the model (zero_gpt/gpt.hpp) in plain arrays: parameters, and each slot's gradients
// apart, in the order in which they were opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "zero_gpt/gpt.hpp"
#include "zero_gpt/size.hpp"

namespace tutti::gpt {

template <typename T>
class MemoryStore {
 public:
  // A parameter's offset in its unit's array.
  explicit MemoryStore(const Size& size, std::uint64_t seed = 1) : units_(units_of(size)) {
    for (const TensorUnit& unit : units_) {
      offsets_.emplace_back();
      std::vector<T>& values = parameters_.emplace_back();
      for (const Tensor& tensor : unit.tensors) {
        offsets_.back().push_back(values.size());
        std::vector<float> filled(tensor.elements());
        fill_tensor(tensor, seed, 0, filled);
        values.insert(values.end(), filled.begin(), filled.end());
      }
    }
    gradients_.resize(units_.size());
  }

  template <typename Value>
  class Scope {
   public:
    Scope(Value* base, const std::vector<std::size_t>& offsets) : base_(base), offsets_(offsets) {}
    Value* operator[](int tensor) const {
      return base_ + offsets_[static_cast<std::size_t>(tensor)];
    }

   private:
    Value* base_;
    const std::vector<std::size_t>& offsets_;
  };

  Scope<const T> use(int unit, bool /*backward*/) {
    return {parameters(unit).data(), offsets_[static_cast<std::size_t>(unit)]};
  }
  Scope<T> gradients(int unit) {
    auto& all = gradients_[static_cast<std::size_t>(unit)];
    all.emplace_back(parameters(unit).size());
    return {all.back().data(), offsets_[static_cast<std::size_t>(unit)]};
  }

  [[nodiscard]] int units() const { return static_cast<int>(units_.size()); }
  std::vector<T>& parameters(int unit) { return parameters_[static_cast<std::size_t>(unit)]; }
  // Of a unit, slot after slot.
  std::vector<std::vector<T>>& slots(int unit) {
    return gradients_[static_cast<std::size_t>(unit)];
  }
  void clear_gradients() {
    for (auto& unit : gradients_) unit.clear();
  }
  [[nodiscard]] const std::vector<TensorUnit>& names() const { return units_; }

 private:
  std::vector<TensorUnit> units_;
  std::vector<std::vector<std::size_t>> offsets_;
  std::vector<std::vector<T>> parameters_;
  std::vector<std::vector<std::vector<T>>> gradients_;
};

}  // namespace tutti::gpt
