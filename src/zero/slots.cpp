// SPDX-License-Identifier: Apache-2.0
#include "zero/slots.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace tutti::zero {
namespace {

constexpr int kMostNamed = 8;
constexpr int kMostTimes = 16;  // as many slots for each rank and microstep are looked at

bool power_of_two(int number) { return std::has_single_bit(static_cast<unsigned>(number)); }

bool serves(const SlotShape& shape, Order order) {
  return shape.each() > 0 && (order == Order::kFast || shape.is_canonical());
}

// "1, 2, 4" of those numbers from `first` to `most`, in steps of `first`, with which the shape
// serves.
std::string serving(const SlotShape& shape, std::int64_t first, std::int64_t most, Order order,
                    void (*set)(SlotShape& other, int number)) {
  std::string list;
  int named = 0;
  most = std::min<std::int64_t>(most, std::numeric_limits<int>::max());
  for (std::int64_t number = first; number <= most && named < kMostNamed; number += first) {
    SlotShape other = shape;
    set(other, static_cast<int>(number));
    if (other.ranks % other.group_ranks != 0 || !serves(other, order)) continue;
    list += (named++ > 0 ? ", " : "") + std::to_string(number);
  }
  return list;
}

}  // namespace

int SlotShape::each() const {
  const std::int64_t parts = std::int64_t{ranks} * microsteps;
  return slots % parts == 0 ? static_cast<int>(slots / parts) : 0;
}

Range SlotShape::of(int rank, int microstep) const {
  const auto part = each_microstep ? std::int64_t{microstep} * ranks + rank
                                   : std::int64_t{rank} * microsteps + microstep;
  const auto begin = static_cast<std::uint64_t>(part * each());
  return {begin, begin + static_cast<std::uint64_t>(each())};
}

bool SlotShape::is_canonical() const {
  if (!power_of_two(group_ranks) && group_ranks != ranks) return false;
  if (each_microstep && microsteps > 1) return power_of_two(each()) && power_of_two(ranks);
  return (ranks == 1 || power_of_two(slots / ranks)) && (microsteps == 1 || power_of_two(each()));
}

std::string why_not(const SlotShape& shape, Order order) {
  if (serves(shape, order)) return {};
  std::string text = std::to_string(shape.slots) + " slots cannot be ";
  text += shape.each() == 0 ? "dealt out equally to " : "summed in canonical order by ";
  text +=
      std::to_string(shape.ranks) + " ranks in " + std::to_string(shape.microsteps) + " microsteps";
  if (shape.group_ranks != shape.ranks)
    text += " and groups of " + std::to_string(shape.group_ranks) + " ranks";
  if (shape.each_microstep && shape.microsteps > 1) text += " that are reduced one by one";
  const std::int64_t parts = std::int64_t{shape.ranks} * shape.microsteps;
  const auto name = [&text](const char* what, const std::string& list) {
    if (!list.empty()) text += std::string("; ") + what + " would do: " + list;
  };
  name("with these ranks and microsteps, slots",
       serving(shape, parts, parts * kMostTimes, order,
               [](SlotShape& other, int number) { other.slots = number; }));
  name("with these slots and microsteps, ranks",
       serving(shape, 1, shape.slots, order, [](SlotShape& other, int number) {
         if (other.group_ranks == other.ranks) other.group_ranks = number;
         other.ranks = number;
       }));
  name("with these slots and ranks, microsteps",
       serving(shape, 1, shape.slots, order,
               [](SlotShape& other, int number) { other.microsteps = number; }));
  if (shape.each() != 0) text += "; or set Config::order to kFast";
  return text;
}

}  // namespace tutti::zero
