// SPDX-License-Identifier: Apache-2.0
// Butterfly: recursive doubling. The least messages in a row of any all-reduce by pairs.
//
//   Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH,
//   Int. J. High Perform. Comput. Appl. 19(1), 2005, section 4.1 (recursive doubling).
//
// In round k each rank exchanges all it has with the rank whose number differs in bit k. After
// round k, blocks of 2^(k+1) ranks hold the same sum. For p = 4, who exchanges with whom:
//
//     round 0    0-1  2-3
//     round 1    0-2  1-3
//
// Reducing what a round brought and sending it on in the next are one step.
//
//   messages in a row       log2 p, each of n bytes
//   bytes sent by a rank    log2 p * n
//   reduced by a rank       log2 p * n
//   time                    log2 p (alpha + n beta + n gamma)
//
// Wins for small data on more ranks than one_shot serves well; loses once bytes count. A number of
// ranks that is no power of two is folded (fold.hpp): one message more in a row, or two if there
// are more ranks than 3/4 of the next power of two. (With fewer, no value that came in by folding
// crosses all rounds on its way to a rank that sits out.) Both ranks of a pair reduce the lower
// one's value with the higher one's, so all end with the same bits, and the sum is in rank order.
//
// Reduce and broadcast are the part of it that touches one rank: the binomial tree, for any p
// without folding. Counted from the root on, rank i is above i + 2^k for every 2^k under the lowest
// set bit of i, and the root for every 2^k. For p = 6, who is above whom:
//
//     0 - 1, 2, 4     2 - 3     4 - 5
//
//   messages in a row       floor(log2 p), each of n bytes
//   bytes sent by a rank    n in a reduce; up to ceil(log2 p) n in a broadcast, by the root
//   reduced by a rank       up to ceil(log2 p) n, by the root, in one step and in rank order
//
// A rank adds all that it receives in one step, and passes on what it got in one, the largest
// subtree first. Gather and scatter move blocks along the same tree: a message holds the blocks of
// a whole subtree, which stand one behind the other, and waits in scratch where it is passed on.
//
//   messages in a row       floor(log2 p), the largest of about n/2 bytes
//   bytes sent by a rank    (p-1)/p n by the root of a scatter; at most about n/2 by others
//
// An all-to-all is the pairwise exchange of the same paper (section 3.3): with the rank whose
// number differs by exclusive or with k, for k = 1, 2, ... one after the other; if p is no power of
// two a rank has no partner in some rounds. A block that has been sent makes room for the one that
// comes back, so it may be in place. At most two messages of a rank are under way.
//
//   messages in a row       p - 1 at powers of two, each of n/p bytes
//   bytes sent by a rank    (p-1)/p n
//
// Wins for large blocks where p messages at once meet on one link.
#include <algorithm>
#include <bit>
#include <vector>

#include "algorithms/families.hpp"
#include "algorithms/fold.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

// A rank's place in the binomial tree.
struct Node {
  Rank above = kNoRank;     // of the root: none
  std::vector<Rank> below;  // the smallest subtree first
  // The ranks of its subtree, itself first, in the order of the blocks; of below[i] they begin
  // 2^i behind.
  std::uint32_t size = 1;
  std::vector<std::uint32_t> sizes_below;
};

Node node_of(const Problem& problem, Rank rank) {
  const Rank p = problem.ranks;
  const auto rank_at = [&](std::int32_t index) { return (index + problem.root) % p; };
  const std::int32_t index = (rank - problem.root + p) % p;
  Node node;
  for (std::int32_t bit = 1; (index & bit) == 0 && index + bit < p; bit *= 2) {
    node.below.push_back(rank_at(index + bit));
    node.sizes_below.push_back(static_cast<std::uint32_t>(std::min(bit, p - index - bit)));
    node.size += node.sizes_below.back();
  }
  if (index != 0) node.above = rank_at(index & (index - 1));
  return node;
}

