// SPDX-License-Identifier: Apache-2.0
// The oracle of count_schedule: counts off the programs of all ranks, one step after the other.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "model/counts.hpp"
#include "schedule/schedule.hpp"

namespace tutti::whole {

struct PathLength {
  std::uint32_t messages = 0;
  std::uint64_t steps = 0;
  std::uint64_t operands = 0;
  std::uint64_t remotes = 0;
  std::uint64_t transfers = 0;
  std::uint32_t far_messages = 0;
  std::uint64_t far_chunks = 0;
  void join(const PathLength& other) {
    messages = std::max(messages, other.messages);
    steps = std::max(steps, other.steps);
    operands = std::max(operands, other.operands);
    remotes = std::max(remotes, other.remotes);
    transfers = std::max(transfers, other.transfers);
    far_messages = std::max(far_messages, other.far_messages);
    far_chunks = std::max(far_chunks, other.far_chunks);
  }
  [[nodiscard]] PathLength since(const PathLength& start) const {
    return {messages - start.messages,    steps - start.steps,
            operands - start.operands,    remotes - start.remotes,
            transfers - start.transfers,  far_messages - start.far_messages,
            far_chunks - start.far_chunks};
  }
};

inline std::uint64_t chunk_operands(const Step& step) {
  std::uint64_t count = 0;
  for (const Operand& operand : step.destinations) count += operand.span.count();
  for (const Operand& operand : step.sources) count += operand.span.count();
  return count;
}

inline std::uint64_t operands_of(const Step& step, OperandKind kind) {
  std::uint64_t count = 0;
  for (const auto* side : {&step.destinations, &step.sources})
    for (const Operand& operand : *side)
      if (operand.kind == kind) count += operand.span.count();
  return count;
}

inline std::uint64_t remote_operands(const Step& step) {
  return operands_of(step, OperandKind::kRemote);
}

inline std::uint64_t stores_to_peers(const Step& step) {
  std::uint64_t count = 0;
  for (const Operand& operand : step.destinations)
    if (operand.kind == OperandKind::kRemote) count += operand.span.count();
  return count;
}

inline std::uint64_t message_operands(const Step& step) {
  return operands_of(step, OperandKind::kSend) + operands_of(step, OperandKind::kRecv);
}

inline bool are_far(std::span<const std::int32_t> hosts, Rank a, Rank b) {
  return !hosts.empty() && hosts[static_cast<std::size_t>(a)] != hosts[static_cast<std::size_t>(b)];
}

// What a rank sends to other hosts, and receives from them.
struct FarTransfers {
  std::uint64_t messages = 0, chunks = 0;
  void add(std::span<const std::int32_t> hosts, Rank rank, std::span<const Operand> operands) {
    for (const Operand& operand : operands) {
      if (operand.kind != OperandKind::kSend && operand.kind != OperandKind::kRecv) continue;
      if (!are_far(hosts, rank, operand.peer)) continue;
      messages += 1;
      chunks += operand.span.count();
    }
  }
};

// The chunks that the busiest interface takes in one direction.
inline std::uint64_t busiest_host(const Schedule& schedule, std::span<const std::int32_t> hosts) {
  if (hosts.empty()) return 0;
  std::map<std::int32_t, std::uint64_t> sent, received;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Lane& lane : schedule.ranks[rank].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& operand : step.destinations) {
          if (operand.kind != OperandKind::kSend) continue;
          if (!are_far(hosts, static_cast<Rank>(rank), operand.peer)) continue;
          sent[hosts[rank]] += operand.span.count();
          received[hosts[static_cast<std::size_t>(operand.peer)]] += operand.span.count();
        }
  std::uint64_t most = 0;
  for (const auto& side : {sent, received})
    for (const auto& [host, chunks] : side) most = std::max(most, chunks);
  return most;
}

// The most messages, and chunks, that one connection to another host carries.
inline FarTransfers busiest_connection(const Schedule& schedule,
                                       std::span<const std::int32_t> hosts) {
  std::map<std::tuple<Rank, Rank, Tag>, FarTransfers> connections;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Lane& lane : schedule.ranks[rank].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.destinations)
          if (to.kind == OperandKind::kSend)
            connections[{static_cast<Rank>(rank), to.peer, to.tag}].add(
                hosts, static_cast<Rank>(rank), std::span(&to, 1));
  FarTransfers most;
  for (const auto& [connection, own] : connections) {
    most.messages = std::max(most.messages, own.messages);
    most.chunks = std::max(most.chunks, own.chunks);
  }
  return most;
}

