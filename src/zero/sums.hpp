// SPDX-License-Identifier: Apache-2.0
// The gradients of a step: memory for each slot's, the sums of a unit's slots, and their
// reductions, which run beside the model. The engine's thread uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "zero/block.hpp"
#include "zero/reducer.hpp"
#include "zero/state.hpp"

namespace tutti::zero {

class Sums {
 public:
  // All of these outlive it.
  Sums(const Plan& plan, const Layout& layout, std::span<const Unit> units, State& state,
       Links& links);

  // Memory for the next slot's gradients of a unit, zero. Throws std::invalid_argument if the last
  // slot's are still open, if the unit had all slots, or if too many units lack slots.
  void open(int unit);
  // Hands them in, and starts the reduction after the last slot's.
  void close(int unit);
  [[nodiscard]] float* data(int unit) const;

  // Has any unit had gradients in this step?
  [[nodiscard]] bool is_begun() const;
  // Ends a step's sums: State::kept_gradients() then holds the sum over all slots and ranks. Throws
  // std::invalid_argument if a unit lacks gradients.
  void finish();
  void begin_step();

  [[nodiscard]] std::uint64_t memory_bytes() const {
    return buffers_.bytes() + wires_.bytes() + (reducer_ ? reducer_->memory_bytes() : 0);
  }

 private:
  static constexpr int kNone = -1;
  struct Sum {
    float* data = nullptr;
    int buffer = kNone;  // of the pool, if it is one of those
  };
  struct UnitSums {
    std::uint64_t slots = 0;  // handed in
    bool open = false;
    std::vector<Sum> stack;  // with the open slot's on top
  };
  struct InFlight {
    int unit, buffer, wire;
  };
  // Equal memory for units, given out by number.
  struct Pool {
    std::byte* data = nullptr;
    std::uint64_t bytes_each = 0;
    std::vector<int> free;
    [[nodiscard]] std::byte* at(int number) const {
      return data + static_cast<std::uint64_t>(number) * bytes_each;
    }
  };

  [[nodiscard]] UnitSums& of(int unit) { return sums_[static_cast<std::size_t>(unit)]; }
  [[nodiscard]] const std::string& name(int unit) const {
    return units_[static_cast<std::size_t>(unit)].name;
  }
  void check_room(int unit) const;
  [[nodiscard]] Sum new_sum(int unit, int position);
  int take(Pool& pool);
  void give(Pool& pool, int number);
  void wait_for_oldest();
  void wait_for_unit(int unit);
  void add_up(int unit);
  void reduce(int unit);
  [[nodiscard]] Reduction reduction_of(int unit, float* sum);
  void spread_whole();

  const Plan& plan_;
  const Layout& layout_;
  std::span<const Unit> units_;
  State& state_;
  Links& links_;
  std::unique_ptr<Reducer> reducer_;  // none where there is one rank
  Block buffers_, wires_;
  Pool buffer_pool_, wire_pool_;
  std::vector<UnitSums> sums_;
  std::vector<Event> reduced_;  // of each unit
  std::deque<InFlight> in_flight_;
};

}  // namespace tutti::zero
