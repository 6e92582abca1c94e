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
#include "algorithms/families.hpp"
#include "algorithms/fold.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

class Butterfly final : public Algorithm {
 public:
  constexpr Butterfly()
      : Algorithm("butterfly",
                  "log2 p steps, log2 p*n bytes sent a rank: small data; folds if p is not 2^k",
                  "Thakur, Rabenseifner, Gropp 2005 (recursive doubling)") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    return problem.collective == Collective::kAllReduce;
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const Fold fold{problem.ranks};
    const int incoming = fold.rounds() + (fold.excess() > 0 ? 1 : 0);
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = 1,
            .max_incoming = static_cast<std::uint32_t>(incoming),
            .max_per_pair = problem.ranks > 1 ? 1U : 0U};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    if (problem.ranks == 1) return copy_alone(problem, 1);
    const Fold fold{problem.ranks};
    const Span all = chunk(0);
    LaneBuilder lane("butterfly");
    if (fold.sits_out(rank)) {
      lane.step().to(send(rank - 1, kTag, all)).from(input(all));
      lane.step().to(output(all)).from(recv(rank - 1, kTag, all));
      return assemble({lane});
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
    return assemble({lane});
  }
};

}  // namespace

const Algorithm& butterfly() {
  static constinit const Butterfly kButterfly;
  return kButterfly;
}

}  // namespace tutti
