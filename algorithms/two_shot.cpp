// SPDX-License-Identifier: Apache-2.0
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
//
// An all-to-all is one such exchange: every rank sends each other one its block, in one message,
// and copies its own. All messages leave before the first is received, so that it may be in place.
//
//   messages in a row       1, of n/p bytes; p-1 sent by a rank
//   bytes sent by a rank    (p-1)/p * n, the least there is
//
// two_shot:access=remote sends no data: each rank reads its chunk in all inputs where they lie, and
// afterwards the other chunks in their owners' outputs. Empty messages carry the order: "my input
// is there", "my chunk is complete, and I have read yours", "I have read all that I need".
//
//   messages in a row       3, empty; 3(p-1) sent by a rank
//   bytes read by a rank    2(p-1)/p * n of other ranks' memory, and copied nowhere on the way
//
// Wins wherever reading a peer's memory costs less than a copy into a slot and one out of it.
//
// two_shot:access=store sends no data either: each rank loads its chunk from all inputs and stores
// the sum into all outputs, in one step. Empty messages say "my input is there, my output may be
// written" and "all that I store has been stored". In place nobody but its rank touches a chunk in
// between, so no third message is needed.
//
//   messages in a row       2, empty; 2(p-1) sent by a rank
//   bytes moved by a rank   2n: n loaded, n stored; of these 2(p-1)/p * n in other ranks' memory
//
// Wins where a store into a peer's memory costs no more than a load: the form that loads writes n
// and reads 2n - n/p. A reduce-scatter has nothing to store into peers: access=remote is that form.
// A reduce stores the sum into the root's output alone: all ranks share the root's work.
//
// In an all-to-all by access=remote each rank reads the blocks that are for it in all inputs. In
// place it would write them over blocks that its peers have yet to read, so the schedule keeps
// input and output apart.
//
//   messages in a row       2, empty; 2(p-1) sent by a rank
//   bytes read by a rank    (p-1)/p * n of other ranks' memory, and copied nowhere on the way
#include <fmt/core.h>

#include "algorithms/direct.hpp"
#include "algorithms/families.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;
constexpr std::string_view kRemoteName = "two_shot:access=remote";
constexpr std::string_view kStoreName = "two_shot:access=store";

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

RankProgram all_to_all_program(Rank p, Rank rank) {
  LaneBuilder lane("exchange");
  for (Rank k = 1; k < p; ++k) {
    const Rank to = (rank + k) % p;
    lane.step().to(send(to, kTag, chunk_of(to))).from(input(chunk_of(to)));
  }
  lane.step().to(output(chunk_of(rank))).from(input(chunk_of(rank)));
  for (Rank k = 1; k < p; ++k) {
    const Rank from = (rank + p - k) % p;
    lane.step().to(output(chunk_of(from))).from(recv(from, kTag, chunk_of(from)));
  }
  return assemble(std::move(lane));
}

// The own chunk in all inputs; the caller says where the sum goes, or where else.
StepBuilder reduce_from_all(Rank p, Rank rank, Operand to, LaneBuilder& lane) {
  const Span mine = chunk_of(rank);
  StepBuilder gather = lane.step().to(to).finish();
  for (Rank peer = 0; peer < p; ++peer)
    gather.from(peer == rank ? input(mine) : remote(peer, BufferKind::kInput, mine));
  return gather;
}

void add_remote_reduce_scatter(Rank p, Rank rank, LaneBuilder& lane) {
  tell_all(p, rank, lane);
  hear_all(p, rank, lane);
  reduce_from_all(p, rank, output(chunk_of(rank)), lane);
}

// After a tell_all that says that the own chunk is complete. In place the output is the input: the
// same message says that its sender has read its chunk there.
void add_remote_all_gather(Rank p, Rank rank, LaneBuilder& lane) {
  for (Rank k = 1; k < p; ++k) {
    const Rank peer = (rank + k) % p;
    hear(peer, lane);
    const Span theirs = chunk_of(peer);
    lane.step().to(output(theirs)).from(remote(peer, BufferKind::kOutput, theirs));
  }
  tell_all(p, rank, lane);
}

// The block at the rank's own place in each input.
void add_remote_all_to_all(Rank p, Rank rank, LaneBuilder& lane) {
  tell_all(p, rank, lane);
  lane.step().to(output(chunk_of(rank))).from(input(chunk_of(rank)));
  for (Rank k = 1; k < p; ++k) {
    const Rank peer = (rank + k) % p;
    hear(peer, lane);
    lane.step().to(output(chunk_of(peer))).from(remote(peer, BufferKind::kInput, chunk_of(rank)));
  }
}

