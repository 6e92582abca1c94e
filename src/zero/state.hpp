// SPDX-License-Identifier: Apache-2.0
// The arena: all that the engine keeps from step to step, allocated once, and where each unit's
// part of it lies. Knows no other rank.
//
// "Kept" is the range of a unit that this rank updates: its shard, or with kDdp the whole unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zero/block.hpp"
#include "zero/plan.hpp"
#include "zero/tier.hpp"

namespace tutti::zero {

// A run of one parameter's elements that a rank keeps.
struct Piece {
  int parameter = 0;
  std::uint64_t first = 0;   // within the parameter
  std::uint64_t offset = 0;  // within the unit's kept range
  std::uint64_t elements = 0;
};

// What a rank keeps of a unit, of its kept range: parameters in fp32 and the optimizer's moments.
// They are in memory for as long as this lives.
class UnitArrays {
 public:
  // `parameters_elsewhere` is null where they lie in the tier, behind the moments.
  UnitArrays(Tier& tier, int unit, std::uint64_t elements, float* parameters_elsewhere)
      : first_moments(tier.acquire(unit)),
        second_moments(first_moments + elements),
        parameters(parameters_elsewhere != nullptr ? parameters_elsewhere
                                                   : second_moments + elements),
        tier_(tier),
        unit_(unit) {}
  ~UnitArrays() { tier_.release(unit_); }
  UnitArrays(const UnitArrays&) = delete;
  UnitArrays& operator=(const UnitArrays&) = delete;

  float* const first_moments;
  float* const second_moments;
  float* const parameters;

 private:
  Tier& tier_;
  int unit_;
};

class State {
 public:
  // Plan and layout outlive it.
  State(const Plan& plan, const Layout& layout, std::span<const Unit> units, int shard);

  [[nodiscard]] Range kept(int unit) const { return units_[index(unit)].kept; }
  // The parameters of which this rank keeps elements, in their order; without the padding.
  [[nodiscard]] const std::vector<Piece>& pieces(int unit) const {
    return units_[index(unit)].pieces;
  }
  [[nodiscard]] UnitArrays arrays(int unit);
  // The unit whose arrays are wanted next.
  void prefetch(int unit) { optimizer_->prefetch(unit); }
  // Parameters in the compute type: of the whole unit, where they are kept whole, and of the kept
  // range or the shard.
  [[nodiscard]] std::byte* whole_parameters(int unit);
  [[nodiscard]] std::byte* kept_parameters(int unit);
  [[nodiscard]] std::byte* shard_parameters(int unit);
  // A whole sum's part for a unit, and a shard sum's.
  [[nodiscard]] float* whole_sum(int number, int unit);
  [[nodiscard]] float* shard_sum(int number, int unit);
  // Where the sum over all slots of the kept gradients is at the end of a step.
  [[nodiscard]] float* kept_gradients(int unit);
  [[nodiscard]] Range shard(int unit) const { return layout_->shard(unit, shard_); }
  // The same within the kept range. Of all elements of a replica each is in one rank's, with kDdp
  // too.
  [[nodiscard]] Range own_part(int unit) const {
    const Range of_unit = shard(unit);
    const std::uint64_t before = kept(unit).begin;
    return {of_unit.begin - before, of_unit.end - before};
  }

  // Parameters from `fill`, moments 0.
  void fill(std::span<const Unit> units, const Engine::Fill& fill);

  // What was allocated.
  void add_to(Memory& memory) const;

 private:
  struct UnitPlace {
    Range kept;
    std::uint64_t whole_offset = 0, shard_offset = 0;
    std::vector<Piece> pieces;
  };
  [[nodiscard]] static std::size_t index(int unit) { return static_cast<std::size_t>(unit); }
  const Plan* plan_;
  const Layout* layout_;
  int shard_;
  std::uint64_t whole_elements_, shard_elements_;
  std::vector<UnitPlace> units_;
  Block parameters_, gradients_;
  std::unique_ptr<Tier> optimizer_;  // none where others update
};

}  // namespace tutti::zero
