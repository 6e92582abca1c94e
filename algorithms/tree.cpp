// Tree: the double binary tree. Logarithmic depth at nearly full bandwidth.
//
//   Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
//   Parallel Computing 35(12), 2009.
//
// In one binary tree half of the ranks are leaves and send only once. So two trees share the work,
// each with half of the data (chunk t, tag t), and built so that no rank is an inner node in both.
//
// Tree 0 numbers the ranks in order: rank r has position r+1, and position i hangs at the level of
// its lowest set bit. The odd positions are the leaves and the even ones the inner nodes; the root
// is the largest power of two. Positions beyond p do not exist, and their children move up to the
// next ancestor that does. For p = 10:
//
//                         8
//                 4               10
//             2       6         9
//           1   3   5   7
//
// Tree 1 must turn leaves into inner nodes: it is tree 0 mirrored (position p-r) for even p, and
// shifted by one (position r+2, and 1 for the last rank) for odd p. Either way an even position
// of tree 0 is odd in tree 1.
//
// Lanes, per tree: "up" reduces from the children and sends to the parent; "down" receives the
// complete value, keeps it and passes it on. The root completes it and sends it down in the same
// step, so it has no "down"; a leaf's lanes have one operand a side. One tag a tree suffices: an
// edge carries "up" one way and "down" the other, also at the root, whose "up" sends
// down but receives up.
//
//   messages on the longest path   2 floor(log2 p)
//   bytes sent by a rank           at most 4 messages of n/2: 2n
//   reduced by a rank              at most 2 messages of n/2: n
//   time, pipelined in slices      about 2n beta + n gamma + 4 log2(p) alpha + lower terms
//
// Wins for middle sizes, and for large p also at large ones, where the ring's 2(p-1) alpha hurts.
// Any p: nothing is folded, the last level is just not full. Needs slices and replicas to pipeline.
// The order of the sum is own, left, right at every node; only a root completes a value, so all
// ranks end with the same bits.
#include <bit>

#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr int kTrees = 2;

// The in-order tree over positions 1..p; 0 stands for none.
std::int32_t lowest_bit(std::int32_t position) { return position & -position; }

std::int32_t parent_of(std::int32_t position, std::int32_t p) {
  const auto root = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(p)));
  if (position == root) return 0;
  std::int32_t parent = position;
  do {
    const std::int32_t bit = lowest_bit(parent);
    parent = (parent - bit) | (2 * bit);
  } while (parent > p);
  return parent;
}

std::int32_t left_of(std::int32_t position) { return position - lowest_bit(position) / 2; }

// The root of what lies right of `position` below its own level, as far as that exists.
std::int32_t right_of(std::int32_t position, std::int32_t p) {
  for (std::int32_t distance = lowest_bit(position) / 2; distance > 0; distance /= 2)
    if (position + distance <= p) return position + distance;
  return 0;
}

std::int32_t position_of(int tree, Rank rank, std::int32_t p) {
  if (tree == 0) return rank + 1;
  return p % 2 == 0 ? p - rank : (rank + 1) % p + 1;
}

Rank rank_at(int tree, std::int32_t position, std::int32_t p) {
  if (tree == 0) return position - 1;
  return p % 2 == 0 ? p - position : (position + p - 2) % p;
}

bool supports(const Problem& problem) { return problem.collective == Collective::kAllReduce; }

// From 4 ranks on, position 2 of each tree receives from a parent and two children, and as a leaf
// of the other tree from one parent more. Ranks 0 and 1 (1 and 2 where 4 divides p) are leaf and
// parent in one tree and parent and leaf in the other: a pair that uses both tags.
ScheduleShape shape(const Problem& problem) {
  const Rank p = problem.ranks;
  return {.algorithm = "tree",
          .collective = problem.collective,
          .ranks = p,
          .root = problem.root,
          .chunks = kTrees,
          .tags = kTrees,
          .max_incoming = p == 1 ? 0U : static_cast<std::uint32_t>(p < 4 ? p : 4),
          .max_per_pair = p == 1 ? 0U : 2U};
}

// Adds one rank's part of one tree: its steps on the way up and on the way down.
void add_tree(int tree, Rank p, Rank rank, LaneBuilder& up, LaneBuilder& down) {
  const std::int32_t position = position_of(tree, rank, p);
  const bool leaf = position % 2 == 1;
  const std::int32_t parent = parent_of(position, p);
  const std::int32_t children[2] = {leaf ? 0 : left_of(position), right_of(position, p)};
  const Tag tag = static_cast<Tag>(tree);
  const Span half = chunk(static_cast<std::uint32_t>(tree));

  const auto to_children = [&](StepBuilder step) {
    for (const std::int32_t child : children)
      if (child != 0) step.to(send(rank_at(tree, child, p), tag, half));
  };
  StepBuilder reduce = up.step().from(input(half));
  for (const std::int32_t child : children)
    if (child != 0) reduce.from(recv(rank_at(tree, child, p), tag, half));
  if (parent == 0) {
    to_children(reduce.to(output(half)).finish());
    return;
  }
  const Rank above = rank_at(tree, parent, p);
  reduce.to(send(above, tag, half));
  to_children(down.step().to(output(half)).from(recv(above, tag, half)));
}

RankProgram program(const Problem& problem, Rank rank) {
  if (problem.ranks == 1) return copy_alone(kTrees);
  LaneBuilder up0("up0"), down0("down0"), up1("up1"), down1("down1");
  add_tree(0, problem.ranks, rank, up0, down0);
  add_tree(1, problem.ranks, rank, up1, down1);
  return assemble({up0, down0, up1, down1});
}

}  // namespace

extern const Algorithm kTree;
constinit const Algorithm kTree{
    .name = "tree",
    .summary = "2*floor(log2 p) steps, at most 2n bytes sent a rank: middle sizes, many ranks",
    .source = "Sanders, Speck, Traeff 2009, Two-tree algorithms (double binary tree)",
    .supports = supports,
    .shape = shape,
    .program = program};

}  // namespace tutti
