// SPDX-License-Identifier: Apache-2.0
#include "zero/state.hpp"

#include <algorithm>

namespace tutti::zero {
namespace {

std::vector<Piece> pieces_of(const Layout& layout, const Unit& unit, int number, Range kept) {
  std::vector<Piece> pieces;
  for (int i = 0; i < static_cast<int>(unit.parameters.size()); ++i) {
    const Range range = layout.parameter(number, i);
    const std::uint64_t begin = std::max(range.begin, kept.begin);
    const std::uint64_t end = std::min(range.end, kept.end);
    if (begin < end) pieces.push_back({i, begin - range.begin, begin - kept.begin, end - begin});
  }
  return pieces;
}

}  // namespace

State::State(const Plan& plan, const Layout& layout, std::span<const Unit> units, int shard)
    : plan_(&plan),
      layout_(&layout),
      shard_(shard),
      whole_elements_(layout.padded_elements()),
      shard_elements_(whole_elements_ / static_cast<std::uint64_t>(plan.shard_ranks)) {
  std::uint64_t whole_offset = 0, shard_offset = 0;
  for (int unit = 0; unit < layout.units(); ++unit) {
    const Range shard_range = layout.shard(unit, shard);
    UnitPlace place;
    place.kept = plan.whole_state ? Range{0, layout.padded_elements(unit)} : shard_range;
    place.whole_offset = whole_offset;
    place.shard_offset = shard_offset;
    place.pieces = pieces_of(layout, units[index(unit)], unit, place.kept);
    whole_offset += layout.padded_elements(unit);
    shard_offset += shard_range.elements();
    units_.push_back(std::move(place));
  }
  const Memory memory = memory_of(plan, layout);
  parameters_ = Block(memory.parameters);
  gradients_ = Block(memory.gradients);
  if (!plan.updates) return;
  std::vector<std::uint64_t> floats;
  for (const UnitPlace& place : units_)
    floats.push_back(plan.optimizer_arrays() * place.kept.elements());
  optimizer_ = make_memory_tier(floats);
}

UnitArrays State::arrays(int unit) {
  float* const master =
      plan_->narrow_compute() ? nullptr : reinterpret_cast<float*>(kept_parameters(unit));
  return {*optimizer_, unit, kept(unit).elements(), master};
}

std::byte* State::whole_parameters(int unit) {
  return parameters_.data() + units_[index(unit)].whole_offset * bytes_of(plan_->config.compute);
}

std::byte* State::kept_parameters(int unit) {
  const std::uint64_t bytes = bytes_of(plan_->config.compute);
  const UnitPlace& place = units_[index(unit)];
  if (!plan_->whole_parameters) return parameters_.data() + place.shard_offset * bytes;
  return whole_parameters(unit) + place.kept.begin * bytes;
}

std::byte* State::shard_parameters(int unit) {
  if (!plan_->whole_parameters) return kept_parameters(unit);
  return whole_parameters(unit) + shard(unit).begin * bytes_of(plan_->config.compute);
}

float* State::whole_sum(int number, int unit) {
  return gradients_.floats() + static_cast<std::uint64_t>(number) * whole_elements_ +
         units_[index(unit)].whole_offset;
}

float* State::shard_sum(int number, int unit) {
  return gradients_.floats() + static_cast<std::uint64_t>(plan_->whole_sums) * whole_elements_ +
         static_cast<std::uint64_t>(number) * shard_elements_ + units_[index(unit)].shard_offset;
}

float* State::kept_gradients(int unit) {
  if (plan_->whole_state) return whole_sum(0, unit);
  if (plan_->shard_sums > 0) return shard_sum(0, unit);
  return whole_sum(0, unit) + shard(unit).begin;
}

void State::fill(std::span<const Unit> units, const Engine::Fill& fill) {
  for (int unit = 0; unit < layout_->units(); ++unit) {
    const UnitArrays of_unit = arrays(unit);
    for (const Piece& piece : pieces(unit)) {
      const auto count = static_cast<std::size_t>(piece.elements);
      fill(units[index(unit)].parameters[static_cast<std::size_t>(piece.parameter)], piece.first,
           {of_unit.parameters + piece.offset, count});
      std::fill_n(of_unit.first_moments + piece.offset, count, 0.0F);
      std::fill_n(of_unit.second_moments + piece.offset, count, 0.0F);
    }
  }
}

void State::add_to(Memory& memory) const {
  memory.parameters += parameters_.bytes();
  memory.gradients += gradients_.bytes();
  if (optimizer_ != nullptr) memory.optimizer += optimizer_->memory_bytes();
}

}  // namespace tutti::zero