// Of one connection: the most.
inline std::uint32_t most_messages(const Schedule& schedule) {
  std::map<std::tuple<std::size_t, Rank, Tag>, std::uint32_t> sent;
  std::uint32_t most = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Lane& lane : schedule.ranks[rank].lanes)
      for (const Step& step : lane.steps)
        for (const Operand& to : step.destinations)
          if (to.kind == OperandKind::kSend) most = std::max(most, ++sent[{rank, to.peer, to.tag}]);
  return most;
}

// Does every rank receive from whom it sends to?
inline bool is_mutual(const Schedule& schedule) {
  for (const RankProgram& program : schedule.ranks) {
    std::set<Rank> to, from;
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps) {
        for (const Operand& operand : step.destinations)
          if (operand.kind == OperandKind::kSend) to.insert(operand.peer);
        for (const Operand& operand : step.sources)
          if (operand.kind == OperandKind::kRecv) from.insert(operand.peer);
      }
    if (!std::ranges::includes(from, to)) return false;
  }
  return true;
}

// Runs one slice in dependency order, carrying the longest paths along messages, waits and
// lane order.
class PathWalk {
 public:
  PathWalk(const Schedule& schedule, std::span<const std::int32_t> hosts)
      : schedule_(schedule),
        hosts_(hosts),
        ends_(schedule.ranks.size()),
        starts_(schedule.ranks.size()) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      ends_[r].resize(schedule.ranks[r].lanes.size());
      starts_[r].resize(schedule.ranks[r].lanes.size());
      make_inbox(schedule.ranks[r]);
    }
  }

  // The longest path of all.
  PathLength run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ends_.size(); ++r)
        for (std::size_t l = 0; l < ends_[r].size(); ++l)
          while (fire_next(static_cast<Rank>(r), l)) moved = true;
    }
    return longest_;
  }

  // After run().
  [[nodiscard]] PathLength longest_lane() const {
    PathLength longest;
    for (std::size_t r = 0; r < ends_.size(); ++r)
      for (std::size_t l = 0; l < ends_[r].size(); ++l)
        if (starts_[r][l]) longest.join(ends_[r][l].back().since(*starts_[r][l]));
    return longest;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Message {
    PathLength path;
    std::uint32_t next = kNone;  // of the same queue
  };
  // Messages on their way, of one (peer, tag) to one rank.
  struct Queue {
    Rank source;
    Tag tag;
    std::uint32_t first = kNone, last = kNone;  // `last` is of no meaning where `first` is kNone
    [[nodiscard]] std::pair<Rank, Tag> key() const { return {source, tag}; }
  };

  void make_inbox(const RankProgram& program) {
    std::vector<Queue>& inbox = inboxes_.emplace_back();
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps)
        for (const Operand& source : step.sources)
          if (source.kind == OperandKind::kRecv) inbox.push_back({source.peer, source.tag});
    std::ranges::sort(inbox, {}, &Queue::key);
    const auto same = [](const Queue& a, const Queue& b) { return a.key() == b.key(); };
    inbox.erase(std::unique(inbox.begin(), inbox.end(), same), inbox.end());
  }

  // Null: nobody receives it.
  [[nodiscard]] Queue* queue_of(Rank source, Rank destination, Tag tag) {
    std::vector<Queue>& inbox = inboxes_[static_cast<std::size_t>(destination)];
    const auto found = std::ranges::lower_bound(inbox, std::pair(source, tag), {}, &Queue::key);
    return found != inbox.end() && found->key() == std::pair(source, tag) ? &*found : nullptr;
  }

  void append(Queue* queue, const PathLength& path) {
    if (queue == nullptr) return;
    const auto number = static_cast<std::uint32_t>(messages_.size());
    messages_.push_back({path});
    (queue->first == kNone ? queue->first : messages_[queue->last].next) = number;
    queue->last = number;
  }

  // By another lane, of this rank or of others.
  [[nodiscard]] bool is_waited_for(std::size_t rank, std::size_t lane, const Step& step,
                                   std::size_t number) const {
    const auto sends = [](const Operand& operand) { return operand.kind == OperandKind::kSend; };
    if (std::ranges::any_of(step.destinations, sends)) return true;
    for (const Lane& other : schedule_.ranks[rank].lanes)
      for (const Step& one : other.steps)
        for (const Wait& wait : one.waits)
          if (wait.lane == lane && wait.step == number) return true;
    return false;
  }

  bool fire_next(Rank rank, std::size_t lane) {
    const auto r = static_cast<std::size_t>(rank);
    const Lane& program = schedule_.ranks[r].lanes[lane];
    std::vector<PathLength>& done = ends_[r][lane];
    if (done.size() == program.steps.size()) return false;
    const Step& step = program.steps[done.size()];
    PathLength start = done.empty() ? PathLength{} : done.back();
    for (const Wait& wait : step.waits) {
      if (wait.back > 0) continue;
      if (ends_[r][wait.lane].size() <= wait.step) return false;
      start.join(ends_[r][wait.lane][wait.step]);
    }
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        const Queue* const queue = queue_of(source.peer, rank, source.tag);
        if (queue->first == kNone) return false;
        start.join(messages_[queue->first].path);
      }
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        Queue* const queue = queue_of(source.peer, rank, source.tag);
        queue->first = messages_[queue->first].next;
      }
    if (!starts_[r][lane] && is_waited_for(r, lane, step, done.size())) starts_[r][lane] = start;
    start.steps += 1;
    start.operands += chunk_operands(step);
    start.remotes += remote_operands(step);
    start.transfers += message_operands(step);
    for (const Operand& destination : step.destinations)
      if (destination.kind == OperandKind::kSend) {
        PathLength sent = start;
        sent.messages += 1;
        if (are_far(hosts_, rank, destination.peer)) {
          sent.far_messages += 1;
          sent.far_chunks += destination.span.count();
        }
        longest_.join(sent);
        append(queue_of(rank, destination.peer, destination.tag), sent);
      }
    longest_.join(start);
    done.push_back(start);
    return true;
  }

  const Schedule& schedule_;
  const std::span<const std::int32_t> hosts_;
  std::vector<std::vector<std::vector<PathLength>>> ends_;  // [rank][lane][step]
  // [rank][lane], of its first step that another lane waits for
  std::vector<std::vector<std::optional<PathLength>>> starts_;
  std::vector<std::vector<Queue>> inboxes_;  // [rank], by key
  std::vector<Message> messages_;
  PathLength longest_;
};

