// An algorithm family: pure functions from (problem, rank) to one rank's program.
// Knows no thread, pointer, size, CUDA or transport. Adding one is one file and one line in
// registry.cpp.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

struct Algorithm {
  std::string_view name;     // as on every command line and in every table
  std::string_view summary;  // one line: formula for steps and bytes, where it wins
  std::string_view source;   // the paper
  bool (*supports)(const Problem& problem);
  // O(1): what all ranks know alike. Verified against the programs at the proved rank counts.
  ScheduleShape (*shape)(const Problem& problem);
  // O(own steps) time and memory.
  RankProgram (*program)(const Problem& problem, Rank rank);
};

// Every family there is, in the order in which tables list them.
[[nodiscard]] std::span<const Algorithm* const> all_algorithms();
[[nodiscard]] const Algorithm* find_algorithm(std::string_view name);

// Is the family, with this many replicas, proved at this rank count by the test suite? The list: 1
// to 33, 48, 64, 96 and 128 ranks, each with 1, 2 and 4 replicas
// (tests/algorithms/proved_test.cpp).
[[nodiscard]] bool proved_by_tests(std::int32_t ranks, std::uint32_t replicas);

// All ranks' programs: for proof, price and pictures. kNotSupported where the family does not
// cover the problem.
[[nodiscard]] Result<Schedule> build_schedule(const Algorithm& algorithm, const Problem& problem);

}  // namespace tutti
