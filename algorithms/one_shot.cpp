// One-shot: everybody sends everything to everybody. The all-reduce of one message latency.
//
//   The "direct" or "flat" exchange; on GPUs over peer memory it is the one-shot all-reduce of
//   TensorRT-LLM and MSCCL++ (Shah et al. 2025, MSCCL++: rethinking GPU communication
//   abstractions). For its place among the latency-optimal ones see Thakur, Rabenseifner, Gropp
//   2005, Optimization of collective communication operations in MPICH.
//
// Two steps. First one load of the input feeds p-1 sends: to rank+1 first, then rank+2, ..., so
// that no receiver is everybody's first. Then one step reduces p sources at once, in the order
// of the ranks and in one rounding (16-bit types accumulate in fp32 within a step).
//
//   messages sent by a rank   p-1, each of n bytes, all in one step
//   bytes sent by a rank      (p-1) n, and as many received: incast
//   reduced by a rank         (p-1) n
//   time                      alpha + (p-1) n beta + (p-1) n gamma
//
// Wins for small data, where alpha is all there is, and is the most exact: rank order, one
// rounding. Loses as soon as bytes count. Any p; no power of two is special. Every rank reduces the
// same sources in the same order, so that all end with the same bits.
#include "algorithms/algorithm.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;

bool supports(const Problem& problem) { return problem.collective == Collective::kAllReduce; }

ScheduleShape shape(const Problem& problem) {
  return {.algorithm = "one_shot",
          .collective = problem.collective,
          .ranks = problem.ranks,
          .root = problem.root,
          .chunks = 1,
          .max_incoming = static_cast<std::uint32_t>(problem.ranks - 1),
          .max_per_pair = problem.ranks > 1 ? 1U : 0U};
}

RankProgram program(const Problem& problem, Rank rank) {
  const Rank p = problem.ranks;
  if (p == 1) return copy_alone(1);
  const Span all = chunk(0);
  LaneBuilder lane("exchange");
  StepBuilder spread = lane.step().from(input(all));
  for (Rank k = 1; k < p; ++k) spread.to(send((rank + k) % p, kTag, all));
  StepBuilder gather = lane.step().to(output(all)).finish();
  for (Rank peer = 0; peer < p; ++peer)
    gather.from(peer == rank ? input(all) : recv(peer, kTag, all));
  return assemble({lane});
}

}  // namespace

extern const Algorithm kOneShot;
constinit const Algorithm kOneShot{
    .name = "one_shot",
    .summary = "1 step, (p-1)*n bytes sent a rank: least latency, one rounding, for small data",
    .source = "direct exchange; Shah et al. 2025, MSCCL++ (one-shot all-reduce)",
    .supports = supports,
    .shape = shape,
    .program = program};

}  // namespace tutti