inline ScheduleCounts count_schedule(const Schedule& schedule,
                                     std::span<const std::int32_t> hosts) {
  ScheduleCounts counts;
  counts.chunks = schedule.shape.chunks;
  counts.max_message_chunks = schedule.shape.max_message_chunks;
  counts.ranks = schedule.shape.ranks;
  PathWalk walk(schedule, hosts);
  const PathLength path = walk.run(), longest = walk.longest_lane();
  counts.depth = path.messages;
  counts.path_steps = path.steps;
  counts.path_operands = path.operands;
  counts.path_remotes = path.remotes;
  counts.path_transfers = path.transfers;
  counts.lane_depth = longest.messages;
  counts.lane_steps = longest.steps;
  counts.lane_operands = longest.operands;
  counts.lane_remotes = longest.remotes;
  counts.lane_transfers = longest.transfers;
  counts.far_depth = path.far_messages;
  counts.path_far_chunks = path.far_chunks;
  counts.lane_far_depth = longest.far_messages;
  counts.lane_far_chunks = longest.far_chunks;
  counts.host_far_chunks = busiest_host(schedule, hosts);
  const FarTransfers connection = busiest_connection(schedule, hosts);
  counts.connection_messages = most_messages(schedule);
  counts.mutual = is_mutual(schedule);
  counts.far_connection_messages = connection.messages;
  counts.far_connection_chunks = connection.chunks;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const RankProgram& program = schedule.ranks[rank];
    std::uint64_t steps = 0, operands = 0, remotes = 0, transfers = 0;
    FarTransfers far;
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps) {
        ++steps;
        operands += chunk_operands(step);
        remotes += remote_operands(step);
        counts.total_stores += stores_to_peers(step);
        transfers += message_operands(step);
        counts.total_messages += static_cast<std::uint64_t>(
            std::ranges::count(step.destinations, OperandKind::kSend, &Operand::kind));
        far.add(hosts, static_cast<Rank>(rank), step.sources);
        far.add(hosts, static_cast<Rank>(rank), step.destinations);
      }
    counts.max_steps = std::max(counts.max_steps, steps);
    counts.max_lanes = std::max(counts.max_lanes, static_cast<std::uint32_t>(program.lanes.size()));
    counts.max_operands = std::max(counts.max_operands, operands);
    counts.total_steps += steps;
    counts.total_operands += operands;
    counts.max_remotes = std::max(counts.max_remotes, remotes);
    counts.total_remotes += remotes;
    counts.max_transfers = std::max(counts.max_transfers, transfers);
    counts.total_transfers += transfers;
    counts.max_far_transfers = std::max(counts.max_far_transfers, far.messages);
    counts.max_far_operands = std::max(counts.max_far_operands, far.chunks);
    counts.total_far_transfers += far.messages;
    counts.total_far_operands += far.chunks;
  }
  return counts;
}

}  // namespace tutti::whole
