// SPDX-License-Identifier: Apache-2.0
#include "zero/sums.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "zero/kernels.hpp"
#include "zero/tree.hpp"

namespace tutti::zero {
namespace {

std::unique_ptr<Reducer> make_reducer(Links& links, const Plan& plan) {
  if (plan.ranks == 1) return nullptr;
  return plan.config.order == Order::kCanonical ? make_canonical_reducer(links, plan)
                                                : make_fast_reducer(links, plan);
}

std::uint64_t bytes_each(const Layout& layout, std::size_t element_bytes) {
  return layout.largest_padded_elements() * element_bytes;
}

std::vector<int> descending(int count) {
  std::vector<int> numbers;
  for (int number = count - 1; number >= 0; --number) numbers.push_back(number);
  return numbers;
}

}  // namespace

Sums::Sums(const Plan& plan, const Layout& layout, std::span<const Unit> units, State& state,
           Links& links)
    : plan_(plan),
      layout_(layout),
      units_(units),
      state_(state),
      links_(links),
      reducer_(make_reducer(links, plan)),
      buffers_(static_cast<std::uint64_t>(plan.sum_buffers) * bytes_each(layout, sizeof(float))),
      wires_(static_cast<std::uint64_t>(plan.wire_buffers) *
             bytes_each(layout, bytes_of(plan.config.reduce))),
      buffer_pool_{buffers_.data(), bytes_each(layout, sizeof(float)),
                   descending(plan.sum_buffers)},
      wire_pool_{wires_.data(), bytes_each(layout, bytes_of(plan.config.reduce)),
                 descending(plan.wire_buffers)},
      sums_(static_cast<std::size_t>(layout.units())),
      reduced_(static_cast<std::size_t>(layout.units())) {}

float* Sums::data(int unit) const {
  const UnitSums& sums = sums_[static_cast<std::size_t>(unit)];
  return sums.open ? sums.stack.back().data : nullptr;
}

bool Sums::is_begun() const {
  return std::ranges::any_of(sums_,
                             [](const UnitSums& sums) { return sums.slots > 0 || sums.open; });
}

void Sums::open(int unit) {
  UnitSums& sums = of(unit);
  if (sums.open)
    throw std::invalid_argument("gradients of unit '" + name(unit) +
                                "' are asked for while those of the slot before are open");
  const std::uint64_t all = plan_.leaves * static_cast<std::uint64_t>(plan_.reductions);
  if (sums.slots == all)
    throw std::invalid_argument("unit '" + name(unit) + "' has had the gradients of all " +
                                std::to_string(all) + " slots of this step; call step()");
  check_room(unit);
  const int position = tree::position(plan_.config.order, sums.slots % plan_.leaves);
  sums.stack.push_back(new_sum(unit, position));
  sums.open = true;
  std::memset(sums.stack.back().data, 0, layout_.padded_elements(unit) * sizeof(float));
}

void Sums::close(int unit) {
  UnitSums& sums = of(unit);
  add_up(unit);
  sums.open = false;
  if (++sums.slots % plan_.leaves == 0) reduce(unit);
}

// Units whose slots of a microstep are not complete hold buffers; the pool has room for so many.
void Sums::check_room(int unit) const {
  const auto is_partial = [&](const UnitSums& sums) {
    return sums.open || sums.slots % static_cast<std::uint64_t>(plan_.slots.each()) != 0;
  };
  if (plan_.sum_buffers == 0 || is_partial(sums_[static_cast<std::size_t>(unit)])) return;
  if (std::ranges::count_if(sums_, is_partial) < plan_.config.units_in_use) return;
  throw std::invalid_argument("gradients of unit '" + name(unit) +
                              "' are asked for while those of other units lack slots; "
                              "Config::units_in_use allows " +
                              std::to_string(plan_.config.units_in_use) + " at once");
}

Sums::Sum Sums::new_sum(int unit, int position) {
  if (position < plan_.whole_sums) {
    wait_for_unit(unit);  // the reduction of the microstep before may still read it
    return {state_.whole_sum(position, unit), kNone};
  }
  while (buffer_pool_.free.empty()) wait_for_oldest();
  const int number = take(buffer_pool_);
  return {reinterpret_cast<float*>(buffer_pool_.at(number)), number};
}

int Sums::take(Pool& pool) {
  const int number = pool.free.back();
  pool.free.pop_back();
  const auto used = [](const Pool& each, int of_all) {
    return (static_cast<std::uint64_t>(of_all) - each.free.size()) * each.bytes_each;
  };
  std::uint64_t& peak = links_.usage.peak_reducing_bytes;
  peak =
      std::max(peak, used(buffer_pool_, plan_.sum_buffers) + used(wire_pool_, plan_.wire_buffers));
  return number;
}

void Sums::give(Pool& pool, int number) {
  if (number == kNone) return;
  if (plan_.config.poison) std::memset(pool.at(number), kPoisonByte, pool.bytes_each);
  pool.free.push_back(number);
}

void Sums::wait_for_oldest() {
  const InFlight oldest = in_flight_.front();
  links_.wait(reduced_[static_cast<std::size_t>(oldest.unit)]);
  in_flight_.pop_front();
  give(buffer_pool_, oldest.buffer);
  give(wire_pool_, oldest.wire);
}

void Sums::wait_for_unit(int unit) {
  const auto is_of_unit = [unit](const InFlight& flight) { return flight.unit == unit; };
  while (std::ranges::any_of(in_flight_, is_of_unit)) wait_for_oldest();
}

// Adds the slot on top of the stack to what is below it, as far as the order says.
void Sums::add_up(int unit) {
  UnitSums& sums = of(unit);
  const std::uint64_t leaf = sums.slots % plan_.leaves;
  for (int left = tree::additions(plan_.config.order, leaf, plan_.leaves); left > 0; --left) {
    const Sum top = sums.stack.back();
    sums.stack.pop_back();
    kernels().add(sums.stack.back().data, top.data, layout_.padded_elements(unit));
    give(buffer_pool_, top.buffer);
  }
}

Reduction Sums::reduction_of(int unit, float* sum) {
  Reduction reduction;
  reduction.padded_elements = layout_.padded_elements(unit);
  reduction.sum = sum;
  if (plan_.shard_sums == 0) {
    reduction.targets = {sum + state_.shard(unit).begin};
    reduction.whole = plan_.whole_state;
    return reduction;
  }
  const auto reductions = static_cast<std::uint64_t>(plan_.reductions);
  const std::uint64_t leaf = of(unit).slots / plan_.leaves - 1;
  const int position = tree::position(plan_.config.order, leaf);
  const int additions = tree::additions(plan_.config.order, leaf, reductions);
  reduction.adds = additions > 0;
  reduction.folds = std::max(0, additions - 1);
  const int last = reduction.adds ? position - 1 : position;
  for (int number = 0; number <= last; ++number)
    reduction.targets.push_back(state_.shard_sum(number, unit));
  return reduction;
}

void Sums::reduce(int unit) {
  const Sum sum = of(unit).stack.front();
  of(unit).stack.clear();
  Reduction reduction = reduction_of(unit, sum.data);
  if (reducer_ == nullptr) {
    if (reduction.targets.back() != sum.data)
      deliver(reduction, sum.data, Number::kFloat32, reduction.padded_elements);
    return give(buffer_pool_, sum.buffer);
  }
  wait_for_unit(unit);  // it has one event
  InFlight flight{unit, sum.buffer, kNone};
  if (plan_.wire_buffers > 0) {
    while (wire_pool_.free.empty()) wait_for_oldest();
    flight.wire = take(wire_pool_);
    reduction.wire = wire_pool_.at(flight.wire);
  }
  reducer_->reduce(reduction);
  links_.usage.gradient_bytes += reducer_->bytes_sent(reduction);
  links_.reduce_stream.record(reduced_[static_cast<std::size_t>(unit)]);
  // The sum in 16 bits was made before the call returned; where it is wanted whole, it has no
  // buffer.
  if (flight.wire != kNone) give(buffer_pool_, std::exchange(flight.buffer, kNone));
  in_flight_.push_back(flight);
  if (!plan_.config.overlap) wait_for_oldest();
}

void Sums::finish() {
  const std::uint64_t all = plan_.leaves * static_cast<std::uint64_t>(plan_.reductions);
  for (int unit = 0; unit < layout_.units(); ++unit) {
    if (of(unit).slots == all) continue;
    throw std::invalid_argument("step() before unit '" + name(unit) +
                                "' has the gradients of all " + std::to_string(all) +
                                " slots; it has " + std::to_string(of(unit).slots));
  }
  while (!in_flight_.empty()) wait_for_oldest();
  if (plan_.whole_state && plan_.shard_sums > 0) spread_whole();
}

// With kDdp and several reductions a step, the shards of their sum are gathered once, at the end.
void Sums::spread_whole() {
  for (int unit = 0; unit < layout_.units(); ++unit) {
    const Range shard = state_.shard(unit);
    float* const whole = state_.whole_sum(0, unit);
    if (shard.elements() == 0) continue;
    std::memcpy(whole + shard.begin, state_.shard_sum(0, unit), shard.elements() * sizeof(float));
    if (plan_.shard_ranks == 1) continue;
    check(tuttiAllGather(whole + shard.begin, whole, shard.elements(), tuttiFloat32,
                         links_.reductions.get(), links_.reduce_stream.get()),
          links_.reductions.get());
    links_.usage.gradient_bytes +=
        (layout_.padded_elements(unit) - shard.elements()) * sizeof(float);
  }
  const Event done;
  links_.reduce_stream.record(done);
  links_.wait(done);
}

void Sums::begin_step() {
  for (UnitSums& sums : sums_) sums.slots = 0;
}

}  // namespace tutti::zero
