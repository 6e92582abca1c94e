// SPDX-License-Identifier: Apache-2.0
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
// same sources in the same order, so that all end with the same bits. Reduce, broadcast, gather and
// scatter are the star: everybody sends to the root, the root sends to everybody. In a gather and a
// scatter that is one block for each rank, so (p-1)/p n bytes at the root, the least there is.
//
// one_shot:access=remote is the broadcast and the scatter without messages of data: each rank reads
// what it needs in the root's input. one_shot:access=store is the gather: each rank stores its
// block into the root's output. Empty messages say "my buffer is there" and "I am done with it".
//
//   messages in a row       2, empty; of a broadcast the root hears one for each of 8 parts
//   bytes moved by a rank   what it receives or sends, once: the ranks share the root's work
//
// They win wherever a load or a store in a peer's memory costs less than a copy into a slot and one
// out of it. The root returns when all are done, and cannot run ahead of them.
#include "algorithms/direct.hpp"
#include "algorithms/families.hpp"

namespace tutti {
namespace {

using namespace operands;

constexpr Tag kTag = 0;
constexpr std::uint32_t kParts = 8;  // of a direct broadcast
constexpr std::string_view kRemoteName = "one_shot:access=remote";
constexpr std::string_view kStoreName = "one_shot:access=store";

// One step that sends everything to all others.
StepBuilder add_spread(Rank p, Rank rank, LaneBuilder& lane) {
  const Span all = chunk(0);
  StepBuilder spread = lane.step().from(input(all));
  for (Rank k = 1; k < p; ++k) spread.to(send((rank + k) % p, kTag, all));
  return spread;
}

// One step that reduces what all others sent and the own input, in rank order.
void add_gather(Rank p, Rank rank, LaneBuilder& lane) {
  const Span all = chunk(0);
  StepBuilder gather = lane.step().to(output(all)).finish();
  for (Rank peer = 0; peer < p; ++peer)
    gather.from(peer == rank ? input(all) : recv(peer, kTag, all));
}

Span block_of(Rank rank) { return chunk(static_cast<std::uint32_t>(rank)); }

// Every other rank's block, each in a step of its own.
RankProgram gather_program(Rank p, Rank rank, Rank root) {
  const Span mine = block_of(rank);
  LaneBuilder lane("gather");
  lane.step().to(rank == root ? output(mine) : send(root, kTag, mine)).from(input(mine));
  for (Rank k = 1; rank == root && k < p; ++k) {
    const Rank peer = (root + k) % p;
    lane.step().to(output(block_of(peer))).from(recv(peer, kTag, block_of(peer)));
  }
  return assemble(std::move(lane));
}

RankProgram scatter_program(Rank p, Rank rank, Rank root) {
  const Span mine = block_of(rank);
  LaneBuilder lane("scatter");
  for (Rank k = 1; rank == root && k < p; ++k) {
    const Rank peer = (root + k) % p;
    lane.step().to(send(peer, kTag, block_of(peer))).from(input(block_of(peer)));
  }
  lane.step().to(output(mine)).from(rank == root ? input(mine) : recv(root, kTag, mine));
  return assemble(std::move(lane));
}

// In place the root's copy would write what others read, so it copies a part once all have read it,
// while they read the next.
RankProgram direct_broadcast(Rank p, Rank rank, Rank root) {
  LaneBuilder lane("direct");
  if (rank == root)
    tell_all(p, rank, lane);
  else
    hear(root, lane);
  for (std::uint32_t part = 0; part < kParts; ++part) {
    const Span all = chunk(part);
    if (rank == root) {
      hear_all(p, rank, lane);
      lane.step().to(output(all)).from(input(all));
    } else {
      lane.step().to(output(all)).from(remote(root, BufferKind::kInput, all));
      tell(root, lane);
    }
  }
  return assemble(std::move(lane));
}

RankProgram direct_program(const Problem& problem, Rank rank) {
  const Rank p = problem.ranks, root = problem.root;
  if (problem.collective == Collective::kBroadcast) return direct_broadcast(p, rank, root);
  const Span mine = block_of(rank);
  LaneBuilder lane("direct");
  if (rank == root) {
    tell_all(p, rank, lane);
    lane.step().to(output(mine)).from(input(mine));
    hear_all(p, rank, lane);
    return assemble(std::move(lane));
  }
  hear(root, lane);
  if (problem.collective == Collective::kGather)
    lane.step().to(remote(root, BufferKind::kOutput, mine)).from(input(mine));
  else
    lane.step().to(output(mine)).from(remote(root, BufferKind::kInput, mine));
  tell(root, lane);
  return assemble(std::move(lane));
}

class OneShot final : public Algorithm {
 public:
  constexpr OneShot()
      : Algorithm("one_shot",
                  "1 step, (p-1)*n bytes sent a rank: least latency, one rounding, for small data",
                  kSource, kAccessParameter) {}
  // A form that works in its peers' memory.
  constexpr OneShot(Access access, std::string_view own_name)
      : Algorithm(own_name,
                  access == Access::kRemote
                      ? "each rank reads what it gets in the root's memory, 2 signals in a row"
                      : "each rank stores its block into the root's memory, 2 signals in a row",
                  kSource, kAccessParameter),
        access_(access) {}

