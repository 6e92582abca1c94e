// SPDX-License-Identifier: Apache-2.0
#include "model/counts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "model/event_graph.hpp"
#include "model/host_classes.hpp"
#include "model/representatives.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Equal ranks without anything between them: all that a symmetry allows may be moved.
class Nowhere final : public Network {
 public:
  explicit Nowhere(std::int32_t ranks) : ranks_(ranks) {}
  [[nodiscard]] std::int32_t ranks() const override { return ranks_; }
  [[nodiscard]] std::span<const double> link_ns_per_byte() const override { return {}; }
  [[nodiscard]] Route route(Rank /*from*/, Rank /*to*/) const override { return {}; }
  [[nodiscard]] Rank block() const override { return 1; }
  [[nodiscard]] std::int32_t pool_ranks() const override { return 1; }
  [[nodiscard]] std::int32_t pool_workers() const override { return 1; }

 private:
  std::int32_t ranks_;
};

// Hosts numbered from 0.
struct Hosts {
  explicit Hosts(std::span<const std::int32_t> hosts) {
    std::map<std::int32_t, std::int32_t> numbers;
    for (const std::int32_t host : hosts) {
      const auto [at, fresh] = numbers.emplace(host, static_cast<std::int32_t>(numbers.size()));
      of_rank.push_back(at->second);
    }
    count = static_cast<std::int32_t>(numbers.size());
  }
  std::vector<std::int32_t> of_rank;
  std::int32_t count = 0;
};

struct PathLength {
  std::uint64_t messages = 0, steps = 0, operands = 0, remotes = 0, transfers = 0;
  void join(const PathLength& other) {
    messages = std::max(messages, other.messages);
    steps = std::max(steps, other.steps);
    operands = std::max(operands, other.operands);
    remotes = std::max(remotes, other.remotes);
    transfers = std::max(transfers, other.transfers);
  }
  [[nodiscard]] PathLength since(const PathLength& start) const {
    return {messages - start.messages, steps - start.steps, operands - start.operands,
            remotes - start.remotes, transfers - start.transfers};
  }
};

// Counts the messages on a path that go to other hosts, and the chunks that they carry.
struct FarLength {
  std::uint64_t messages = 0, chunks = 0;
  void join(const FarLength& other) {
    messages = std::max(messages, other.messages);
    chunks = std::max(chunks, other.chunks);
  }
};

// Path lengths to the ends of steps, each for one representative; far ones for each class of it.
class Lengths {
 public:
  explicit Lengths(std::size_t classes) : classes_(classes) {}
  [[nodiscard]] std::uint32_t take() {
    if (free_.empty()) {
      paths_.emplace_back();
      far_.resize(far_.size() + classes_);
      return static_cast<std::uint32_t>(paths_.size() - 1);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    path(slot) = {};
    std::ranges::fill(far(slot), FarLength{});
    return slot;
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  [[nodiscard]] PathLength& path(std::uint32_t slot) { return paths_[slot]; }
  [[nodiscard]] std::span<FarLength> far(std::uint32_t slot) {
    return std::span(far_).subspan(slot * classes_, classes_);
  }
  void join(std::uint32_t to, std::uint32_t from) {
    path(to).join(path(from));
    for (std::size_t c = 0; c < classes_; ++c) far(to)[c].join(far(from)[c]);
  }

 private:
  std::size_t classes_;
  std::vector<PathLength> paths_;
  std::vector<FarLength> far_;
  std::vector<std::uint32_t> free_;
};

std::uint64_t message_chunks(const EventGraph& graph, std::uint32_t step) {
  std::uint64_t chunks = 0;
  for (std::uint32_t i = graph.steps[step].first_receive; i < graph.steps[step + 1].first_receive;
       ++i)
    chunks += graph.messages[graph.receives[i]].chunks;
  for (std::uint32_t i = graph.steps[step].first_send; i < graph.steps[step + 1].first_send; ++i)
    chunks += graph.messages[graph.sends[i]].chunks;
  return chunks;
}

std::uint32_t rank_of(const EventGraph& graph, std::uint32_t step) {
  return graph.lanes[graph.steps[step].lane].rank;
}

// Goes through one slice in the order of dependency, carrying the longest paths along messages,
// waits and lanes. The state after a step is dropped once all steps that follow it have used it.
class PathWalk {
 public:
  // `classes` null: nothing is far.
  PathWalk(const EventGraph& graph, const HostClasses* classes)
      : graph_(graph),
        classes_(classes),
        lengths_(classes == nullptr ? 0 : classes->count()),
        lacks_(graph.step_count()),
        readers_(graph.step_count()),
        slots_(graph.step_count(), kNone),
        lane_starts_(graph.lanes.size(), kNone) {
    for (std::uint32_t step = 0; step < graph.step_count(); ++step) count_edges(step);
  }

  // kInternalError where steps wait for each other.
  Status run() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t step = graph_.step_count(); step-- > 0;)
      if (lacks_[step] == 0) ready.push_back(step);
    std::uint32_t ended = 0;
    for (; !ready.empty(); ++ended) {
      const std::uint32_t step = ready.back();
      ready.pop_back();
      take(step);
      for_each_follower(step, [&](std::uint32_t follower) {
        if (--lacks_[follower] == 0) ready.push_back(follower);
      });
    }
    if (ended == graph_.step_count()) return {};
    return make_error(
        Code::kInternalError,
        "steps of a schedule wait for each other; this is a bug in the schedule, please report it");
  }