RankProgram reduce_program(const Node& node) {
  const Span all = chunk(0);
  LaneBuilder lane("reduce");
  StepBuilder sum = lane.step().from(input(all));
  for (const Rank below : node.below) sum.from(recv(below, kTag, all));
  if (node.above == kNoRank) {
    sum.to(output(all)).finish();
  } else {
    sum.to(send(node.above, kTag, all));
  }
  return assemble(std::move(lane));
}

RankProgram broadcast_program(const Node& node) {
  const Span all = chunk(0);
  LaneBuilder lane("broadcast");
  StepBuilder spread = lane.step().to(output(all));
  spread.from(node.above == kNoRank ? input(all) : recv(node.above, kTag, all));
  for (auto below = node.below.rbegin(); below != node.below.rend(); ++below)
    spread.to(send(*below, kTag, all));
  return assemble(std::move(lane));
}

// The blocks of a subtree.
Span blocks_of(Rank rank, std::uint32_t size) {
  return chunks(static_cast<std::uint32_t>(rank), size);
}

// The most blocks that a rank keeps in scratch, and those of the longest message.
std::uint32_t largest_subtree(Rank p) {
  if (p == 1) return 1;
  const auto half = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(p - 1)));
  return static_cast<std::uint32_t>(std::max({1, half / 2, std::min(half, p - half)}));
}

RankProgram gather_program(const Node& node, Rank rank) {
  const bool root = node.above == kNoRank, leaf = node.below.empty();
  const Span mine = blocks_of(rank, 1), all = blocks_of(rank, node.size);
  LaneBuilder lane("gather");
  if (leaf) {
    lane.step().to(send(node.above, kTag, mine)).from(input(mine));
    return assemble(std::move(lane));
  }
  lane.step().to(root ? output(mine) : scratch(chunk(0))).from(input(mine));
  for (std::size_t i = 0; i < node.below.size(); ++i) {
    const Span theirs = blocks_of(node.below[i], node.sizes_below[i]);
    const Operand kept =
        root ? output(theirs) : scratch(chunks(std::uint32_t{1} << i, node.sizes_below[i]));
    lane.step().to(kept).from(recv(node.below[i], kTag, theirs));
  }
  if (!root) lane.step().to(send(node.above, kTag, all)).from(scratch(chunks(0, node.size)));
  return assemble(std::move(lane));
}

RankProgram scatter_program(const Node& node, Rank rank) {
  const bool root = node.above == kNoRank, leaf = node.below.empty();
  const Span mine = blocks_of(rank, 1), all = blocks_of(rank, node.size);
  LaneBuilder lane("scatter");
  if (leaf) {
    lane.step().to(output(mine)).from(recv(node.above, kTag, mine));
    return assemble(std::move(lane));
  }
  if (!root) lane.step().to(scratch(chunks(0, node.size))).from(recv(node.above, kTag, all));
  for (std::size_t i = node.below.size(); i-- > 0;) {
    const Span theirs = blocks_of(node.below[i], node.sizes_below[i]);
    const Operand held =
        root ? input(theirs) : scratch(chunks(std::uint32_t{1} << i, node.sizes_below[i]));
    lane.step().to(send(node.below[i], kTag, theirs)).from(held);
  }
  lane.step().to(output(mine)).from(root ? input(mine) : scratch(chunk(0)));
  return assemble(std::move(lane));
}

RankProgram exchange_program(Rank p, Rank rank) {
  const Fold fold{p};
  const Span all = chunk(0);
  LaneBuilder lane("butterfly");
  if (fold.sits_out(rank)) {
    lane.step().to(send(rank - 1, kTag, all)).from(input(all));
    lane.step().to(output(all)).from(recv(rank - 1, kTag, all));
    return assemble(std::move(lane));
  }
  const std::int32_t index = fold.index_of(rank);
  const auto peer = [&](int round) { return fold.rank_of(index ^ (1 << round)); };
  StepBuilder first = lane.step().to(send(peer(0), kTag, all)).from(input(all));
  if (fold.is_paired(rank)) first.to(output(all)).from(recv(rank + 1, kTag, all));
  Operand sum = fold.is_paired(rank) ? output(all) : input(all);
  for (int round = 0; round < fold.rounds(); ++round) {
    const Operand theirs = recv(peer(round), kTag, all);
    const bool lower = (index >> round & 1) == 0;
    StepBuilder step = lane.step().to(output(all));
    step.from(lower ? sum : theirs).from(lower ? theirs : sum);
    if (round + 1 < fold.rounds()) {
      step.to(send(peer(round + 1), kTag, all));
    } else {
      step.finish();
      if (fold.is_paired(rank)) step.to(send(rank + 1, kTag, all));
    }
    sum = output(all);
  }
  return assemble(std::move(lane));
}

