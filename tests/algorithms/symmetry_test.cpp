// SPDX-License-Identifier: Apache-2.0
// The declared symmetries against the programs: what a moved rank does is what the rank does, among
// moved peers.
#include "algorithms/symmetry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace tutti {
namespace {

// A rank's program as far as a symmetry keeps it, with peers as a move takes them.
struct Picture {
  // Kind, peer, which of the peer's tags, chunks.
  using Seen = std::tuple<OperandKind, Rank, std::size_t, std::uint32_t>;
  struct SeenStep {
    std::vector<Seen> sends;     // in order
    std::multiset<Seen> others;  // in any order
    std::multiset<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> waits;
    bool operator==(const SeenStep&) const = default;
  };
  std::vector<std::vector<SeenStep>> lanes;
  bool operator==(const Picture&) const = default;
};

// The tags that the rank has with each peer, one direction.
using Tags = std::map<std::pair<OperandKind, Rank>, std::set<Tag>>;

Tags tags_of(const RankProgram& program) {
  Tags tags;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const auto* side : {&step.destinations, &step.sources})
        for (const Operand& operand : *side) tags[{operand.kind, operand.peer}].insert(operand.tag);
  return tags;
}

template <typename Moved>
Picture picture_of(const RankProgram& program, Moved moved) {
  const Tags tags = tags_of(program);
  const auto seen = [&](const Operand& operand) {
    const std::set<Tag>& of_peer = tags.at({operand.kind, operand.peer});
    const Rank peer = operand.peer == kNoRank ? kNoRank : moved(operand.peer);
    return Picture::Seen{
        operand.kind, peer,
        static_cast<std::size_t>(std::distance(of_peer.begin(), of_peer.find(operand.tag))),
        operand.span.count()};
  };
  Picture picture;
  for (const Lane& lane : program.lanes) {
    auto& steps = picture.lanes.emplace_back();
    for (const Step& step : lane.steps) {
      Picture::SeenStep& made = steps.emplace_back();
      for (const Operand& operand : step.destinations)
        if (operand.kind == OperandKind::kSend) {
          made.sends.push_back(seen(operand));
        } else {
          made.others.insert(seen(operand));
        }
      for (const Operand& operand : step.sources) made.others.insert(seen(operand));
      for (const Wait& wait : step.waits) made.waits.insert({wait.lane, wait.step, wait.back});
    }
  }
  return picture;
}

// The least moves of which all are made: as pairs (from, to) of ranks.
std::vector<std::pair<Rank, Rank>> generators(const Symmetry& symmetry, Rank ranks) {
  std::vector<std::pair<Rank, Rank>> moves;
  const auto add = [&](Move move, Rank unit, Rank count) {
    if (move == Move::kShift && count > 1) moves.emplace_back(0, unit);
    if (move == Move::kExclusiveOr)
      for (Rank bit = 1; bit < count; bit *= 2) moves.emplace_back(0, bit * unit);
  };
  if (symmetry.paired > 0) {
    for (Rank bit = 1; bit < symmetry.group; bit *= 2) moves.emplace_back(0, 2 * bit);
    return moves;
  }
  add(symmetry.groups, symmetry.group, ranks / symmetry.group);
  add(symmetry.members, 1, symmetry.group);
  return moves;
}

void expect_symmetric(const Algorithm& algorithm, const Problem& problem) {
  const Symmetry symmetry = algorithm.symmetry(problem);
  const Rank p = problem.ranks;
  ASSERT_EQ(p % symmetry.group, 0);
  std::vector<RankProgram> programs;
  const auto moves = generators(symmetry, p);
  for (Rank rank = 0; rank < p && !moves.empty(); ++rank)
    programs.push_back(algorithm.program(problem, rank));
  const auto program = [&](Rank rank) -> const RankProgram& {
    return programs[static_cast<std::size_t>(rank)];
  };
  for (const auto& [from, to] : moves) {
    std::set<Rank> reached;
    for (Rank rank = 0; rank < p; ++rank) {
      const auto moved = [&, a = from, b = to](Rank peer) { return symmetry.moved(peer, a, b, p); };
      const auto same = [](Rank peer) { return peer; };
      reached.insert(moved(rank));
      ASSERT_TRUE(picture_of(program(rank), moved) == picture_of(program(moved(rank)), same))
          << algorithm.name << ", " << name_of(problem.collective) << ", " << p << " ranks: rank "
          << rank << " moved to " << moved(rank);
    }
    ASSERT_EQ(reached.size(), static_cast<std::size_t>(p));
  }
}

constexpr Rank kLargeCounts[] = {48, 64, 96, 128};

template <typename Visit>
void for_each_problem(const Algorithm& algorithm, Visit visit) {
  const auto visit_at = [&](Rank p) {
    for (std::size_t c = 1; c < kCollectiveCount; ++c) {
      const Problem problem{.collective = static_cast<Collective>(c), .ranks = p, .root = p / 3};
      if (algorithm.supports(problem)) visit(problem);
    }
  };
  for (Rank p = 1; p <= 33; ++p) visit_at(p);
  for (const Rank p : kLargeCounts) visit_at(p);
}