  // After run(): of all paths, and of the lanes (ScheduleCounts::lane_depth).
  [[nodiscard]] const PathLength& longest() const { return longest_; }
  [[nodiscard]] const PathLength& longest_lane() const { return longest_lane_; }
  [[nodiscard]] const FarLength& farthest() const { return farthest_; }
  [[nodiscard]] const FarLength& farthest_lane() const { return farthest_lane_; }

 private:
  [[nodiscard]] bool begins_lane(std::uint32_t step) const {
    return step == graph_.lanes[graph_.steps[step].lane].first_step;
  }
  [[nodiscard]] bool ends_lane(std::uint32_t step) const {
    const EventGraph::Lane& lane = graph_.lanes[graph_.steps[step].lane];
    return step + 1 == lane.first_step + lane.step_count;
  }

  template <typename Visit>
  void for_each_follower(std::uint32_t step, Visit visit) const {
    const EventGraph::Step& at = graph_.steps[step];
    const EventGraph::Step& next = graph_.steps[step + 1];
    if (!ends_lane(step)) visit(step + 1);
    for (std::uint32_t i = at.first_send; i < next.first_send; ++i)
      visit(graph_.messages[graph_.sends[i]].receive_step);
    for (std::uint32_t i = at.first_dependent; i < next.first_dependent; ++i)
      if (graph_.dependents[i].back == 0) visit(graph_.dependents[i].step);
  }

  void count_edges(std::uint32_t step) {
    for_each_follower(step, [&](std::uint32_t follower) {
      ++readers_[step];
      ++lacks_[follower];
    });
  }

  // Joins what `from` carried, as it is or moved by a message, to `slot`.
  void follow(std::uint32_t slot, std::uint32_t from) {
    lengths_.join(slot, slots_[from]);
    drop(from);
  }
  void follow_message(std::uint32_t slot, const EventGraph::Message& message) {
    const std::uint32_t sender = slots_[message.send_step];
    PathLength sent = lengths_.path(sender);
    sent.messages += 1;
    lengths_.path(slot).join(sent);
    if (classes_ != nullptr) {
      const Rank rank = graph_.ranks[rank_of(graph_, message.send_step)];
      const Rank peer = graph_.connections[message.connection].peer;
      const std::span<const FarLength> from = lengths_.far(sender);
      const std::span<FarLength> to = lengths_.far(slot);
      for (std::uint32_t c = 0; c < from.size(); ++c) {
        const HostClasses::Way way = classes_->way(rank, peer, c);
        const std::uint64_t chunks = way.far ? message.chunks : 0;
        to[way.to].join({from[c].messages + (way.far ? 1 : 0), from[c].chunks + chunks});
      }
    }
    drop(message.send_step);
  }
  void drop(std::uint32_t step) {
    if (--readers_[step] == 0) lengths_.give_back(slots_[step]);
  }

  void take(std::uint32_t step) {
    const EventGraph::Step& at = graph_.steps[step];
    const EventGraph::Step& next = graph_.steps[step + 1];
    const std::uint32_t slot = slots_[step] = lengths_.take();
    if (!begins_lane(step)) follow(slot, step - 1);
    for (std::uint32_t i = at.first_receive; i < next.first_receive; ++i)
      follow_message(slot, graph_.messages[graph_.receives[i]]);
    for (std::uint32_t i = at.first_wait; i < next.first_wait; ++i)
      if (graph_.waits[i].back == 0) follow(slot, graph_.waits[i].step);
    if (lane_starts_[at.lane] == kNone && is_waited_for(step)) {
      const std::uint32_t start = lane_starts_[at.lane] = lengths_.take();
      lengths_.join(start, slot);
    }
    PathLength& path = lengths_.path(slot);
    path.steps += 1;
    path.operands += at.operand_chunks;
    path.remotes += at.remote_chunks;
    path.transfers += message_chunks(graph_, step);
    if (ends_lane(step)) end_lane(at.lane, slot);
    if (readers_[step] == 0) lengths_.give_back(slot);
  }