RankProgram remote_program(const Problem& problem, Rank rank) {
  const Rank p = problem.ranks;
  LaneBuilder lane("direct");
  if (problem.collective == Collective::kAllToAll)
    add_remote_all_to_all(p, rank, lane);
  else if (problem.collective == Collective::kAllGather)
    lane.step().to(output(chunk_of(rank))).from(input(chunk_of(rank)));
  else
    add_remote_reduce_scatter(p, rank, lane);
  tell_all(p, rank, lane);
  if (is_among(problem.collective, {Collective::kAllReduce, Collective::kAllGather}))
    add_remote_all_gather(p, rank, lane);
  hear_all(p, rank, lane);
  return assemble(std::move(lane));
}

// The step that stores the own chunk wherever it belongs.
void store_own(const Problem& problem, Rank rank, LaneBuilder& lane) {
  const Rank p = problem.ranks, root = problem.root;
  const Span mine = chunk_of(rank);
  if (problem.collective == Collective::kReduce) {
    const bool here = rank == root;
    reduce_from_all(p, rank, here ? output(mine) : remote(root, BufferKind::kOutput, mine), lane);
    return;
  }
  StepBuilder own = problem.collective == Collective::kAllGather
                        ? lane.step().to(output(mine)).from(input(mine))
                        : reduce_from_all(p, rank, output(mine), lane);
  for (Rank k = 1; k < p; ++k) own.to(remote((rank + k) % p, BufferKind::kOutput, mine));
}

RankProgram store_program(const Problem& problem, Rank rank) {
  LaneBuilder lane("direct");
  tell_all(problem.ranks, rank, lane);
  hear_all(problem.ranks, rank, lane);
  store_own(problem, rank, lane);
  tell_all(problem.ranks, rank, lane);
  hear_all(problem.ranks, rank, lane);
  return assemble(std::move(lane));
}

class TwoShot final : public Algorithm {
 public:
  constexpr TwoShot()
      : Algorithm("two_shot",
                  "2 steps, 2(p-1)/p*n bytes sent a rank in 2(p-1) messages: small to middle data",
                  kSource, kAccessParameter) {}
  // A form that works in its peers' memory.
  constexpr TwoShot(Access access, std::string_view own_name)
      : Algorithm(own_name,
                  access == Access::kRemote
                      ? "2(p-1)/p*n bytes read a rank where they lie, 3 signals in a row"
                      : "n bytes read and n stored a rank where they lie, 2 signals in a row",
                  kSource, kAccessParameter),
        access_(access) {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    switch (access_) {
      case Access::kMessages:
      case Access::kRemote:
        return is_among(problem.collective, {kAllReduce, kReduceScatter, kAllGather, kAllToAll});
      case Access::kStore:
        break;
    }
    return is_among(problem.collective, {kAllReduce, kAllGather, kReduce});
  }

  [[nodiscard]] bool in_rank_order(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduceScatter, kReduce});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    ScheduleShape shape = pairwise_shape(name, problem);
    shape.apart = access_ == Access::kRemote && problem.collective == Collective::kAllToAll &&
                  problem.ranks > 1;
    return shape;
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    return {.groups = info_of(problem.collective).rooted ? Move::kNone : Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Rank p = problem.ranks;
    if (p == 1) return copy_alone(problem, 1);
    if (access_ == Access::kRemote) return remote_program(problem, rank);
    if (access_ == Access::kStore) return store_program(problem, rank);
    if (problem.collective == Collective::kAllToAll) return all_to_all_program(p, rank);
    LaneBuilder lane("exchange");
    if (problem.collective == Collective::kReduceScatter) {
      add_reduce_scatter(p, rank, lane);
    } else if (problem.collective == Collective::kAllReduce) {
      add_all_gather(p, rank, add_reduce_scatter(p, rank, lane), lane);
    } else {
      StepBuilder own = lane.step().to(output(chunk_of(rank))).from(input(chunk_of(rank)));
      add_all_gather(p, rank, own, lane);
    }
    return assemble(std::move(lane));
  }

  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override {
    return form_with<TwoShot>(given, kRemoteName, kStoreName,
                              [this](const Parameter& parameter) { return refuse(parameter); });
  }

 private:
  static constexpr std::string_view kSource =
      "direct exchange; Shah et al. 2025, MSCCL++ (two-shot all-reduce)";
  Access access_ = Access::kMessages;
};

}  // namespace

const Algorithm& two_shot() {
  static constinit const NeverDestroyed<TwoShot> kTwoShot;
  return kTwoShot.value;
}

const Algorithm& two_shot_remote() {
  static constinit const NeverDestroyed<TwoShot> kTwoShot(Access::kRemote, kRemoteName);
  return kTwoShot.value;
}

const Algorithm& two_shot_store() {
  static constinit const NeverDestroyed<TwoShot> kTwoShot(Access::kStore, kStoreName);
  return kTwoShot.value;
}

}  // namespace tutti
