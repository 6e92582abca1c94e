// SPDX-License-Identifier: Apache-2.0
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
//   bytes sent by a rank           n/2 to each child and parent in both trees: at most 4, so 2n
//                                  (position i has no child if odd, one if i = p, else two)
//   reduced by a rank              at most 2 messages of n/2: n
//   time, pipelined in slices      about 2n beta + n gamma + 4 log2(p) alpha + lower terms
//
// Reduce and broadcast are one direction of it: both trees hold the p-1 other ranks, and both their
// roots hang at the root, which so receives, or sends, each byte once.
//
// Wins for middle sizes, and for large p also at large ones, where the ring's 2(p-1) alpha hurts.
// Any p: nothing is folded, the last level is just not full. Needs slices and replicas to pipeline.
// The order of the sum is own, left, right at every node; only a root completes a value, so all
// ranks end with the same bits.
#include <bit>
#include <vector>

#include "algorithms/families.hpp"
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

// Position in a tree of the rank with this index, and back.
std::int32_t position_at(int tree, std::int32_t index, std::int32_t p) {
  if (tree == 0) return index + 1;
  return p % 2 == 0 ? p - index : (index + 1) % p + 1;
}

std::int32_t index_at(int tree, std::int32_t position, std::int32_t p) {
  if (tree == 0) return position - 1;
  return p % 2 == 0 ? p - position : (position + p - 2) % p;
}

// The ranks of a pair of trees: all, from rank 0 on; or, below a root of their own, the others,
// from the one after the root on.
struct Forest {
  Rank ranks, first;
  std::int32_t size;     // of each tree
  Rank above = kNoRank;  // both trees' roots hang here

  [[nodiscard]] Rank rank_at(int tree, std::int32_t position) const {
    return (first + index_at(tree, position, size)) % ranks;
  }
  [[nodiscard]] std::int32_t position_of(int tree, Rank rank) const {
    return position_at(tree, (rank + ranks - first) % ranks, size);
  }
};

struct Lanes {
  LaneBuilder up, down;
};

// One rank's place in one tree.
class Node {
 public:
  Node(const Forest& forest, int tree, Rank rank)
      : tag_(static_cast<Tag>(tree)), half_(chunk(static_cast<std::uint32_t>(tree))) {
    const std::int32_t position = forest.position_of(tree, rank);
    const std::int32_t parent = parent_of(position, forest.size);
    parent_ = parent == 0 ? forest.above : forest.rank_at(tree, parent);
    const bool leaf = position % 2 == 1;
    for (const std::int32_t child : {leaf ? 0 : left_of(position), right_of(position, forest.size)})
      if (child != 0) children_.push_back(forest.rank_at(tree, child));
  }

  [[nodiscard]] bool is_root() const { return parent_ == kNoRank; }

  // parent <- own, left, right; a root completes the sum instead.
  StepBuilder add_up(LaneBuilder& up) const {
    StepBuilder reduce = up.step().from(input(half_));
    for (const Rank child : children_) reduce.from(recv(child, tag_, half_));
    return is_root() ? reduce.to(output(half_)).finish() : reduce.to(send(parent_, tag_, half_));
  }
  // own, left, right <- parent.
  void add_down(LaneBuilder& down) const {
    to_children(down.step().to(output(half_)).from(recv(parent_, tag_, half_)));
  }
  void to_children(StepBuilder step) const {
    for (const Rank child : children_) step.to(send(child, tag_, half_));
  }

 private:
  Tag tag_;
  Span half_;
  Rank parent_ = kNoRank;
  std::vector<Rank> children_;
};

void add_all_reduce(const Node& node, Lanes& lanes) {
  StepBuilder reduce = node.add_up(lanes.up);
  if (node.is_root()) {
    node.to_children(reduce);
  } else {
    node.add_down(lanes.down);
  }
}

// Adds the steps by which the root above both trees serves one of them.
void add_above(const Forest& forest, int tree, bool reduce, LaneBuilder& lane) {
  const std::int32_t top = static_cast<std::int32_t>(
      std::bit_floor(static_cast<std::uint32_t>(forest.size)));  // the root's position
  const Rank root = forest.rank_at(tree, top);
  const Tag tag = static_cast<Tag>(tree);
  const Span half = chunk(static_cast<std::uint32_t>(tree));
  StepBuilder step = lane.step().to(output(half)).from(input(half));
  if (reduce) {
    step.from(recv(root, tag, half)).finish();
  } else {
    step.to(send(root, tag, half));
  }
}

class Tree final : public Algorithm {
 public:
  constexpr Tree()
      : Algorithm("tree",
                  "2*floor(log2 p) steps, at most 2n bytes sent a rank: middle sizes, many ranks",
                  "Sanders, Speck, Traeff 2009, Two-tree algorithms (double binary tree)") {
    order = OrderKind::kTree;
  }

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduce, kBroadcast});
  }

  // All-reduce, from 4 ranks on: position 2 of each tree receives from a parent and two children,
  // and as a leaf of the other tree from one parent more. Ranks 0 and 1 (1 and 2 where 4 divides p)
  // are leaf and parent in one tree and parent and leaf in the other: a pair that uses both tags.
  // Reduce and broadcast: two children, or two parents; only a tree of one rank has both tags.
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const Rank p = problem.ranks;
    const bool rooted = problem.collective != Collective::kAllReduce;
    std::uint32_t incoming = static_cast<std::uint32_t>(rooted || p < 4 ? 2 : 4);
    if (!rooted && p == 3) incoming = 3;
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = p,
            .root = problem.root,
            .chunks = kTrees,
            .tags = kTrees,
            .max_incoming = p == 1 ? 0U : incoming,
            .max_per_pair = p == 1            ? 0U
                            : rooted && p > 2 ? 1U
                                              : 2U};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Rank p = problem.ranks, root = problem.root;
    if (p == 1) return copy_alone(problem, kTrees);
    const bool rooted = problem.collective != Collective::kAllReduce;
    const bool reduce = problem.collective == Collective::kReduce;
    const Forest forest = rooted ? Forest{p, (root + 1) % p, p - 1, root} : Forest{p, 0, p};
    Lanes lanes[kTrees] = {{LaneBuilder("up0"), LaneBuilder("down0")},
                           {LaneBuilder("up1"), LaneBuilder("down1")}};
    for (int tree = 0; tree < kTrees; ++tree) {
      Lanes& own = lanes[tree];
      if (rooted && rank == root) {
        add_above(forest, tree, reduce, reduce ? own.up : own.down);
      } else if (const Node node(forest, tree, rank); !rooted) {
        add_all_reduce(node, own);
      } else if (reduce) {
        node.add_up(own.up);
      } else {
        node.add_down(own.down);
      }
    }
    return assemble({lanes[0].up, lanes[0].down, lanes[1].up, lanes[1].down});
  }
};

}  // namespace

const Algorithm& tree() {
  static constinit const NeverDestroyed<Tree> kTree;
  return kTree.value;
}

}  // namespace tutti
