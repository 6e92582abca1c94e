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
#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

bool supports(const Problem& problem) { return problem.collective == Collective::kAllReduce; }

ScheduleShape shape(const Problem& problem) {
  const std::uint32_t connections = problem.ranks > 1 ? 1 : 0;
  return {.algorithm = "ring",
          .collective = problem.collective,
          .ranks = problem.ranks,
          .root = problem.root,
          .chunks = static_cast<std::uint32_t>(problem.ranks),
          .max_incoming = connections,
          .max_per_pair = connections};
}

RankProgram program(const Problem& problem, Rank rank) {
  const Rank p = problem.ranks;
  if (p == 1) return copy_alone(1);
  const Rank next = (rank + 1) % p, previous = (rank + p - 1) % p;
  // The chunk `behind` places behind this rank: where in the ring it was that many messages ago.
  const auto behind = [&](Rank places) {
    return chunk(static_cast<std::uint32_t>((rank + 2 * p - places) % p));
  };
  LaneBuilder ring("ring");
  // Reduce-scatter: message k brings the chunk that started k places behind.
  ring.step().to(send(next, kTag, behind(0))).from(input(behind(0)));
  for (Rank k = 1; k < p - 1; ++k) {
    const Span c = behind(k);
    ring.step().to(send(next, kTag, c)).from(recv(previous, kTag, c)).from(input(c));
  }
  const Span mine = behind(p - 1);
  ring.step()
      .to(output(mine))
      .to(send(next, kTag, mine))
      .from(recv(previous, kTag, mine))
      .from(input(mine))
      .finish();
  // All-gather: the complete chunks follow, that of the previous rank first.
  for (Rank k = p; k < 2 * p - 2; ++k) {
    const Span c = behind(k);
    ring.step().to(output(c)).to(send(next, kTag, c)).from(recv(previous, kTag, c));
  }
  const Span last = behind(2 * p - 2);
  ring.step().to(output(last)).from(recv(previous, kTag, last));
  return assemble({ring});
}

}  // namespace

extern const Algorithm kRing;
constinit const Algorithm kRing{
    .name = "ring",
    .summary = "2(p-1) steps, 2(p-1)/p*n bytes sent a rank: least bytes, wins for large data",
    .source = "Patarasuk, Yuan 2009, Bandwidth optimal all-reduce algorithms",
    .supports = supports,
    .shape = shape,
    .program = program};

}  // namespace tutti
