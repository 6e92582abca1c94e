// SPDX-License-Identifier: Apache-2.0
#include "model/event_graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "model/representatives.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// One end of a message, as its rank's program names it.
struct End {
  Rank peer;
  std::uint32_t tag;
  std::uint32_t place;  // in `sends` or `receives`
  std::uint32_t step;
  std::uint32_t chunks;
  [[nodiscard]] auto key() const { return std::tuple(peer, tag, place); }
  [[nodiscard]] bool same_connection(const End& other) const {
    return peer == other.peer && tag == other.tag;
  }
};

void sort_by_connection(std::vector<End>::iterator begin, std::vector<End>::iterator end) {
  const auto less = [](const End& a, const End& b) { return a.key() < b.key(); };
  if (!std::is_sorted(begin, end, less)) std::sort(begin, end, less);
}

// Calls visit(first, last) for each run of ends of one connection.
template <typename Visit>
Status for_each_connection(const std::vector<End>& ends, std::size_t begin, Visit visit) {
  for (std::size_t first = begin; first < ends.size();) {
    std::size_t last = first + 1;
    while (last < ends.size() && ends[last].same_connection(ends[first])) ++last;
    TUTTI_TRY(visit(first, last));
    first = last;
  }
  return {};
}

class Builder {
 public:
  Builder(const Algorithm& algorithm, const Problem& problem, const Network& network,
          const EventGraph::Options& options)
      : algorithm_(algorithm),
        problem_(problem),
        network_(network),
        moves_(algorithm.symmetry(problem), network),
        every_rank_(options.every_rank),
        most_events_(options.most_events) {
    const ScheduleShape shape = algorithm.shape(problem);
    tags_ = shape.tags;
    graph_.chunks = shape.chunks;
    graph_.replicas = options.replicas;
    graph_.pool_ranks = network.pool_ranks();
    graph_.pool_workers = network.pool_workers();
  }

  Result<EventGraph> build() {
    if (every_rank_) {
      for (Rank rank = 0; rank < problem_.ranks; ++rank) TUTTI_TRY(add_rank(rank));
    } else {
      for (const Rank rank : moves_.ranks()) TUTTI_TRY(add_rank(rank));
    }
    close_lists();
    TUTTI_TRY(pair_messages());
    link_dependents();
    take_links();
    graph_.represented =
        static_cast<double>(problem_.ranks) / static_cast<double>(graph_.ranks.size());
    return std::move(graph_);
  }

 private:
  [[nodiscard]] bool reduced() const { return !every_rank_ && !moves_.all(); }
  [[nodiscard]] static std::uint32_t size32(const auto& list) {
    return static_cast<std::uint32_t>(list.size());
  }

  Status add_rank(Rank rank) {
    const std::uint32_t own = size32(graph_.ranks), first_step = size32(graph_.steps);
    graph_.ranks.push_back(rank);
    // Images of one rank decide ties as their representative does, which has come before.
    first_steps_.push_back(first_step);
    const std::uint32_t representative =
        every_rank_ && !moves_.all() ? static_cast<std::uint32_t>(moves_.of(rank)) : own;
    order_shift_ = first_steps_[representative] - first_step;
    const RankProgram program = algorithm_.program(problem_, rank);
    send_ends_.clear();
    receive_starts_.push_back(receive_ends_.size());
    connection_starts_.push_back(size32(graph_.connections));
    for (std::uint32_t replica = 0; replica < graph_.replicas; ++replica) {
      const std::uint32_t first_lane = size32(graph_.lanes);
      std::uint32_t at = size32(graph_.steps);
      for (const Lane& lane : program.lanes) {
        const auto count = static_cast<std::uint32_t>(lane.steps.size());
        graph_.lanes.push_back({at, count, own, replica});
        at += count;
      }
      for (std::uint32_t l = 0; l < program.lanes.size(); ++l)
        for (const Step& step : program.lanes[l].steps) add_step(step, first_lane, l);
    }
    if (graph_.steps.size() + graph_.sends.size() + graph_.receives.size() > most_events_)
      return too_large(rank);
    close_rank(rank);
    return {};
  }

  tl::unexpected<Error> too_large(Rank rank) const {
    return make_error(Code::kNotSupported,
                      fmt::format("{0} among {1} ranks is too large to be priced: the ranks up to "
                                  "{3} have more than {2} steps and messages together; on a "
                                  "network of equal nodes, price the ranks of one node only",
                                  algorithm_.name, problem_.ranks, most_events_, rank));
  }

