// Rabenseifner: reduce-scatter by recursive halving, all-gather by recursive doubling.
//
//   Rabenseifner: Optimization of collective reduction operations, ICCS 2004.
//
// The data is cut into as many chunks as there are ranks. In round k a rank and the one whose
// number differs in bit k hold the same range of chunks; each gives the other half of it and keeps
// the sum of its own half (the lower one if bit k is clear). After log2 p rounds each holds the
// whole sum of one chunk, and the same exchanges backwards collect all chunks. For p = 4, the range
// that each rank keeps:
//
//     rank          0      1      2      3
//     round 0     0..1   2..3   0..1   2..3     the largest messages go the shortest way
//     round 1      0      2      1      3
//
//   messages in a row       2 log2 p, of n/2, n/4, ... n/p, n/p, ... n/2 bytes
//   bytes sent by a rank    2(p-1)/p * n, the least there is
//   reduced by a rank       (p-1)/p * n, the least as well
//   time                    2 log2 p alpha + 2(p-1)/p n beta + (p-1)/p n gamma
//
// Wins for middle and large data on a power of two of ranks. Any other number is folded (fold.hpp):
// two more messages, of all n bytes; there circulant is the better choice. Each chunk is completed
// by one rank, in rank order, so all ranks end with the same bits.
#include <vector>

#include "algorithms/families.hpp"
#include "algorithms/fold.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

// A range of chunks and its halves.
struct Range {
  std::uint32_t first, count;

  [[nodiscard]] Span span() const { return chunks(first, count); }
  [[nodiscard]] Range half(bool upper) const {
    return {upper ? first + count / 2 : first, count / 2};
  }
};

class Rabenseifner final : public Algorithm {
 public:
  constexpr Rabenseifner()
      : Algorithm(
            "rabenseifner",
            "2 log2 p steps, 2(p-1)/p*n bytes sent a rank: middle to large; folds if p != 2^k",
            "Rabenseifner 2004, Optimization of collective reduction operations") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    return problem.collective == Collective::kAllReduce;
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const Fold fold{problem.ranks};
    const auto chunks = static_cast<std::uint32_t>(fold.size());
    const int incoming = fold.rounds() + (fold.excess() > 0 ? 1 : 0);
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = chunks,
            .max_incoming = static_cast<std::uint32_t>(incoming),
            .max_per_pair = problem.ranks > 1 ? 1U : 0U,
            .max_message_chunks = fold.excess() > 0 ? chunks : std::max(1U, chunks / 2)};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Fold fold{problem.ranks};
    const Range all{0, static_cast<std::uint32_t>(fold.size())};
    if (problem.ranks == 1) return copy_alone(problem, 1);
    LaneBuilder lane("halving");
    if (fold.sits_out(rank)) {
      lane.step().to(send(rank - 1, kTag, all.span())).from(input(all.span()));
      lane.step().to(output(all.span())).from(recv(rank - 1, kTag, all.span()));
      return assemble({lane});
    }
    const bool paired = fold.is_paired(rank);
    if (paired)
      lane.step()
          .to(output(all.span()))
          .from(input(all.span()))
          .from(recv(rank + 1, kTag, all.span()));
    halve(fold, rank, all, paired, lane);
    if (paired) lane.step().to(send(rank + 1, kTag, all.span())).from(output(all.span()));
    return assemble({lane});
  }

 private:
  // The rounds from the one in which `range` is halved on, forth and back.
  static void halve(const Fold& fold, Rank rank, const Range& all, bool summed, LaneBuilder& lane) {
    const std::int32_t index = fold.index_of(rank);
    const auto peer = [&](int round) { return fold.rank_of(index ^ (1 << round)); };
    const auto upper = [&](int round) { return (index >> round & 1) == 1; };
    std::vector<Range> ranges{all};
    for (int round = 0; round < fold.rounds(); ++round) {
      const Range keep = ranges.back().half(upper(round));
      const Range give = ranges.back().half(!upper(round));
      const auto sum = [&](const Range& range) {
        return summed || round > 0 ? output(range.span()) : input(range.span());
      };
      lane.step().to(send(peer(round), kTag, give.span())).from(sum(give));
      const Operand theirs = recv(peer(round), kTag, keep.span());
      StepBuilder step = lane.step().to(output(keep.span()));
      step.from(upper(round) ? theirs : sum(keep)).from(upper(round) ? sum(keep) : theirs);
      if (round + 1 == fold.rounds()) step.to(send(peer(round), kTag, keep.span())).finish();
      ranges.push_back(keep);
    }
    for (int round = fold.rounds() - 1; round >= 0; --round) {
      const Range& whole = ranges[static_cast<std::size_t>(round)];
      const Span other = whole.half(!upper(round)).span();
      lane.step().to(output(other)).from(recv(peer(round), kTag, other));
      if (round > 0)
        lane.step().to(send(peer(round - 1), kTag, whole.span())).from(output(whole.span()));
    }
  }
};

}  // namespace

const Algorithm& rabenseifner() {
  static constinit const Rabenseifner kRabenseifner;
  return kRabenseifner;
}

}  // namespace tutti
