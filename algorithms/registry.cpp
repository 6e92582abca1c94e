// The one list of algorithm families. A new family is one file and one line here.
#include <fmt/format.h>

#include <array>

#include "algorithms/algorithm.hpp"

namespace tutti {

extern const Algorithm kRing;
extern const Algorithm kOneShot;
extern const Algorithm kTree;

std::span<const Algorithm* const> all_algorithms() {
  static constexpr std::array<const Algorithm*, 3> kAll{&kRing, &kOneShot, &kTree};
  return kAll;
}

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm* algorithm : all_algorithms())
    if (algorithm->name == name) return algorithm;
  return nullptr;
}

bool proved_by_tests(std::int32_t ranks, std::uint32_t replicas) {
  const bool ranks_listed =
      (ranks >= 1 && ranks <= 33) || ranks == 48 || ranks == 64 || ranks == 96 || ranks == 128;
  return ranks_listed && (replicas == 1 || replicas == 2 || replicas == 4);
}

Result<Schedule> build_schedule(const Algorithm& algorithm, const Problem& problem) {
  if (problem.ranks < 1)
    return make_error(Code::kInvalidArgument,
                      fmt::format("a schedule needs at least 1 rank, not {}", problem.ranks));
  if (problem.root < 0 || problem.root >= problem.ranks)
    return make_error(Code::kInvalidArgument,
                      fmt::format("root {} is not one of {} ranks", problem.root, problem.ranks));
  if (!algorithm.supports(problem))
    return make_error(Code::kNotSupported,
                      fmt::format("{} does not do {} on {} ranks", algorithm.name,
                                  name_of(problem.collective), problem.ranks));
  Schedule schedule{algorithm.shape(problem), {}};
  schedule.ranks.reserve(static_cast<std::size_t>(problem.ranks));
  for (Rank rank = 0; rank < problem.ranks; ++rank)
    schedule.ranks.push_back(algorithm.program(problem, rank));
  return schedule;
}

}  // namespace tutti
