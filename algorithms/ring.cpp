// SPDX-License-Identifier: Apache-2.0
// Ring: the bandwidth-optimal all-reduce on any number of ranks.
//
//   Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations,
//   J. Parallel Distrib. Comput. 69(2), 2009.
//
// The data is cut into p chunks, and rank r speaks only to r+1 and hears only r-1 (mod p).
//
//   Reduce-scatter. Chunk c starts at rank c and travels once around. Each rank adds its own
//   contribution as the chunk passes, so that it is complete at rank c-1, after p-1 messages.
//   All-gather. The complete chunk goes on around the ring, p-1 messages more; every rank keeps it.
//
// For p = 4, the chunk that rank r receives in each message (R: reduce, =: complete, C: copy):
//
//     message    1     2     3     4     5     6
//     rank 0    R3    R2    =1    C0    C3    C2
//     rank 1    R0    R3    =2    C1    C0    C3
//     rank 2    R1    R0    =3    C2    C1    C0
//     rank 3    R2    R1    =0    C3    C2    C1
//
// Receive, reduce, store and send of one chunk are one step: each byte is read and written once.
// Each half is also a collective of its own: there chunk c ends at, or comes from, rank c. Reduce
// and broadcast go along the ring once, from the rank after the root to the root, or from the root
// on.
//
//   messages sent by a rank   2(p-1), each of n/p bytes
//   bytes sent by a rank      2(p-1)/p * n: the least any all-reduce can send
//   reduced by a rank         (p-1)/p * n: the least as well
//   time                      2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma
//
// Wins for large data and on rings of links; loses where alpha counts, as its 2(p-1) messages come
// one after the other. Any p; no power of two is special. With p = 2 it is one exchange of halves
// each way and a second one back. The order of the sum of chunk c is c, c+1, ..., c-1: the same on
// every rank, because only rank c-1 completes it.
#include "algorithms/families.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

// A rank's place in the ring.
struct Place {
  Rank ranks, rank;

  [[nodiscard]] Rank next() const { return (rank + 1) % ranks; }
  [[nodiscard]] Rank previous() const { return (rank + ranks - 1) % ranks; }
  // The chunk that `places` ranks before this one is numbered by.
  [[nodiscard]] Span behind(Rank places) const {
    return chunk(static_cast<std::uint32_t>((rank + 2 * ranks - places) % ranks));
  }
};

// Message k brings the chunk `first` + k behind; all but the last go on. The caller finishes the
// step that completes the last chunk, that of `first` + p-1.
StepBuilder add_reduce_scatter(const Place& at, Rank first, LaneBuilder& ring) {
  const Rank p = at.ranks;
  ring.step().to(send(at.next(), kTag, at.behind(first))).from(input(at.behind(first)));
  for (Rank k = 1; k < p - 1; ++k) {
    const Span c = at.behind(first + k);
    ring.step().to(send(at.next(), kTag, c)).from(recv(at.previous(), kTag, c)).from(input(c));
  }
  const Span mine = at.behind(first + p - 1);
  return ring.step()
      .to(output(mine))
      .from(recv(at.previous(), kTag, mine))
      .from(input(mine))
      .finish();
}

// The complete chunks follow, that of the previous rank, `first` behind, first.
void add_all_gather(const Place& at, Rank first, LaneBuilder& ring) {
  const Rank p = at.ranks;
  for (Rank k = 0; k < p - 2; ++k) {
    const Span c = at.behind(first + k);
    ring.step().to(output(c)).to(send(at.next(), kTag, c)).from(recv(at.previous(), kTag, c));
  }
  const Span last = at.behind(first + p - 2);
  ring.step().to(output(last)).from(recv(at.previous(), kTag, last));
}

void add_reduce(const Place& at, Rank root, LaneBuilder& ring) {
  const Span all = chunk(0);
  StepBuilder step = ring.step();
  if (at.rank == root) {
    step.to(output(all)).finish();
  } else {
    step.to(send(at.next(), kTag, all));
  }
  if (at.previous() != root) step.from(recv(at.previous(), kTag, all));
  step.from(input(all));
}

void add_broadcast(const Place& at, Rank root, LaneBuilder& ring) {
  const Span all = chunk(0);
  StepBuilder step = ring.step().to(output(all));
  if (at.next() != root) step.to(send(at.next(), kTag, all));
  step.from(at.rank == root ? input(all) : recv(at.previous(), kTag, all));
}

class Ring final : public Algorithm {
 public:
  constexpr Ring()
      : Algorithm("ring",
                  "2(p-1) steps, 2(p-1)/p*n bytes sent a rank: least bytes, wins for large data",
                  "Patarasuk, Yuan 2009, Bandwidth optimal all-reduce algorithms") {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective,
                    {kAllReduce, kReduceScatter, kAllGather, kReduce, kBroadcast});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const std::uint32_t connections = problem.ranks > 1 ? 1 : 0;
    const bool rooted = is_among(problem.collective, {Collective::kReduce, Collective::kBroadcast});
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = rooted ? 1U : static_cast<std::uint32_t>(problem.ranks),
            .max_incoming = connections,
            .max_per_pair = connections};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    const bool rooted = is_among(problem.collective, {Collective::kReduce, Collective::kBroadcast});
    return {.groups = rooted ? Move::kNone : Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Place at{problem.ranks, rank};
    if (at.ranks == 1) return copy_alone(problem, 1);
    LaneBuilder ring("ring");
    switch (problem.collective) {
      case Collective::kReduceScatter:
        add_reduce_scatter(at, 1, ring);
        break;
      case Collective::kAllGather:
        ring.step()
            .to(output(at.behind(0)))
            .to(send(at.next(), kTag, at.behind(0)))
            .from(input(at.behind(0)));
        add_all_gather(at, 1, ring);
        break;
      case Collective::kReduce:
        add_reduce(at, problem.root, ring);
        break;
      case Collective::kBroadcast:
        add_broadcast(at, problem.root, ring);
        break;
      default:
        add_reduce_scatter(at, 0, ring).to(send(at.next(), kTag, at.behind(at.ranks - 1)));
        add_all_gather(at, at.ranks, ring);
    }
    return assemble(std::move(ring));
  }
};

}  // namespace

const Algorithm& ring() {
  static constinit const NeverDestroyed<Ring> kRing;
  return kRing.value;
}

}  // namespace tutti
