// SPDX-License-Identifier: Apache-2.0
// The double binary tree: two spanning trees of logarithmic depth that share the work.
#include <gtest/gtest.h>

#include <bit>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/space_time.hpp"

namespace tutti {
namespace {

// A tree read off the schedule: who receives from whom on the way up.
struct Tree {
  std::vector<Rank> parent;
  std::vector<std::vector<Rank>> children;

  Tree(const Schedule& schedule, Tag tag)
      : parent(schedule.ranks.size(), kNoRank), children(schedule.ranks.size()) {
    const std::string up = "up" + std::to_string(tag);
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (const Lane& lane : schedule.ranks[r].lanes)
        if (lane.name == up)
          for (const Operand& source : lane.steps.at(0).sources)
            if (source.kind == OperandKind::kRecv) {
              children[r].push_back(source.peer);
              EXPECT_EQ(parent[static_cast<std::size_t>(source.peer)], kNoRank);
              parent[static_cast<std::size_t>(source.peer)] = static_cast<Rank>(r);
            }
  }
  // Edges from `rank` to the root, or -1 for a circle.
  [[nodiscard]] int depth(Rank rank) const {
    int edges = 0;
    for (; parent[static_cast<std::size_t>(rank)] != kNoRank; ++edges) {
      if (edges > static_cast<int>(parent.size())) return -1;
      rank = parent[static_cast<std::size_t>(rank)];
    }
    return edges;
  }
  [[nodiscard]] bool inner(std::size_t rank) const { return !children[rank].empty(); }
};

int floor_log2(std::uint32_t p) { return static_cast<int>(std::bit_width(p)) - 1; }

TEST(Tree, BothAreBinarySpanningTreesOfLogarithmicHeight) {
  for (std::uint32_t p = 2; p <= 260; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("tree", static_cast<std::int32_t>(p));
    for (Tag tag = 0; tag < 2; ++tag) {
      const Tree tree(schedule, tag);
      EXPECT_EQ(std::count(tree.parent.begin(), tree.parent.end(), kNoRank), 1);
      int height = 0;
      for (Rank rank = 0; rank < static_cast<Rank>(p); ++rank) {
        const int depth = tree.depth(rank);
        ASSERT_GE(depth, 0);
        height = std::max(height, depth);
        EXPECT_LE(tree.children[static_cast<std::size_t>(rank)].size(), 2U);
      }
      EXPECT_EQ(height, floor_log2(p));
    }
  }
}

TEST(Tree, NoRankIsAnInnerNodeOfBoth) {
  for (std::uint32_t p = 2; p <= 260; ++p) {
    const Schedule schedule = samples::built("tree", static_cast<std::int32_t>(p));
    const Tree first(schedule, 0), second(schedule, 1);
    std::size_t inner = 0;
    for (std::size_t r = 0; r < p; ++r) {
      EXPECT_FALSE(first.inner(r) && second.inner(r)) << p << " ranks, rank " << r;
      inner += (first.inner(r) ? 1U : 0U) + (second.inner(r) ? 1U : 0U);
    }
    EXPECT_EQ(inner, 2 * (p / 2));
  }
}

TEST(Tree, CountsAreThoseOfTheFormula) {
  for (std::uint32_t p = 2; p <= 130; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built("tree", static_cast<std::int32_t>(p));
    const Tree trees[2] = {Tree(schedule, 0), Tree(schedule, 1)};
    std::uint64_t messages = 0;
    for (std::size_t r = 0; r < p; ++r) {
      const counts::RankCounts counts = counts::of(schedule.ranks[r]);
      std::uint64_t expected = 0, reduced = 0;
      for (const Tree& tree : trees) {
        expected += tree.children[r].size() + (tree.parent[r] == kNoRank ? 0U : 1U);
        reduced += tree.children[r].size();
      }
      EXPECT_EQ(counts.messages, expected);
      EXPECT_EQ(counts.reduced_chunks, reduced);
      EXPECT_LE(counts.messages, 4U);
      EXPECT_LE(counts.reduced_chunks, 2U);
      messages += counts.messages;
    }
    EXPECT_EQ(messages, std::uint64_t{2} * 2 * (p - 1));
    EXPECT_EQ(space_time(schedule).depth, 2U * static_cast<std::uint32_t>(floor_log2(p)));
  }
}

TEST(Tree, TheRootSendsDownInTheStepThatCompletes) {
  const Schedule schedule = samples::built("tree", 10);
  const std::vector<Lane>& lanes = schedule.ranks[7].lanes;  // root of tree 0, leaf of tree 1
  ASSERT_EQ(lanes.size(), 3U);
  EXPECT_EQ(lanes[0].name, "up0");
  EXPECT_EQ(lanes[1].name, "up1");
  EXPECT_EQ(lanes[2].name, "down1");
  using namespace operands;
  const Step expected{
      .destinations = {output(chunk(0)), send(3, 0, chunk(0)), send(9, 0, chunk(0))},
      .sources = {input(chunk(0)), recv(3, 0, chunk(0)), recv(9, 0, chunk(0))},
      .waits = {},
      .finish = true};
  ASSERT_EQ(lanes[0].steps.size(), 1U);
  EXPECT_EQ(lanes[0].steps[0], expected);
}

// The picture in tree.cpp, in positions rank + 1.
TEST(Tree, TenRanksAreThePictureOfThePage) {
  const Tree tree(samples::built("tree", 10), 0);
  const Rank parent_position[10] = {2, 4, 2, 8, 6, 4, 6, 0, 10, 8};
  for (std::size_t r = 0; r < 10; ++r) EXPECT_EQ(tree.parent[r], parent_position[r] - 1) << r;
}

}  // namespace
}  // namespace tutti
