// SPDX-License-Identifier: Apache-2.0
#include "schedule/unroll.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

// Slice `slice` of a span over logical chunks: its chunks lie `slices` apart.
Span slice_of(const Span& span, std::uint32_t slice, std::uint32_t slices) {
  if (slices == 1) return span;
  if (span.run == 1)
    return {.first = span.first * slices + slice,
            .stride = span.stride * slices,
            .repetitions = span.repetitions};
  return {.first = span.first * slices + slice,
          .run = span.count() == 0 ? 0U : 1U,
          .stride = slices,
          .repetitions = span.run};
}

class Unroller {
 public:
  Unroller(const ScheduleShape& shape, std::uint32_t slices) : shape_(shape), slices_(slices) {}

  [[nodiscard]] Result<Lane> lane(const Lane& lane) const {
    Lane unrolled{lane.name, 0, {}};
    for (std::uint32_t s = lane.replica; s < slices_; s += shape_.replicas)
      for (const Step& original : lane.steps) {
        TUTTI_TRY_ASSIGN(Step step, sliced(original, s));
        unrolled.steps.push_back(std::move(step));
      }
    return unrolled;
  }

  // Waits know the awaited lane's length and new place only with the whole program in hand.
  static void renumber_waits(const RankProgram& original, RankProgram& unrolled) {
    for (std::size_t l = 0; l < original.lanes.size(); ++l) {
      const std::size_t length = original.lanes[l].steps.size();
      for (std::size_t i = 0; i < unrolled.lanes[l].steps.size(); ++i) {
        Step& step = unrolled.lanes[l].steps[i];
        const std::size_t round = i / length;  // slices of this replica before this one
        std::erase_if(step.waits, [&](const Wait& wait) { return wait.back > round; });
        for (Wait& wait : step.waits) {
          const std::size_t awaited = original.lanes.at(wait.lane).steps.size();
          wait.step += static_cast<std::uint32_t>((round - wait.back) * awaited);
          wait.back = 0;
        }
      }
    }
  }

  // Lanes of replicas that have no slice say nothing. Waits stay within a replica, so none is lost.
  static void drop_empty_lanes(RankProgram& program) {
    std::vector<std::uint32_t> place;
    std::uint32_t kept = 0;
    for (const Lane& lane : program.lanes) place.push_back(lane.steps.empty() ? kept : kept++);
    std::erase_if(program.lanes, [](const Lane& lane) { return lane.steps.empty(); });
    for (Lane& lane : program.lanes)
      for (Step& step : lane.steps)
        for (Wait& wait : step.waits) wait.lane = place.at(wait.lane);
  }

 private:
  [[nodiscard]] Result<Step> sliced(Step step, std::uint32_t slice) const {
    for (std::vector<Operand>* operands : {&step.destinations, &step.sources})
      for (Operand& operand : *operands) {
        const bool message =
            operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
        if (!message && operand.buffer == BufferKind::kScratch) {
          operand.span.first +=
              (slice % shape_.scratch_versions) * shape_.replicas * shape_.scratch_chunks;
          continue;
        }
        if (operand.span.run > 1 && operand.span.repetitions > 1)
          return make_error(
              Code::kNotSupported,
              fmt::format("cannot unroll a span that has both a run of {} and {} repetitions",
                          operand.span.run, operand.span.repetitions));
        operand.span = slice_of(operand.span, slice, slices_);
      }
    return step;
  }

  const ScheduleShape& shape_;
  std::uint32_t slices_;
};

}  // namespace

Result<Schedule> unroll(const Schedule& schedule, std::uint32_t slices) {
  const ScheduleShape& shape = schedule.shape;
  if (slices == 0) return make_error(Code::kInvalidArgument, "cannot unroll 0 slices");
  if (std::uint64_t{shape.chunks} * slices > std::numeric_limits<std::uint32_t>::max())
    return make_error(Code::kNotSupported,
                      fmt::format("{} chunks in {} slices are too many", shape.chunks, slices));
  // One lane after the other runs slices of several replicas; a shape has one order for them.
  for (std::size_t i = static_cast<std::size_t>(shape.ranks); i < shape.block_ranks.size(); ++i)
    if (shape.block_ranks[i] != shape.block_ranks[i % static_cast<std::size_t>(shape.ranks)])
      return make_error(
          Code::kNotSupported,
          fmt::format("cannot unroll {} replicas whose blocks are in different orders",
                      shape.replicas));
  Schedule unrolled{shape, {}};
  if (!shape.block_ranks.empty())
    unrolled.shape.block_ranks.resize(static_cast<std::size_t>(shape.ranks));
  unrolled.shape.chunks = shape.chunks * slices;
  unrolled.shape.scratch_chunks = shape.scratch_chunks * shape.replicas * shape.scratch_versions;
  unrolled.shape.scratch_versions = 1;
  unrolled.shape.replicas = 1;
  const std::uint32_t used = std::min(shape.replicas, slices);
  unrolled.shape.max_incoming = shape.max_incoming / shape.replicas * used;
  unrolled.shape.max_per_pair = shape.max_per_pair / shape.replicas * used;
  unrolled.shape.tags = shape.tags * shape.replicas;
  unrolled.ranks.reserve(schedule.ranks.size());
  const Unroller unroller(shape, slices);
  for (const RankProgram& program : schedule.ranks) {
    RankProgram& copy = unrolled.ranks.emplace_back();
    for (const Lane& lane : program.lanes) {
      TUTTI_TRY_ASSIGN(Lane sliced, unroller.lane(lane));
      copy.lanes.push_back(std::move(sliced));
    }
    Unroller::renumber_waits(program, copy);
    Unroller::drop_empty_lanes(copy);
  }
  return unrolled;
}

}  // namespace tutti
