// SPDX-License-Identifier: Apache-2.0
#include "verifier_samples.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::samples {

using namespace operands;

void declare_counts(Schedule& schedule) {
  std::set<std::tuple<Rank, Rank, Tag>> connections;
  ScheduleShape& shape = schedule.shape;
  shape.max_incoming = shape.max_per_pair = 0;
  shape.max_message_chunks = 1;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (const Lane& lane : schedule.ranks[r].lanes) {
      for (const Step& step : lane.steps) {
        for (const Operand& operand : step.destinations) {
          if (operand.kind != OperandKind::kSend) continue;
          connections.emplace(static_cast<Rank>(r), operand.peer, operand.tag);
          shape.max_message_chunks = std::max(shape.max_message_chunks, operand.span.count());
        }
      }
    }
  }
  std::map<Rank, std::uint32_t> incoming;
  std::map<std::pair<Rank, Rank>, std::uint32_t> pairs;
  for (const auto& [from, to, tag] : connections) {
    shape.max_incoming = std::max(shape.max_incoming, ++incoming[to]);
    shape.max_per_pair = std::max(shape.max_per_pair, ++pairs[{from, to}]);
  }
}

Schedule staged(std::int32_t ranks, std::uint32_t versions) {
  enum : std::uint32_t { kSpread, kCollect, kReduce };
  Schedule schedule{{.algorithm = "staged",
                     .collective = Collective::kAllReduce,
                     .ranks = ranks,
                     .chunks = 1,
                     .scratch_chunks = static_cast<std::uint32_t>(ranks),
                     .scratch_versions = versions},
                    {}};
  const Span all = chunk(0);
  for (Rank rank = 0; rank < ranks; ++rank) {
    LaneBuilder spread("spread"), collect("collect"), reduce("reduce");
    StepBuilder send_all = spread.step().from(input(all));
    for (Rank k = 1; k < ranks; ++k) send_all.to(send((rank + k) % ranks, 0, all));
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      StepBuilder store = collect.step();
      store.to(scratch(chunk(static_cast<std::uint32_t>(peer)))).from(recv(peer, 0, all));
      store.after(kReduce, 0, versions);
    }
    StepBuilder add = reduce.step().to(output(all)).finish();
    for (Rank peer = 0; peer < ranks; ++peer)
      add.from(peer == rank ? input(all) : scratch(chunk(static_cast<std::uint32_t>(peer))));
    add.after(kCollect, static_cast<std::uint32_t>(ranks) - 2).after(kSpread, 0);
    schedule.ranks.push_back(assemble({spread, collect, reduce}));
  }
  declare_counts(schedule);
  return schedule;
}

Schedule packed(std::int32_t ranks, std::uint32_t versions) {
  enum : std::uint32_t { kPack, kSpread, kCollect, kReduce };
  const auto p = static_cast<std::uint32_t>(ranks);
  Schedule schedule{{.algorithm = "packed",
                     .collective = Collective::kReduceScatter,
                     .ranks = ranks,
                     .chunks = p,
                     .scratch_chunks = 2 * p,
                     .scratch_versions = versions},
                    {}};
  const auto chunk_of = [](Rank rank) { return chunk(static_cast<std::uint32_t>(rank)); };
  const auto sent = [&](Rank peer) { return scratch(chunk_of(peer)); };
  const auto received = [&](Rank peer) { return scratch(chunk_of(ranks + peer)); };
  for (Rank rank = 0; rank < ranks; ++rank) {
    LaneBuilder pack("pack"), spread("spread"), collect("collect"), reduce("reduce");
    for (std::uint32_t k = 1; k < p; ++k) {
      const Rank to = (rank + static_cast<Rank>(k)) % ranks;
      const Rank from = (rank + ranks - static_cast<Rank>(k)) % ranks;
      pack.step().to(sent(to)).from(input(chunk_of(to))).after(kSpread, k - 1, versions);
      spread.step().to(send(to, 0, chunk_of(to))).from(sent(to)).after(kPack, k - 1);
      collect.step()
          .to(received(from))
          .from(recv(from, 0, chunk_of(rank)))
          .after(kReduce, 0, versions);
    }
    StepBuilder add = reduce.step().to(output(chunk_of(rank))).finish();
    for (Rank peer = 0; peer < ranks; ++peer)
      add.from(peer == rank ? input(chunk_of(rank)) : received(peer));
    if (ranks > 1) add.after(kCollect, p - 2);
    schedule.ranks.push_back(assemble({pack, spread, collect, reduce}));
  }
  declare_counts(schedule);
  return schedule;
}

Schedule peer_read(std::int32_t ranks) {
  Schedule schedule{{.algorithm = "peer_read",
                     .collective = Collective::kAllReduce,
                     .ranks = ranks,
                     .chunks = 1,
                     .scratch_chunks = 1},
                    {}};
  const Span all = chunk(0), none{.run = 0};
  for (Rank rank = 0; rank < ranks; ++rank) {
    LaneBuilder lane("read");
    const auto tell_all = [&] {
      StepBuilder step = lane.step().from(input(none));
      for (Rank k = 1; k < ranks; ++k) step.to(send((rank + k) % ranks, 0, none));
    };
    const auto hear_all = [&] {
      StepBuilder step = lane.step().to(output(none));
      for (Rank k = 1; k < ranks; ++k) step.from(recv((rank + ranks - k) % ranks, 0, none));
    };
    tell_all();
    hear_all();
    StepBuilder add = lane.step().to(scratch(all)).finish();
    for (Rank peer = 0; peer < ranks; ++peer)
      add.from(peer == rank ? input(all) : remote(peer, BufferKind::kInput, all));
    tell_all();
    hear_all();
    lane.step().to(output(all)).from(scratch(all));
    schedule.ranks.push_back(assemble({lane}));
  }
  declare_counts(schedule);
  return schedule;
}

}  // namespace tutti::samples