  [[nodiscard]] bool supports(const Problem& problem) const override {
    using enum Collective;
    switch (access_) {
      case Access::kMessages:
        return is_among(problem.collective, {kAllReduce, kReduce, kBroadcast, kGather, kScatter});
      case Access::kRemote:
        return is_among(problem.collective, {kBroadcast, kScatter});
      case Access::kStore:
        break;
    }
    return problem.collective == Collective::kGather;
  }

  [[nodiscard]] bool in_rank_order(const Problem& problem) const override {
    using enum Collective;
    return is_among(problem.collective, {kAllReduce, kReduce});
  }

  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    using enum Collective;
    const auto others = static_cast<std::uint32_t>(problem.ranks - 1);
    const bool single =
        access_ == Access::kMessages && is_among(problem.collective, {kBroadcast, kScatter});
    const bool blocks = info_of(problem.collective).blocks;
    const std::uint32_t parts = access_ == Access::kMessages ? 1 : kParts;
    return {.algorithm = std::string(name),
            .collective = problem.collective,
            .ranks = problem.ranks,
            .root = problem.root,
            .chunks = blocks ? others + 1 : parts,
            .max_incoming = single ? std::min(others, 1U) : others,
            .max_per_pair = std::min(others, 1U)};
  }

  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    const bool rooted = problem.collective != Collective::kAllReduce;
    return {.groups = rooted ? Move::kNone : Move::kShift};
  }

  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    const Rank p = problem.ranks, root = problem.root;
    if (p == 1) return copy_alone(problem, shape(problem).chunks);
    if (access_ != Access::kMessages) return direct_program(problem, rank);
    if (problem.collective == Collective::kGather) return gather_program(p, rank, root);
    if (problem.collective == Collective::kScatter) return scatter_program(p, rank, root);
    const Span all = chunk(0);
    LaneBuilder lane("exchange");
    if (problem.collective == Collective::kBroadcast) {
      if (rank == root) {
        add_spread(p, rank, lane).to(output(all));
      } else {
        lane.step().to(output(all)).from(recv(root, kTag, all));
      }
    } else if (problem.collective == Collective::kReduce && rank != root) {
      lane.step().to(send(root, kTag, all)).from(input(all));
    } else {
      if (problem.collective == Collective::kAllReduce) add_spread(p, rank, lane);
      add_gather(p, rank, lane);
    }
    return assemble(std::move(lane));
  }

  [[nodiscard]] Result<std::unique_ptr<Algorithm>> with(
      std::span<const Parameter> given) const override {
    return form_with<OneShot>(given, kRemoteName, kStoreName,
                              [this](const Parameter& parameter) { return refuse(parameter); });
  }

 private:
  static constexpr std::string_view kSource =
      "direct exchange; Shah et al. 2025, MSCCL++ (one-shot all-reduce)";
  Access access_ = Access::kMessages;
};

}  // namespace

const Algorithm& one_shot() {
  static constinit const NeverDestroyed<OneShot> kOneShot;
  return kOneShot.value;
}

const Algorithm& one_shot_remote() {
  static constinit const NeverDestroyed<OneShot> kOneShot(Access::kRemote, kRemoteName);
  return kOneShot.value;
}

const Algorithm& one_shot_store() {
  static constinit const NeverDestroyed<OneShot> kOneShot(Access::kStore, kStoreName);
  return kOneShot.value;
}

}  // namespace tutti