  void add_step(const tutti::Step& step, std::uint32_t first_lane, std::uint32_t lane) {
    const std::uint32_t id = size32(graph_.steps);
    EventGraph::Step made{.first_receive = size32(graph_.receives),
                          .first_send = size32(graph_.sends),
                          .first_wait = size32(graph_.waits),
                          .first_dependent = 0,
                          .lane = first_lane + lane,
                          .order = id + order_shift_,
                          .remotes = 0,
                          .remote_chunks = 0,
                          .store_chunks = 0,
                          .operand_chunks = 0};
    const std::uint32_t first_tag = graph_.lanes.back().replica * tags_;
    for (const Operand& operand : step.destinations) {
      if (operand.kind == OperandKind::kSend) {
        send_ends_.push_back({operand.peer, operand.tag + first_tag, size32(graph_.sends), id,
                              operand.span.count()});
        graph_.sends.push_back(kNone);
      }
      count(operand, made);
      if (operand.kind == OperandKind::kRemote) made.store_chunks += operand.span.count();
    }
    for (const Operand& operand : step.sources) {
      if (operand.kind == OperandKind::kRecv) {
        receive_ends_.push_back({operand.peer, operand.tag + first_tag, size32(graph_.receives), id,
                                 operand.span.count()});
        graph_.receives.push_back(kNone);
      }
      count(operand, made);
    }
    for (const tutti::Wait& wait : step.waits) {
      graph_.waits.push_back(
          {graph_.lanes[first_lane + wait.lane].first_step + wait.step, wait.back});
      graph_.max_back = std::max(graph_.max_back, wait.back);
    }
    graph_.steps.push_back(made);
  }

  static void count(const Operand& operand, EventGraph::Step& step) {
    step.operand_chunks += operand.span.count();
    if (operand.kind != OperandKind::kRemote) return;
    ++step.remotes;
    step.remote_chunks += operand.span.count();
  }

  // The messages that the rank sends, connection by connection.
  void close_rank(Rank rank) {
    sort_by_connection(send_ends_.begin(), send_ends_.end());
    sort_by_connection(receive_ends_.begin() + static_cast<std::ptrdiff_t>(receive_starts_.back()),
                       receive_ends_.end());
    (void)for_each_connection(send_ends_, 0, [&](std::size_t first, std::size_t last) -> Status {
      add_connection(rank, send_ends_[first].peer, static_cast<std::uint32_t>(last - first));
      const std::uint32_t connection = size32(graph_.connections) - 1;
      for (std::size_t i = first; i < last; ++i) {
        const End& end = send_ends_[i];
        graph_.sends[end.place] = size32(graph_.messages);
        graph_.messages.push_back({end.step, kNone, connection, end.chunks});
      }
      return {};
    });
  }

  void add_connection(Rank rank, Rank peer, std::uint32_t messages) {
    const Route route = network_.route(rank, peer);
    EventGraph::Connection made{.first_message = size32(graph_.messages),
                                .message_count = messages,
                                .first_link = size32(graph_.route_links),
                                .link_count = 0,
                                .hop = route.hop,
                                .peer = peer,
                                .latency_ns = route.latency_ns,
                                .ns_per_byte = route.ns_per_byte};
    for (const LinkId link : route.links()) {
      const double ns_per_byte = network_.link_ns_per_byte()[link];
      made.ns_per_byte = std::max(made.ns_per_byte, ns_per_byte);
      ++made.link_count;
      graph_.route_links.push_back(folded(link));
    }
    graph_.connections.push_back(made);
  }

  [[nodiscard]] std::uint32_t links_of_a_node() const {
    return static_cast<std::uint32_t>(network_.link_ns_per_byte().size()) /
           static_cast<std::uint32_t>(problem_.ranks / moves_.block());
  }
  // The link of the representative's node that stands for this one.
  [[nodiscard]] LinkId folded(LinkId link) const {
    if (!reduced()) return link;
    const std::uint32_t per_node = links_of_a_node();
    const Rank first = static_cast<Rank>(link / per_node) * moves_.block();
    const std::uint32_t node =
        moves_.index_of(moves_.of(first)) / static_cast<std::uint32_t>(moves_.block());
    return node * per_node + link % per_node;
  }

  void take_links() {
    const auto all = network_.link_ns_per_byte();
    if (!reduced()) {
      graph_.link_ns_per_byte.assign(all.begin(), all.end());
      return;
    }
    const std::uint32_t per_node = links_of_a_node();
    for (std::size_t i = 0; i < graph_.ranks.size();
         i += static_cast<std::size_t>(moves_.block())) {
      const auto node = static_cast<std::uint32_t>(graph_.ranks[i] / moves_.block());
      for (std::uint32_t k = 0; k < per_node; ++k)
        graph_.link_ns_per_byte.push_back(all[node * per_node + k]);
    }
  }

  void close_lists() {
    graph_.steps.push_back({.first_receive = size32(graph_.receives),
                            .first_send = size32(graph_.sends),
                            .first_wait = size32(graph_.waits),
                            .first_dependent = 0,
                            .lane = 0,
                            .order = 0,
                            .remotes = 0,
                            .remote_chunks = 0,
                            .store_chunks = 0,
                            .operand_chunks = 0});
    receive_starts_.push_back(receive_ends_.size());
    connection_starts_.push_back(size32(graph_.connections));
  }

