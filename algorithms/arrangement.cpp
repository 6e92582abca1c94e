// SPDX-License-Identifier: Apache-2.0
#include "algorithms/arrangement.hpp"

#include <algorithm>
#include <vector>

#include "schedule/passes.hpp"

namespace tutti {
namespace {

const RankOrder& order_of(const Arrangement& arrangement, std::uint32_t replica) {
  static const RankOrder by_number;
  if (arrangement.orders.empty()) return by_number;
  return arrangement.orders[replica % arrangement.orders.size()];
}

// Orders in use: one where all replicas have the same.
std::uint32_t orders_in(const Arrangement& arrangement) {
  const std::size_t most = std::max(arrangement.replicas, 1U);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(arrangement.orders.size(), 1, most));
}

// Returns the problem to pass to the generator, so that the order moves its root to the problem's.
Problem at_places(Problem problem, const RankOrder& order) {
  problem.root = order.place_of(problem.root);
  return problem;
}

ScheduleShape shape_in(const Algorithm& algorithm, const Problem& problem, const RankOrder& order) {
  return reorder_shape(algorithm.shape(at_places(problem, order)), order);
}

RankProgram program_in(const Algorithm& algorithm, const Problem& problem, const RankOrder& order,
                       Rank rank) {
  return reorder_program(algorithm.program(at_places(problem, order), order.place_of(rank)), order);
}

}  // namespace

bool Arrangement::by_number() const {
  return std::ranges::all_of(orders.first(std::min<std::size_t>(orders.size(), replicas)),
                             &RankOrder::is_by_number);
}

ScheduleShape arranged_shape(const Algorithm& algorithm, const Problem& problem,
                             const Arrangement& arrangement) {
  if (orders_in(arrangement) == 1)
    return replicate_shape(shape_in(algorithm, problem, order_of(arrangement, 0)),
                           arrangement.replicas);
  std::vector<ScheduleShape> each;
  for (std::uint32_t replica = 0; replica < arrangement.replicas; ++replica)
    each.push_back(shape_in(algorithm, problem, order_of(arrangement, replica)));
  return replicate_shapes(each);
}

RankProgram arranged_program(const Algorithm& algorithm, const Problem& problem,
                             const Arrangement& arrangement, Rank rank) {
  const ScheduleShape shape = algorithm.shape(problem);
  if (orders_in(arrangement) == 1)
    return replicate_program(shape, program_in(algorithm, problem, order_of(arrangement, 0), rank),
                             arrangement.replicas);
  std::vector<RankProgram> each;
  for (std::uint32_t replica = 0; replica < arrangement.replicas; ++replica)
    each.push_back(program_in(algorithm, problem, order_of(arrangement, replica), rank));
  return replicate_programs(shape, each);
}

Result<Schedule> arranged_schedule(const Algorithm& algorithm, const Problem& problem,
                                   const Arrangement& arrangement) {
  TUTTI_TRY(check_problem(algorithm, problem));
  Schedule schedule{arranged_shape(algorithm, problem, arrangement), {}};
  schedule.ranks.reserve(static_cast<std::size_t>(problem.ranks));
  for (Rank rank = 0; rank < problem.ranks; ++rank)
    schedule.ranks.push_back(arranged_program(algorithm, problem, arrangement, rank));
  return schedule;
}

bool proved_by_tests(const Algorithm& algorithm, const Problem& problem,
                     const Arrangement& arrangement) {
  const auto is_in = [&](std::span<const Algorithm* const> list) {
    return std::ranges::find(list, &algorithm) != list.end();
  };
  const std::int32_t p = problem.ranks;
  const std::uint32_t w = arrangement.replicas;
  const bool ranks_listed = (p >= 1 && p <= 33) || p == 48 || p == 64 || p == 96 || p == 128;
  const bool listed = ranks_listed && (w == 1 || w == 2 || w == 4);
  const bool among_many =
      algorithm.name == "one_shot" || algorithm.name == "butterfly" || algorithm.name == "tree";
  const bool listed_of_many = among_many && w == 1 && (p == 256 || p == 512) &&
                              problem.collective == Collective::kAllReduce;
  return (is_in(all_algorithms()) || is_in(direct_algorithms())) && (listed || listed_of_many) &&
         arrangement.by_number() && check_problem(algorithm, problem).has_value();
}

}  // namespace tutti