  // By a lane: before such a step a lane waits for nothing that itself holds up.
  [[nodiscard]] bool is_waited_for(std::uint32_t step) const {
    const EventGraph::Step& at = graph_.steps[step];
    const EventGraph::Step& next = graph_.steps[step + 1];
    return next.first_send > at.first_send || next.first_dependent > at.first_dependent;
  }

  // A path's last step is the last of its lane, or passes it on.
  void end_lane(std::uint32_t lane, std::uint32_t slot) {
    const std::uint32_t start = lane_starts_[lane];
    longest_.join(lengths_.path(slot));
    for (const FarLength& far : lengths_.far(slot)) farthest_.join(far);
    if (start == kNone) return;
    longest_lane_.join(lengths_.path(slot).since(lengths_.path(start)));
    const std::span<const FarLength> end_far = lengths_.far(slot), start_far = lengths_.far(start);
    for (std::size_t c = 0; c < end_far.size(); ++c)
      farthest_lane_.join(
          {end_far[c].messages - start_far[c].messages, end_far[c].chunks - start_far[c].chunks});
    lengths_.give_back(start);
  }

  const EventGraph& graph_;
  const HostClasses* classes_;
  Lengths lengths_;
  std::vector<std::uint32_t> lacks_;        // by step: edges to it that have not come
  std::vector<std::uint32_t> readers_;      // by step: edges from it that have not been followed
  std::vector<std::uint32_t> slots_;        // by step, in lengths_
  std::vector<std::uint32_t> lane_starts_;  // by lane, in lengths_; kNone: nobody waits for it yet
  PathLength longest_, longest_lane_;
  FarLength farthest_, farthest_lane_;
};

// Counts the work of each rank.
void count_ranks(const EventGraph& graph, ScheduleCounts& counts) {
  struct Work : PathLength {
    std::uint64_t stores = 0;
  };
  std::vector<Work> sums(graph.ranks.size());
  for (std::uint32_t step = 0; step < graph.step_count(); ++step) {
    Work& sum = sums[rank_of(graph, step)];
    sum.steps += 1;
    sum.operands += graph.steps[step].operand_chunks;
    sum.remotes += graph.steps[step].remote_chunks;
    sum.stores += graph.steps[step].store_chunks;
    sum.transfers += message_chunks(graph, step);
  }
  std::vector<std::uint32_t> lanes(graph.ranks.size());
  for (const EventGraph::Lane& lane : graph.lanes)
    counts.max_lanes = std::max(counts.max_lanes, ++lanes[lane.rank]);
  const auto each = static_cast<std::uint64_t>(graph.represented);
  counts.total_messages = each * graph.messages.size();
  for (const Work& sum : sums) {
    counts.max_steps = std::max(counts.max_steps, sum.steps);
    counts.max_operands = std::max(counts.max_operands, sum.operands);
    counts.max_remotes = std::max(counts.max_remotes, sum.remotes);
    counts.max_transfers = std::max(counts.max_transfers, sum.transfers);
    counts.total_steps += each * sum.steps;
    counts.total_operands += each * sum.operands;
    counts.total_remotes += each * sum.remotes;
    counts.total_stores += each * sum.stores;
    counts.total_transfers += each * sum.transfers;
  }
}

// Does each rank hear from every rank that it sends to? The graph has what representatives send.
bool is_mutual(const EventGraph& graph, const Representatives& moves) {
  std::set<std::pair<Rank, Rank>> sent;
  for (const EventGraph::Connection& connection : graph.connections)
    sent.emplace(graph.ranks[rank_of(graph, graph.messages[connection.first_message].send_step)],
                 connection.peer);
  return std::ranges::all_of(sent, [&](const auto& pair) {
    const auto [from, to] = pair;
    return sent.contains({moves.of(to), moves.moved(from, to)});
  });
}

// Counts the messages that a rank sends to other hosts and receives from them.
struct FarTransfers {
  std::uint64_t messages = 0, sent_chunks = 0, received_chunks = 0;
};

// By representative and class. Adds the messages of one connection to `counts`.
std::vector<FarTransfers> far_transfers(const EventGraph& graph, const HostClasses& classes,
                                        ScheduleCounts& counts) {
  std::vector<FarTransfers> all(graph.ranks.size() * classes.count());
  for (const EventGraph::Connection& connection : graph.connections) {
    const auto messages =
        std::span(graph.messages).subspan(connection.first_message, connection.message_count);
    std::uint64_t chunks = 0;
    for (const EventGraph::Message& message : messages) chunks += message.chunks;
    const std::uint32_t sender = rank_of(graph, messages.front().send_step),
                        receiver = rank_of(graph, messages.front().receive_step);
    for (std::uint32_t c = 0; c < classes.count(); ++c) {
      const HostClasses::Way way = classes.way(graph.ranks[sender], connection.peer, c);
      if (!way.far) continue;
      counts.far_connection_messages =
          std::max<std::uint64_t>(counts.far_connection_messages, messages.size());
      counts.far_connection_chunks = std::max(counts.far_connection_chunks, chunks);
      FarTransfers& from = all[sender * classes.count() + c];
      FarTransfers& to = all[receiver * classes.count() + way.to];
      from.messages += messages.size();
      from.sent_chunks += chunks;
      to.messages += messages.size();
      to.received_chunks += chunks;
    }
  }
  return all;
}