  Status pair_messages() {
    for (std::uint32_t own = 0; own < graph_.ranks.size(); ++own) TUTTI_TRY(pair_rank(own));
    receive_ends_ = {};
    for (const EventGraph::Message& message : graph_.messages)
      if (message.receive_step == kNone) {
        const std::uint32_t lane = graph_.steps[message.send_step].lane;
        return unpaired(graph_.connections[message.connection].peer,
                        graph_.ranks[graph_.lanes[lane].rank]);
      }
    graph_.least_messages = kNone;
    for (const EventGraph::Connection& connection : graph_.connections) {
      graph_.least_messages = std::min(graph_.least_messages, connection.message_count);
      graph_.most_messages = std::max(graph_.most_messages, connection.message_count);
    }
    return {};
  }

  // The message that rank ranks[own] receives from q on the i-th of their tags is the one that q's
  // representative sends to this rank's image on the i-th of theirs.
  Status pair_rank(std::uint32_t own) {
    const Rank rank = graph_.ranks[own];
    const std::vector<End> ends(
        receive_ends_.begin() + static_cast<std::ptrdiff_t>(receive_starts_[own]),
        receive_ends_.begin() + static_cast<std::ptrdiff_t>(receive_starts_[own + 1]));
    Rank last_peer = kNoRank;
    std::uint32_t ordinal = 0;
    return for_each_connection(ends, 0, [&](std::size_t first, std::size_t last) -> Status {
      const Rank peer = ends[first].peer;
      ordinal = peer == last_peer ? ordinal + 1 : 0;
      last_peer = peer;
      const std::uint32_t sender =
          reduced() ? moves_.index_of(moves_.of(peer)) : static_cast<std::uint32_t>(peer);
      const Rank image = reduced() ? moves_.moved(rank, peer) : rank;
      const auto begin = graph_.connections.begin() + connection_starts_[sender];
      const auto end = graph_.connections.begin() + connection_starts_[sender + 1];
      auto found = std::ranges::lower_bound(begin, end, image, {}, &EventGraph::Connection::peer);
      if (end - found <= static_cast<std::ptrdiff_t>(ordinal)) return unpaired(rank, peer);
      found += ordinal;
      const EventGraph::Connection& connection = *found;
      if (connection.peer != image) return unpaired(rank, peer);
      if (connection.message_count != last - first) return unpaired(rank, peer);
      for (std::size_t i = first; i < last; ++i) {
        const auto message = connection.first_message + static_cast<std::uint32_t>(i - first);
        graph_.messages[message].receive_step = ends[i].step;
        graph_.receives[ends[i].place] = message;
      }
      return {};
    });
  }

  tl::unexpected<Error> unpaired(Rank receiver, Rank sender) const {
    return make_error(
        Code::kInternalError,
        fmt::format("{} among {} ranks: rank {} and rank {} do not count the messages between them "
                    "alike; this is a bug in the schedule, please report it",
                    algorithm_.name, problem_.ranks, receiver, sender),
        receiver);
  }

  void link_dependents() {
    std::vector<std::uint32_t> counts(graph_.steps.size(), 0);
    for (const EventGraph::Wait& wait : graph_.waits) ++counts[wait.step];
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < graph_.steps.size(); ++i) {
      graph_.steps[i].first_dependent = at;
      at += counts[i];
      counts[i] = graph_.steps[i].first_dependent;
    }
    graph_.dependents.resize(graph_.waits.size());
    for (std::uint32_t id = 0; id < graph_.step_count(); ++id)
      for (std::uint32_t w = graph_.steps[id].first_wait; w < graph_.steps[id + 1].first_wait; ++w)
        graph_.dependents[counts[graph_.waits[w].step]++] = {id, graph_.waits[w].back};
  }

  const Algorithm& algorithm_;
  const Problem& problem_;
  const Network& network_;
  const Representatives moves_;
  const bool every_rank_;
  const std::size_t most_events_;
  std::uint32_t tags_ = 1;
  EventGraph graph_;
  // The positions at which the steps, connections and received messages of the ranks so far begin.
  std::vector<std::uint32_t> first_steps_, connection_starts_;
  std::vector<std::size_t> receive_starts_;
  std::uint32_t order_shift_ = 0;  // of the present rank
  std::vector<End> send_ends_;     // of the present rank
  std::vector<End> receive_ends_;  // of all, rank by rank
};

}  // namespace

Result<EventGraph> EventGraph::build(const Algorithm& algorithm, const Problem& problem,
                                     const Network& network, const Options& options) {
  TUTTI_TRY(check_problem(algorithm, problem));
  if (network.ranks() != problem.ranks)
    return make_error(Code::kInvalidArgument,
                      fmt::format("{} ranks cannot be priced on a network of {} ranks",
                                  problem.ranks, network.ranks()));
  if (options.replicas == 0)
    return make_error(Code::kInvalidArgument, "a plan needs at least 1 replica, not 0");
  return Builder(algorithm, problem, network, options).build();
}

}  // namespace tutti
