// Two-shot: reduce-scatter and all-gather, each by direct exchange. Two messages in a row at the
// least bytes.
//
//   On GPUs over peer memory: Shah et al. 2025, MSCCL++ (two-shot all-reduce); as an algorithm for
//   messages: Chan, Heimlich, Purkayastha, van de Geijn 2007, Collective communication: theory,
//   practice, and experience (simultaneous scatters and gathers among all).
//
// Chunk c belongs to rank c. Every rank sends every other one the chunk that belongs there, to
// rank+1 first; then each reduces p sources at once, in rank order and one rounding, and sends the
// result to all.
//
//   messages in a row       2, each of n/p bytes; 2(p-1) sent by a rank
//   bytes sent by a rank    2(p-1)/p * n, the least there is
//   reduced by a rank       (p-1)/p * n, the least as well, in one pass over the sources
//   time                    2 alpha + 2(p-1)(o + n/p beta) + (p-1)/p n gamma
//
// Wins for small to middle data where every pair has a fast path (shared memory, NVSwitch); loses
// where p messages at once meet on one link. Any p; no power of two is special. Most exact, like
// one_shot; each chunk is completed by one rank, so all end with the same bits.
#include "algorithms/families.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

Span chunk_of(Rank rank) { return chunk(static_cast<std::uint32_t>(rank)); }

// The last step completes the own chunk; the caller may add where else it goes.
StepBuilder add_reduce_scatter(Rank p, Rank rank, LaneBuilder& lane) {
  for (Rank k = 1; k < p; ++k) {
    const Rank peer = (rank + k) % p;
    lane.step().to(send(peer, kTag, chunk_of(peer))).from(input(chunk_of(peer)));
  }
  const Span mine = chunk_of(rank);
  StepBuilder gather = lane.step().to(output(mine)).finish();
  for (Rank peer = 0; peer < p; ++peer)
    gather.from(peer == rank ? input(mine) : recv(peer, kTag, mine));
  return gather;
}

// `own` is the step that has the own chunk's value.
void add_all_gather(Rank p, Rank rank, StepBuilder own, LaneBuilder& lane) {
  for (Rank k = 1; k < p; ++k) own.to(send((rank + k) % p, kTag, chunk_of(rank)));
  for (Rank k = 1; k < p; ++k) {
    const Rank peer = (rank + p - k) % p;
    lane.step().to(output(chunk_of(peer))).from(recv(peer, kTag, chunk_of(peer)));
  }
}

class TwoShot final : public Algorithm {
 public:
  constexpr TwoShot()
      : Algorithm("two_shot",
                  "2 steps, 2(p-1)/p*n bytes sent a rank in 2(p-1) messages: small to middle data",
                  "direct exchange; Shah et al. 2025, MSCCL++ (two-shot all-reduce)") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduceScatter, kAllGather});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const auto others = static_cast<std::uint32_t>(problem.ranks - 1);
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = others + 1,
            .max_incoming = others,
            .max_per_pair = std::min(others, 1U)};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Rank p = problem.ranks;
    if (p == 1) return copy_alone(problem, 1);
    LaneBuilder lane("exchange");
    if (problem.collective == Collective::kReduceScatter) {
      add_reduce_scatter(p, rank, lane);
    } else if (problem.collective == Collective::kAllReduce) {
      add_all_gather(p, rank, add_reduce_scatter(p, rank, lane), lane);
    } else {
      StepBuilder own = lane.step().to(output(chunk_of(rank))).from(input(chunk_of(rank)));
      add_all_gather(p, rank, own, lane);
    }
    return assemble({lane});
  }
};

}  // namespace

const Algorithm& two_shot() {
  static constinit const TwoShot kTwoShot;
  return kTwoShot;
}

}  // namespace tutti
