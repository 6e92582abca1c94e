// SPDX-License-Identifier: Apache-2.0
// Schedules for the tests of this folder and of tests/algorithms: built ones and random ones.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti::samples {

inline Schedule built(std::string_view name, std::int32_t ranks) {
  const Algorithm* algorithm = find_algorithm(name).value();
  Result<Schedule> schedule =
      build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
  EXPECT_TRUE(schedule) << name << " " << ranks;
  return *std::move(schedule);
}

// Every field and every kind of operand, with no sense at all: for printers and passes. One
// replica, scratch spans without a wrap, waits for steps that exist.
class RandomSchedule {
 public:
  explicit RandomSchedule(std::uint64_t seed) : random_(seed) {}

  Schedule make() {
    Schedule schedule;
    ScheduleShape& shape = schedule.shape;
    shape.algorithm = "random<\"&'" + std::to_string(below(10));
    shape.collective = static_cast<Collective>(1 + below(kCollectiveCount - 1));
    shape.ranks = static_cast<std::int32_t>(2 + below(5));
    shape.root = static_cast<Rank>(below(static_cast<std::uint32_t>(shape.ranks)));
    shape.chunks = 1 + below(9);
    shape.scratch_chunks = 1 + below(4);
    shape.scratch_versions = 1 + below(3);
    shape.tags = 1 + below(3);
    shape.max_incoming = below(20);
    shape.max_per_pair = below(5);
    shape.max_message_chunks = below(shape.chunks + 1);
    shape.apart = below(2) == 0;
    for (rank_ = 0; rank_ < shape.ranks; ++rank_) schedule.ranks.push_back(program(shape));
    return schedule;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  RankProgram program(const ScheduleShape& shape) {
    RankProgram program;
    const std::uint32_t lanes = 1 + below(3), steps = 1 + below(4);
    for (std::uint32_t l = 0; l < lanes; ++l) {
      Lane& lane = program.lanes.emplace_back();
      lane.name = "lane" + std::to_string(l);
      for (std::uint32_t s = 0; s < steps; ++s) {
        Step& step = lane.steps.emplace_back();
        for (std::uint32_t i = 0; i <= below(3); ++i)
          step.destinations.push_back(operand(shape, true));
        for (std::uint32_t i = 0; i <= below(3); ++i) step.sources.push_back(operand(shape, false));
        if (below(3) == 0) step.waits.push_back({below(lanes), below(steps), below(3)});
        step.finish = below(2) == 0;
      }
    }
    return program;
  }

  Operand operand(const ScheduleShape& shape, bool destination) {
    const auto others = static_cast<std::uint32_t>(shape.ranks - 1);
    const Rank peer = (rank_ + 1 + static_cast<Rank>(below(others))) % shape.ranks;
    const auto tag = static_cast<Tag>(below(shape.tags));
    // Half of the spans are ranges, half are strided: unroll takes either, not both at once.
    const std::uint32_t count = below(shape.chunks + 1);
    Span span{below(shape.chunks), count, 0, 1};
    if (below(2) == 0) span = {below(shape.chunks), 1, below(shape.chunks), count};
    switch (below(4)) {
      case 0:
        return destination ? operands::send(peer, tag, span) : operands::recv(peer, tag, span);
      case 1:
        return operands::remote(peer, destination ? BufferKind::kOutput : BufferKind::kInput, span);
      case 2:
        return operands::scratch({below(shape.scratch_chunks), 1, 0, 1});
      default:
        return destination ? operands::output(span) : operands::input(span);
    }
  }

  std::mt19937_64 random_;
  Rank rank_ = 0;
};

}  // namespace tutti::samples