// The most that one host sends, or receives, given the index of each rank in `transfers`.
std::uint64_t busiest_host(std::span<const FarTransfers> transfers, const Hosts& hosts,
                           std::span<const std::uint32_t> index_of) {
  std::vector<FarTransfers> sums(static_cast<std::size_t>(hosts.count));
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < index_of.size(); ++rank) {
    const FarTransfers& own = transfers[index_of[rank]];
    FarTransfers& sum = sums[static_cast<std::size_t>(hosts.of_rank[rank])];
    sum.sent_chunks += own.sent_chunks;
    sum.received_chunks += own.received_chunks;
    most = std::max({most, sum.sent_chunks, sum.received_chunks});
  }
  return most;
}

// Each rank's place among representatives and classes.
std::vector<std::uint32_t> indices_of_ranks(const HostClasses& classes, const Symmetry& symmetry,
                                            std::int32_t ranks) {
  const Representatives moves(symmetry, Nowhere(ranks));
  std::vector<std::uint32_t> indices;
  indices.reserve(static_cast<std::size_t>(ranks));
  for (Rank rank = 0; rank < ranks; ++rank)
    indices.push_back(moves.index_of(moves.of(rank)) * classes.count() + classes.of(rank));
  return indices;
}

void count_far_ranks(const EventGraph& graph, const HostClasses& classes, const Hosts& hosts,
                     const Symmetry& symmetry, ScheduleCounts& counts) {
  const std::vector<FarTransfers> transfers = far_transfers(graph, classes, counts);
  const auto indices = indices_of_ranks(classes, symmetry, counts.ranks);
  counts.host_far_chunks = busiest_host(transfers, hosts, indices);
  for (const std::uint32_t index : indices) {
    const FarTransfers& own = transfers[index];
    const std::uint64_t chunks = own.sent_chunks + own.received_chunks;
    counts.max_far_transfers = std::max(counts.max_far_transfers, own.messages);
    counts.max_far_operands = std::max(counts.max_far_operands, chunks);
    counts.total_far_transfers += own.messages;
    counts.total_far_operands += chunks;
  }
}

}  // namespace

Result<ScheduleCounts> count_schedule(const Algorithm& algorithm, const Problem& problem,
                                      std::span<const std::int32_t> hosts) {
  TUTTI_TRY(check_problem(algorithm, problem));
  const ScheduleShape shape = algorithm.shape(problem);
  const Nowhere nowhere(problem.ranks);
  const Hosts numbered(hosts);
  const bool several = numbered.count > 1;
  // Host classes do not know pairs.
  Symmetry symmetry = algorithm.symmetry(problem);
  const bool every_rank = several && symmetry.paired > 0;
  if (every_rank) symmetry = {};
  TUTTI_TRY_ASSIGN(const EventGraph graph, EventGraph::build(algorithm, problem, nowhere,
                                                             {.every_rank = every_rank,
                                                              .most_events = kMostCountedEvents}));
  ScheduleCounts counts;
  counts.chunks = shape.chunks;
  counts.max_message_chunks = shape.max_message_chunks;
  counts.ranks = problem.ranks;
  count_ranks(graph, counts);
  counts.connection_messages = graph.most_messages;
  counts.mutual = is_mutual(graph, Representatives(symmetry, nowhere));

  const HostClasses classes(symmetry, numbered.of_rank, numbered.count, graph.messages.size());
  if (several) count_far_ranks(graph, classes, numbered, symmetry, counts);
  PathWalk walk(graph, several ? &classes : nullptr);
  TUTTI_TRY(walk.run());
  counts.depth = static_cast<std::uint32_t>(walk.longest().messages);
  counts.path_steps = walk.longest().steps;
  counts.path_operands = walk.longest().operands;
  counts.path_remotes = walk.longest().remotes;
  counts.path_transfers = walk.longest().transfers;
  counts.lane_depth = walk.longest_lane().messages;
  counts.lane_steps = walk.longest_lane().steps;
  counts.lane_operands = walk.longest_lane().operands;
  counts.lane_remotes = walk.longest_lane().remotes;
  counts.lane_transfers = walk.longest_lane().transfers;
  counts.far_depth = static_cast<std::uint32_t>(walk.farthest().messages);
  counts.path_far_chunks = walk.farthest().chunks;
  counts.lane_far_depth = walk.farthest_lane().messages;
  counts.lane_far_chunks = walk.farthest_lane().chunks;
  return counts;
}

}  // namespace tutti
