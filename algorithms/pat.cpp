// SPDX-License-Identifier: Apache-2.0
// PAT: parallel aggregated trees. As many rounds as Bruck's algorithm, the near ones with the large
// messages.
//
//   Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
//   arXiv 2506.20252, 2025 (NCCL 2.23). Here with room for all aggregated messages.
//
// The all-gather: p binomial trees, one rooted at each rank, whose messages of one round travel
// together. In rounds d = D, D/2, ..., 1 (D the largest power of two below p) rank r sends to r+d
// what it has of the chunks r, r-2d, r-4d, ...: first one chunk far, at last half of all chunks to
// its neighbour. The reduce-scatter is the same backwards: round d = 1, 2, ..., D sends to r-d the
// partial sums of the chunks r-d, r-3d, r-5d, ... For p = 6, what rank r sends in the all-gather:
//
//     d = 4    to r+4    r                 (r-8 is none)
//     d = 2    to r+2    r  r-4 is none    so r
//     d = 1    to r+1    r  r-2  r-4
//
//   messages in a row       2 ceil(log2 p)
//   bytes sent by a rank    2(p-1)/p * n, the least there is
//   reduced by a rank       (p-1)/p * n, the least as well
//   time                    2 ceil(log2 p) alpha + 2(p-1)/p n beta + (p-1)/p n gamma
//
// Wins where far links are the narrow ones: what goes far is small. Any p; no power of two is
// special. Its messages are strided, not ranges. Each chunk is completed by one rank, so all ranks
// end with the same bits. An all-reduce keeps its sums in the output; a reduce-scatter has the
// output of its own chunk alone, and keeps them in ceil(p/2) scratch rooms.
// docs/adding-an-algorithm.md tells how this page came to be.
#include <bit>

#include "algorithms/families.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

// The chunks first, first-2d, first-4d, ...: as many as are less than p-d behind.
Span strided(Rank p, Rank first, Rank distance) {
  const auto ranks = static_cast<std::uint32_t>(p), d = static_cast<std::uint32_t>(distance);
  return {.first = static_cast<std::uint32_t>((first + p) % p),
          .stride = ranks - 2 * d % ranks,
          .repetitions = (ranks - d + 2 * d - 1) / (2 * d)};
}

Rank farthest(Rank p) {
  return static_cast<Rank>(std::bit_ceil(static_cast<std::uint32_t>(p)) / 2);
}

// Says where the sums of `chunks` are between the rounds: in the output, or the sum of chunk r-2i
// in scratch room i. `behind`: by how many ranks the first chunk lies behind r.
Operand sums_of(bool in_scratch, const Span& chunks, Rank behind, Rank distance) {
  if (!in_scratch) return output(chunks);
  return scratch({.first = static_cast<std::uint32_t>(behind) / 2,
                  .stride = static_cast<std::uint32_t>(distance),
                  .repetitions = chunks.repetitions});
}

// The last round's step completes the own chunk.
StepBuilder add_reduce_scatter(Rank p, Rank rank, bool in_scratch, LaneBuilder& lane) {
  for (Rank d = 1;; d *= 2) {
    const Rank to = (rank + p - d) % p, from = (rank + d) % p;
    const Span given = strided(p, to, d), mine = strided(p, rank, d);
    const Operand sums = sums_of(in_scratch, mine, 0, d);
    lane.step()
        .to(send(to, kTag, given))
        .from(d == 1 ? input(given) : sums_of(in_scratch, given, d, d));
    // With p odd, nobody adds to chunk r+1 in the first round; the second looks for it among sums.
    if (d == 1 && p % 2 == 1) {
      const Span rest = chunk(static_cast<std::uint32_t>(from));
      lane.step().to(sums_of(in_scratch, rest, p - 1, d)).from(input(rest));
    }
    const bool last = d == farthest(p);
    StepBuilder add = lane.step().to(last ? output(mine) : sums);
    add.from(d == 1 ? input(mine) : sums).from(recv(from, kTag, mine));
    if (last) return add.finish();
  }
}

// `own` is the step that has the own chunk's value: it feeds the first round.
void add_all_gather(Rank p, Rank rank, StepBuilder own, LaneBuilder& lane) {
  for (Rank d = farthest(p); d > 0; d /= 2) {
    const Rank to = (rank + d) % p, from = (rank + p - d) % p;
    const Span given = strided(p, rank, d), theirs = strided(p, from, d);
    if (d == farthest(p)) {
      own.to(send(to, kTag, given));
    } else {
      lane.step().to(send(to, kTag, given)).from(output(given));
    }
    lane.step().to(output(theirs)).from(recv(from, kTag, theirs));
  }
}

class Pat final : public Algorithm {
 public:
  constexpr Pat()
      : Algorithm("pat",
                  "2 ceil(log2 p) steps, 2(p-1)/p*n bytes sent a rank: large messages go near",
                  "Jeaugey 2025, PAT: all-gather and reduce-scatter at scale") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduceScatter, kAllGather});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const Rank p = problem.ranks;
    const auto rounds =
        static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(static_cast<std::uint32_t>(p))));
    // A rank hears from r+d and from r-d'; these are one where d + d' = p.
    const int bits = std::popcount(static_cast<std::uint32_t>(p));
    const auto same = static_cast<std::uint32_t>(p > 1 && bits <= 2 ? bits : 0);
    const bool in_scratch = problem.collective == Collective::kReduceScatter && p > 2;
    return {
        .algorithm = std::string(name),
        .collective = problem.collective,
        .ranks = p,
        .root = problem.root,
        .chunks = static_cast<std::uint32_t>(p),
        .scratch_chunks = in_scratch ? (static_cast<std::uint32_t>(p) + 1) / 2 : 0,
        .max_incoming = problem.collective == Collective::kAllReduce ? 2 * rounds - same : rounds,
        .max_per_pair = p > 1 ? 1U : 0U,
        .max_message_chunks = std::max(1U, static_cast<std::uint32_t>(p) / 2)};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& /*problem*/) const override {
    return {.groups = Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Rank p = problem.ranks;
    if (p == 1) return copy_alone(problem, 1);
    LaneBuilder lane("pat");
    if (problem.collective == Collective::kAllGather) {
      const Span own = chunk(static_cast<std::uint32_t>(rank));
      add_all_gather(p, rank, lane.step().to(output(own)).from(input(own)), lane);
    } else {
      const bool whole = problem.collective == Collective::kAllReduce;
      const StepBuilder own = add_reduce_scatter(p, rank, !whole, lane);
      if (whole) add_all_gather(p, rank, own, lane);
    }
    return assemble(std::move(lane));
  }
};

}  // namespace

const Algorithm& pat() {
  static constinit const NeverDestroyed<Pat> kPat;
  return kPat.value;
}

}  // namespace tutti
