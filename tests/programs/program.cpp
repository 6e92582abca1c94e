// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <algorithm>
#include <array>

#include "values.hpp"

namespace tutti::programs {
namespace {

constexpr std::size_t kGuard = 8;  // elements that no step uses

constexpr std::array<std::string_view, kKinds> kNames{"kAllReduce",
                                                      "kReduce",
                                                      "kBroadcast",
                                                      "kBcast",
                                                      "kAllGather",
                                                      "kReduceScatter",
                                                      "kAllToAll",
                                                      "kGather",
                                                      "kScatter",
                                                      "kBarrier",
                                                      "kAllToAllV",
                                                      "kGatherV",
                                                      "kScatterV",
                                                      "kAllGatherV",
                                                      "kReduceScatterV",
                                                      "kTransfer",
                                                      "kSplit",
                                                      "kDestroy",
                                                      "kAlgorithm",
                                                      "kFill",
                                                      "kAdd",
                                                      "kSnapshot",
                                                      "kRecord",
                                                      "kWait",
                                                      "kSynchronizeEvent",
                                                      "kSynchronizeStream",
                                                      "kQuery"};

// Which blocks of the data an input or an output holds.
enum class Holds { kNothing, kOne, kAll };
struct Shape {
  Holds input, output;
};

Shape shape_of(Kind kind, bool is_root) {
  using enum Holds;
  switch (kind) {
    case Kind::kAllReduce:
      return {kOne, kOne};
    case Kind::kReduce:
      return {kOne, is_root ? kOne : kNothing};
    case Kind::kBroadcast:
    case Kind::kBcast:
      return {is_root ? kOne : kNothing, kOne};
    case Kind::kAllGather:
    case Kind::kAllGatherV:
      return {kOne, kAll};
    case Kind::kReduceScatter:
    case Kind::kReduceScatterV:
      return {kAll, kOne};
    case Kind::kAllToAll:
    case Kind::kAllToAllV:
      return {kAll, kAll};
    case Kind::kGather:
    case Kind::kGatherV:
      return {kOne, is_root ? kAll : kNothing};
    case Kind::kScatter:
    case Kind::kScatterV:
      return {is_root ? kAll : kNothing, kOne};
    default:
      return {kNothing, kNothing};
  }
}

// In place, the one block of a call with blocks is that of the rank within all.
bool has_blocks(Kind kind) {
  const Shape root = shape_of(kind, true);
  return root.input == Holds::kAll || root.output == Holds::kAll;
}

Places transfer_places(const Step& step, const Part& part, int me) {
  const int size = static_cast<int>(part.size());
  Places places;
  places.reads = step.root % size == me;
  places.writes = step.peer % size == me;
  places.input = {step.in, step.in_first, step.count};
  places.output = {step.out, step.out_first, step.count};
  return places;
}

// Is a block's size the same for all ranks?
bool has_common_sizes(Kind kind) {
  return kind == Kind::kAllGatherV || kind == Kind::kReduceScatterV;
}

Places v_places(const Step& step, const Part& part, int me, bool in_place) {
  const int size = static_cast<int>(part.size());
  const bool is_root = step.root % size == me;
  const Shape shape = shape_of(step.kind, is_root);
  const std::size_t all = static_cast<std::size_t>(size) * (step.count + std::size_t{1});
  const auto span = [&](Holds holds, int buffer, std::size_t first) -> Span {
    return {buffer, first, holds == Holds::kAll ? all : step.count};
  };
  Places places{shape.input != Holds::kNothing, shape.output != Holds::kNothing,
                span(shape.input, step.in, step.in_first),
                span(shape.output, step.out, step.out_first)};
  // Of a gather or a scatter only the root can have both in one place.
  const bool may_be = has_common_sizes(step.kind) || (is_root && step.kind != Kind::kAllToAllV);
  if (!in_place || !may_be) return places;
  const std::size_t own = v_displacement(step, me, size);
  places.input.buffer = step.out;
  places.input.first = step.out_first + (shape.input == Holds::kOne ? own : 0);
  places.output.first = step.out_first + (shape.output == Holds::kOne ? own : 0);
  return places;
}

Places collective_places(const Step& step, const Part& part, int me, bool in_place) {
  const Shape shape = shape_of(step.kind, step.root % static_cast<int>(part.size()) == me);
  const auto elements = [&](Holds holds) -> std::size_t {
    return holds == Holds::kAll ? step.count * part.size() : step.count;
  };
  Places places{shape.input != Holds::kNothing,
                shape.output != Holds::kNothing,
                {step.in, step.in_first, elements(shape.input)},
                {step.out, step.out_first, elements(shape.output)}};
  if (!in_place && step.kind != Kind::kBcast) return places;
  const std::size_t own = has_blocks(step.kind) ? static_cast<std::size_t>(me) * step.count : 0;
  places.input.buffer = step.out;
  places.input.first = step.out_first + (shape.input == Holds::kOne ? own : 0);
  places.output.first = step.out_first + (shape.output == Holds::kOne ? own : 0);
  return places;
}

}  // namespace

std::string_view name_of(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

Parts divide(const Parts& parent, Division division) {
  Parts made;
  for (const Part& part : parent) {
    if (division == kOddEven) {
      Part odd, even;
      for (std::size_t i = 0; i < part.size(); ++i) (i % 2 ? odd : even).push_back(part[i]);
      made.push_back(even);
      if (!odd.empty()) made.push_back(odd);
      continue;
    }
    made.push_back(part);
    if (division == kReversed) std::ranges::reverse(made.back());
    if (division == kWithoutLast && part.size() > 1) made.back().pop_back();
  }
  return made;
}

const Part* part_of(const Parts& parts, int rank) {
  const auto found = std::ranges::find_if(
      parts, [&](const Part& part) { return std::ranges::find(part, rank) != part.end(); });
  return found == parts.end() ? nullptr : &*found;
}

int place_in(const Part& part, int rank) {
  return static_cast<int>(std::ranges::find(part, rank) - part.begin());
}

bool is_v_form(Kind kind) {
  return kind == Kind::kAllToAllV || kind == Kind::kGatherV || kind == Kind::kScatterV ||
         has_common_sizes(kind);
}

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter ||
         kind == Kind::kReduceScatterV;
}

bool is_rooted(Kind kind) {
  return shape_of(kind, true).input != shape_of(kind, false).input ||
         shape_of(kind, true).output != shape_of(kind, false).output;
}

bool uses_comm(Kind kind) {
  return is_call(kind) || kind == Kind::kSplit || kind == Kind::kDestroy ||
         kind == Kind::kAlgorithm;
}

int stream_of(const Program& program, const Step& step, int rank) {
  if (step.stream == kNoStream) return kNoStream;
  return (step.stream + rank * step.stagger) % program.streams;
}

std::size_t end_of_unit(const std::vector<Step>& steps, std::size_t first) {
  std::size_t end = first + 1;
  if (steps[first].group != 0)
    while (end < steps.size() && steps[end].group == steps[first].group) ++end;
  return end;
}

Places places_of(const Program& program, const Step& step, const Part* part, int rank) {
  if (is_function(step.kind)) {
    const Span whole{step.out, 0, SIZE_MAX};
    return {step.kind != Kind::kFill, step.kind != Kind::kSnapshot, whole, whole};
  }
  if (!is_call(step.kind) || part == nullptr) return {};
  const int me = place_in(*part, rank);
  const bool in_place = (step.in_place >> rank & 1u) != 0 && program.ranks > rank;
  if (step.kind == Kind::kTransfer) return transfer_places(step, *part, me);
  if (is_v_form(step.kind)) return v_places(step, *part, me, in_place);
  return collective_places(step, *part, me, in_place);
}

std::size_t v_count(const Step& step, int from, int to) {
  if (has_common_sizes(step.kind)) to = 0;
  const std::uint32_t mixed =
      mix(step.salt, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to));
  return mixed % (step.count + std::size_t{1});
}

std::size_t v_displacement(const Step& step, int place, int places) {
  const std::size_t slot =
      (static_cast<std::size_t>(place) + step.salt) % static_cast<std::size_t>(places);
  return slot * (step.count + std::size_t{1});
}

std::vector<std::size_t> buffer_counts(const Program& program) {
  std::vector<std::size_t> counts(program.buffers.size(), 0);
  for (const Step& step : program.steps) {
    if (!is_call(step.kind) || step.kind == Kind::kBarrier) continue;
    const std::size_t most =
        (step.count + std::size_t{1}) *
        static_cast<std::size_t>(step.kind == Kind::kTransfer ? 1 : program.ranks);
    const auto in = static_cast<std::size_t>(step.in), out = static_cast<std::size_t>(step.out);
    counts[in] = std::max(counts[in], step.in_first + most);
    counts[out] = std::max(counts[out], step.out_first + most);
  }
  for (std::size_t& count : counts) count += kGuard;
  return counts;
}

}  // namespace tutti::programs
