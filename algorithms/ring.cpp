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
//
// ring:exchange=neighbours speaks to both neighbours in turn, and so needs half as many messages in
// a row; p is even.
//
//   Chen, Zhang, Yuan: Performance evaluation of allgather algorithms on terascale Linux cluster
//   with fast Ethernet, HPC Asia 2005 (neighbor exchange).
//
// Ranks 2q and 2q+1 are the pair q. In the first round of an all-gather they exchange their chunks.
// Then the even ranks exchange with the rank before, the odd ones with the rank after; next again
// within the pair, and so on in turn. Each message has the two chunks of a pair: first the own
// pair's, then always what the round before brought. For p = 6, the pairs that a rank receives:
//
//     round      1     2     3
//     rank 0    own    2     1
//     rank 1    own    1     2
//     rank 2    own    0     2
//     rank 3    own    2     0
//     rank 4    own    1     0
//     rank 5    own    0     1
//
// A reduce-scatter is the same backwards: a rank adds its input to the sums of a pair that come and
// passes them on, where the all-gather kept a pair and passed it on. An all-reduce is both.
//
//   messages in a row         p/2 each, of two chunks; p for the all-reduce
//   bytes sent by a rank      (p-1)/p * n each, and reduced as much: the least, as above
//   scratch of a rank         two chunks in a reduce-scatter: the own pair's sums
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

// A rank's rounds of an exchange with both neighbours.
class Pairs {
 public:
  explicit Pairs(const Place& at) : at_(at), even_(at.rank % 2 == 0) {}

  // The all-gather's, from 0 on.
  [[nodiscard]] Rank rounds() const { return at_.ranks / 2; }
  [[nodiscard]] Rank partner() const { return at_.rank ^ 1; }
  [[nodiscard]] Rank peer(Rank round) const {
    if (round % 2 == 0) return partner();
    return even_ ? at_.previous() : at_.next();
  }
  // The pair that the all-gather receives in a round; in the first it is the own one. Even ranks
  // hear of the pairs before and after their own in turn, odd ones the other way around.
  [[nodiscard]] Span received(Rank round) const {
    const Rank away = (round + 1) / 2, pairs = rounds();
    const bool before = (round % 2 == 1) == even_;
    const Rank pair = (at_.rank / 2 + (before ? pairs - away : away)) % pairs;
    return chunks(2 * static_cast<std::uint32_t>(pair), 2);
  }
  [[nodiscard]] Span own() const { return chunk(static_cast<std::uint32_t>(at_.rank)); }
  [[nodiscard]] Span partners() const { return chunk(static_cast<std::uint32_t>(partner())); }

 private:
  Place at_;
  bool even_;
};

// The caller's `own` is the step that has the own chunk's value, in the output.
void add_exchange_all_gather(const Pairs& pairs, StepBuilder own, LaneBuilder& lane) {
  own.to(send(pairs.partner(), kTag, pairs.own()));
  lane.step().to(output(pairs.partners())).from(recv(pairs.partner(), kTag, pairs.partners()));
  if (pairs.rounds() == 1) return;
  lane.step().to(send(pairs.peer(1), kTag, pairs.received(0))).from(output(pairs.received(0)));
  for (Rank round = 1; round < pairs.rounds(); ++round) {
    const Span pair = pairs.received(round);
    StepBuilder keep = lane.step().to(output(pair)).from(recv(pairs.peer(round), kTag, pair));
    if (round + 1 < pairs.rounds()) keep.to(send(pairs.peer(round + 1), kTag, pair));
  }
}

// Gives the step that completes the own chunk. `sums`: of the two chunks of the own pair.
StepBuilder add_exchange_reduce_scatter(const Pairs& pairs, bool in_scratch, LaneBuilder& lane) {
  const Span pair = pairs.received(0);
  const auto sum = [&](const Span& span) {
    if (pairs.rounds() == 1) return input(span);
    return in_scratch ? scratch({.first = span.first - pair.first, .run = span.run}) : output(span);
  };
  for (Rank round = pairs.rounds(); round-- > 1;) {
    const Span given = pairs.received(round);
    StepBuilder give = lane.step().to(send(pairs.peer(round), kTag, given)).from(input(given));
    if (round + 1 < pairs.rounds()) give.from(recv(pairs.peer(round + 1), kTag, given));
  }
  if (pairs.rounds() > 1)
    lane.step().to(sum(pair)).from(input(pair)).from(recv(pairs.peer(1), kTag, pair));
  lane.step().to(send(pairs.partner(), kTag, pairs.partners())).from(sum(pairs.partners()));
  return lane.step()
      .to(output(pairs.own()))
      .from(sum(pairs.own()))
      .from(recv(pairs.partner(), kTag, pairs.own()))
      .finish();
}

RankProgram exchange_program(const Problem& problem, const Place& at) {
  const Pairs pairs(at);
  LaneBuilder lane("exchange");
  if (problem.collective == Collective::kAllGather) {
    const StepBuilder own = lane.step().to(output(pairs.own())).from(input(pairs.own()));
    add_exchange_all_gather(pairs, own, lane);
    return assemble(std::move(lane));
  }
  const bool alone = problem.collective == Collective::kReduceScatter;
  const StepBuilder own = add_exchange_reduce_scatter(pairs, alone, lane);
  if (!alone) add_exchange_all_gather(pairs, own, lane);
  return assemble(std::move(lane));
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
                  "Patarasuk, Yuan 2009, Bandwidth optimal all-reduce algorithms",
                  "exchange=next|neighbours") {}
  // The form that speaks to both neighbours.
  explicit constexpr Ring(bool neighbours) : Ring() { neighbours_ = neighbours; }

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    if (neighbours_)
      return (problem.ranks == 1 || problem.ranks % 2 == 0) &&
             is_among(problem.collective, {kAllReduce, kReduceScatter, kAllGather});
    return is_among(problem.collective,
                    {kAllReduce, kReduceScatter, kAllGather, kReduce, kBroadcast});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    const std::uint32_t connections = problem.ranks > 1 ? 1 : 0;
    const bool both = neighbours_ && problem.ranks > 2;
    const bool in_scratch = both && problem.collective == Collective::kReduceScatter;
    const bool rooted = is_among(problem.collective, {Collective::kReduce, Collective::kBroadcast});
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = rooted ? 1U : static_cast<std::uint32_t>(problem.ranks),
            .scratch_chunks = in_scratch ? 2U : 0U,
            .max_incoming = both ? 2 : connections,
            .max_per_pair = connections,
            .max_message_chunks = both ? 2U : 1U};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    const bool rooted = is_among(problem.collective, {Collective::kReduce, Collective::kBroadcast});
    if (neighbours_ && problem.ranks > 2) return {.groups = Move::kShift, .group = 2};
    return {.groups = rooted ? Move::kNone : Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Place at{problem.ranks, rank};
    if (at.ranks == 1) return copy_alone(problem, 1);
    if (neighbours_) return exchange_program(problem, at);
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

  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override {
    bool neighbours = false;
    for (const Parameter& parameter : given) {
      neighbours = parameter.value == "neighbours";
      if (parameter.key != "exchange" || (!neighbours && parameter.value != "next"))
        return refuse(parameter);
    }
    return std::make_unique<Ring>(neighbours);
  }

 private:
  bool neighbours_ = false;
};

}  // namespace

const Algorithm& ring() {
  static constinit const NeverDestroyed<Ring> kRing;
  return kRing.value;
}

}  // namespace tutti