class Symmetries : public testing::TestWithParam<std::string_view> {};

TEST_P(Symmetries, AreThoseOfThePrograms) {
  const Algorithm& algorithm = *find_algorithm(GetParam()).value();
  for_each_problem(algorithm,
                   [&](const Problem& problem) { expect_symmetric(algorithm, problem); });
}

constexpr std::string_view kNames[] = {"ring",
                                       "ring:exchange=neighbours",
                                       "tree",
                                       "butterfly",
                                       "rabenseifner",
                                       "circulant",
                                       "circulant:radix=5",
                                       "one_shot",
                                       "one_shot:access=remote",
                                       "one_shot:access=store",
                                       "two_shot",
                                       "two_shot:access=remote",
                                       "two_shot:access=store",
                                       "pat",
                                       "hierarchical"};

INSTANTIATE_TEST_SUITE_P(, Symmetries, testing::ValuesIn(kNames), [](const auto& of) {
  std::string name(of.param);
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
});

TEST(Symmetry, OfEveryFamilyIsCompared) {
  for (const Algorithm* algorithm : all_algorithms())
    EXPECT_NE(std::ranges::find(kNames, algorithm->name), std::end(kNames)) << algorithm->name;
  for (const Algorithm* algorithm : direct_algorithms())
    EXPECT_NE(std::ranges::find(kNames, algorithm->name), std::end(kNames)) << algorithm->name;
}

// Every family that treats ranks alike says so: at 2..33 and the large counts, or their powers of
// two; folded, at the counts that exceed one by an even number.
TEST(Symmetry, IsDeclaredWhereThereIsOne) {
  for (const auto& [name, expected] : {std::pair{"ring", 36 * 3},
                                       {"ring:exchange=neighbours", 20 * 3},
                                       {"circulant", 36 * 4},
                                       {"pat", 36 * 3},
                                       {"two_shot", 36 * 4},
                                       {"two_shot:access=remote", 36 * 4},
                                       {"two_shot:access=store", 36 * 2},
                                       {"one_shot", 36},
                                       {"one_shot:access=remote", 0},
                                       {"one_shot:access=store", 0},
                                       {"butterfly", 20 + 7},
                                       {"rabenseifner", 20 + 2 * 7},
                                       {"tree", 0}}) {
    const Algorithm& algorithm = *find_algorithm(name).value();
    int moving = 0;
    for_each_problem(algorithm, [&](const Problem& problem) {
      if (!generators(algorithm.symmetry(problem), problem.ranks).empty()) ++moving;
    });
    EXPECT_EQ(moving, expected) << name;
  }
}

TEST(Symmetry, OfHierarchiesIsThatOfTheirParts) {
  const auto symmetry_of = [](std::string_view name, Rank ranks) {
    const Algorithm& algorithm = *find_algorithm(name).value();
    expect_symmetric(algorithm, {.collective = Collective::kAllReduce, .ranks = ranks});
    return algorithm.symmetry({.collective = Collective::kAllReduce, .ranks = ranks});
  };
  using enum Move;
  const Symmetry both{.groups = kShift, .members = kShift, .group = 4};
  EXPECT_EQ(symmetry_of("hierarchical:groups=3x4", 12), both);
  EXPECT_EQ(symmetry_of("hierarchical:inner=ring:outer=ring:groups=6x4", 24), both);
  EXPECT_EQ(symmetry_of("hierarchical:inner=rabenseifner:outer=butterfly:groups=8x4", 32),
            (Symmetry{kExclusiveOr, kExclusiveOr, 4}));
  EXPECT_EQ(symmetry_of("hierarchical:inner=rabenseifner:outer=two_shot:groups=4x3", 12),
            (Symmetry{kShift, kNone, 3}));
  EXPECT_EQ(symmetry_of("hierarchical:inner=circulant:outer=tree:groups=4x4", 16),
            (Symmetry{kNone, kShift, 4}));
  for (const char* inner : {"one_shot", "tree", "ring", "butterfly"})
    EXPECT_EQ(
        symmetry_of(
            std::string("hierarchical:form=leader:outer=circulant:groups=5x4:inner=") + inner, 20),
        (Symmetry{kShift, kNone, 4}))
        << inner;
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllToAll}) {
    const Algorithm& algorithm = *find_algorithm("hierarchical:groups=8x4").value();
    const Problem problem{.collective = collective, .ranks = 32};
    expect_symmetric(algorithm, problem);
    const Move between = collective == Collective::kAllToAll ? kShift : kExclusiveOr;
    EXPECT_EQ(algorithm.symmetry(problem), (Symmetry{between, kShift, 4}));
  }
  EXPECT_EQ(symmetry_of("hierarchical:groups=4+4+1", 9), Symmetry{});
  EXPECT_EQ(symmetry_of("hierarchical:inner=ring:groups=1x6", 6).members, kShift);
  EXPECT_EQ(symmetry_of("hierarchical:outer=circulant:groups=6x1", 6).groups, kShift);
}

}  // namespace
}  // namespace tutti
