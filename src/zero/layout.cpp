// SPDX-License-Identifier: Apache-2.0
// Where parameters lie in their unit, and where shards begin. Pure; depends on names, shapes and
// the number of shards alone.
#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>

#include "tutti/zero.hpp"

namespace tutti::zero {
namespace {

// Two cache lines of fp32 and one of 16-bit numbers: a shard is whole lines in each type, so two
// ranks of a host never write to one line.
constexpr std::uint64_t kShardGrainElements = 32;
// A bound on the elements of a model, far from what overflows when it becomes bytes.
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 56;

}  // namespace

std::size_t bytes_of(Number number) { return number == Number::kFloat32 ? 4 : 2; }

std::uint64_t Parameter::elements() const {
  std::uint64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0)
      throw std::invalid_argument("parameter '" + name +
                                  "' has a negative extent: " + std::to_string(extent));
    const auto factor = static_cast<std::uint64_t>(extent);
    if (factor != 0 && product > kMostElements / factor)
      throw std::invalid_argument("parameter '" + name + "' has more than 2^56 elements");
    product *= factor;
  }
  return product;
}

Layout::Layout(std::span<const Unit> units, int shards) : shards_(shards) {
  if (units.empty()) throw std::invalid_argument("the model has no units");
  if (shards < 1)
    throw std::invalid_argument("a layout has at least 1 shard, not " + std::to_string(shards));
  std::set<std::string_view> seen;
  std::uint64_t total = 0;
  for (const Unit& unit : units) {
    Extent extent;
    for (const Parameter& parameter : unit.parameters) {
      if (!seen.insert(parameter.name).second)
        throw std::invalid_argument("two parameters have the name '" + parameter.name + "'");
      const std::uint64_t begin = extent.elements;
      extent.elements += parameter.elements();
      total += parameter.elements();
      if (total > kMostElements)
        throw std::invalid_argument("the model has more than 2^56 elements");
      extent.parameters.push_back({begin, extent.elements});
    }
    const std::uint64_t grain = kShardGrainElements * static_cast<std::uint64_t>(shards);
    extent.padded_elements = (extent.elements + grain - 1) / grain * grain;
    extents_.push_back(std::move(extent));
  }
}

int Layout::units() const { return static_cast<int>(extents_.size()); }
int Layout::shards() const { return shards_; }

std::uint64_t Layout::elements(int unit) const {
  return extents_.at(static_cast<std::size_t>(unit)).elements;
}

std::uint64_t Layout::padded_elements(int unit) const {
  return extents_.at(static_cast<std::size_t>(unit)).padded_elements;
}

Range Layout::parameter(int unit, int parameter) const {
  return extents_.at(static_cast<std::size_t>(unit))
      .parameters.at(static_cast<std::size_t>(parameter));
}

Range Layout::shard(int unit, int shard) const {
  if (shard < 0 || shard >= shards_)
    throw std::out_of_range("shard " + std::to_string(shard) + " of " + std::to_string(shards_));
  const std::uint64_t each = padded_elements(unit) / static_cast<std::uint64_t>(shards_);
  const auto index = static_cast<std::uint64_t>(shard);
  return {index * each, (index + 1) * each};
}

std::uint64_t Layout::elements() const {
  std::uint64_t total = 0;
  for (const Extent& extent : extents_) total += extent.elements;
  return total;
}

std::uint64_t Layout::padded_elements() const {
  std::uint64_t total = 0;
  for (const Extent& extent : extents_) total += extent.padded_elements;
  return total;
}

std::uint64_t Layout::largest_padded_elements() const {
  std::uint64_t most = 0;
  for (const Extent& extent : extents_) most = std::max(most, extent.padded_elements);
  return most;
}

}  // namespace tutti::zero