RankProgram pairwise_program(Rank p, Rank rank) {
  const auto block = [](Rank of) { return chunk(static_cast<std::uint32_t>(of)); };
  const auto rounds = static_cast<Rank>(std::bit_ceil(static_cast<std::uint32_t>(p)));
  LaneBuilder lane("pairwise");
  lane.step().to(output(block(rank))).from(input(block(rank)));
  for (Rank k = 1; k < rounds; ++k) {
    const Rank peer = rank ^ k;
    if (peer >= p) continue;
    lane.step().to(send(peer, kTag, block(peer))).from(input(block(peer)));
    lane.step().to(output(block(peer))).from(recv(peer, kTag, block(peer)));
  }
  return assemble(std::move(lane));
}

// At another number than a power of two all ranks have programs of their own in an all-to-all. To
// count them took 0.03 s of the choice at 255 ranks, and it grows with the square.
constexpr Rank kMostUnlikePairs = 256;

class Butterfly final : public Algorithm {
 public:
  constexpr Butterfly()
      : Algorithm("butterfly",
                  "log2 p steps, log2 p*n bytes sent a rank: small data; folds if p is not 2^k",
                  "Thakur, Rabenseifner, Gropp 2005 (recursive doubling)") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    if (problem.collective == kAllToAll)
      return problem.ranks <= kMostUnlikePairs ||
             std::has_single_bit(static_cast<std::uint32_t>(problem.ranks));
    return is_among(problem.collective, {kAllReduce, kReduce, kBroadcast, kGather, kScatter});
  }

  [[nodiscard]] bool in_rank_order(const Problem& problem) const override {
    using enum Collective;
    return problem.collective == kAllReduce;
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    using enum Collective;
    if (problem.collective == kAllToAll) return pairwise_shape(name, problem);
    const Fold fold{problem.ranks};
    const bool blocks = info_of(problem.collective).blocks;
    const std::uint32_t largest = blocks ? largest_subtree(problem.ranks) : 1;
    int incoming = fold.rounds() + (fold.excess() > 0 ? 1 : 0);  // of a reduce's root as well
    if (is_among(problem.collective, {kBroadcast, kScatter})) incoming = problem.ranks > 1 ? 1 : 0;
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = blocks ? static_cast<std::uint32_t>(problem.ranks) : 1,
            .scratch_chunks = largest > 1 ? largest : 0,
            .max_incoming = static_cast<std::uint32_t>(incoming),
            .max_per_pair = problem.ranks > 1 ? 1U : 0U,
            .max_message_chunks = largest};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    const Fold fold{problem.ranks};
    if (problem.collective == Collective::kAllToAll && fold.excess() == 0) return fold.symmetry();
    return problem.collective == Collective::kAllReduce ? fold.symmetry() : Symmetry{};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    if (problem.ranks == 1) return copy_alone(problem, 1);
    switch (problem.collective) {
      case Collective::kReduce:
        return reduce_program(node_of(problem, rank));
      case Collective::kBroadcast:
        return broadcast_program(node_of(problem, rank));
      case Collective::kGather:
        return gather_program(node_of(problem, rank), rank);
      case Collective::kScatter:
        return scatter_program(node_of(problem, rank), rank);
      case Collective::kAllToAll:
        return pairwise_program(problem.ranks, rank);
      default:
        return exchange_program(problem.ranks, rank);
    }
  }
};

}  // namespace

const Algorithm& butterfly() {
  static constinit const NeverDestroyed<Butterfly> kButterfly;
  return kButterfly.value;
}

}  // namespace tutti
