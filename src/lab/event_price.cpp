// SPDX-License-Identifier: Apache-2.0
#include "lab/event_price.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "lab/event_walk.hpp"
#include "lab/link_queues.hpp"
#include "model/event_graph.hpp"

namespace tutti {
namespace {

// Collects all parts of a path's time but the queues.
struct Counts {
  std::array<double, kHopCount> messages{}, way_ns{}, link_byte_ns{};
  double steps = 0, operand_bytes = 0, remotes = 0, remote_bytes = 0;

  // *this + factor * other.
  void add(const Counts& other, double factor) {
    for (std::size_t hop = 0; hop < kHopCount; ++hop) {
      messages[hop] += factor * other.messages[hop];
      way_ns[hop] += factor * other.way_ns[hop];
      link_byte_ns[hop] += factor * other.link_byte_ns[hop];
    }
    steps += factor * other.steps;
    operand_bytes += factor * other.operand_bytes;
    remotes += factor * other.remotes;
    remote_bytes += factor * other.remote_bytes;
  }
};

// The path from the last step back to the start, along what each step had last. Rounds that were
// left out went as those of the period before them; once the path comes by a step again there,
// whole turns of it are counted.
class Path {
 public:
  Path(const Walk& walk, double chunk_bytes)
      : walk_(walk), graph_(walk.graph()), skip_(walk.skip()), chunk_bytes_(chunk_bytes) {}

  Counts trace() {
    std::uint32_t step = walk_.last_step();
    std::uint32_t round = walk_.last_round() + left_out();
    std::uint32_t previous = round;
    while (go_back(step, round)) {
      if (round != previous) take_turns(step, round);
      previous = round;
    }
    return counts_;
  }

 private:
  struct Visit {
    std::uint32_t round;
    Counts counts;
  };

  [[nodiscard]] std::uint32_t left_out() const { return skip_.times * skip_.period; }
  [[nodiscard]] bool was_left_out(std::uint32_t round) const {
    return round > skip_.at && round <= skip_.at + left_out();
  }
  // The round that was walked in the place of this one.
  [[nodiscard]] std::uint32_t walked(std::uint32_t round) const {
    if (round <= skip_.at) return round;
    if (!was_left_out(round)) return round - left_out();
    const std::uint32_t first = skip_.at + 1 - skip_.period;
    return first + (round - first) % skip_.period;
  }

  void take_turns(std::uint32_t step, std::uint32_t& round) {
    if (!was_left_out(round) || turned_) return;
    const std::uint64_t key = std::uint64_t{step} * skip_.period + round % skip_.period;
    const auto [before, first] = visits_.try_emplace(key, Visit{round, counts_});
    if (first) return;
    const std::uint32_t turn = before->second.round - round;
    const std::uint32_t turns = (round - skip_.at - 1) / turn;
    Counts one = counts_;
    one.add(before->second.counts, -1);
    counts_.add(one, turns);
    round -= turns * turn;
    turned_ = true;
  }

  // Counts the step and what it had last, and goes there; false at the start.
  bool go_back(std::uint32_t& step, std::uint32_t& round) {
    const EventGraph::Step& at = graph_.steps[step];
    counts_.steps += 1;
    counts_.operand_bytes += static_cast<double>(at.operand_chunks) * chunk_bytes_;
    counts_.remotes += at.remotes;
    counts_.remote_bytes += at.remote_chunks * chunk_bytes_;
    const std::uint32_t reason = walk_.reason(step, walked(round));
    if (reason >= Walk::kWait) {
      const EventGraph::Wait& wait = graph_.waits[at.first_wait + reason - Walk::kWait];
      step = wait.step;
      round -= wait.back;
      return true;
    }
    if (reason > 0) {
      const EventGraph::Message& message = graph_.messages[reason - 1];
      count(message);
      step = message.send_step;
      return true;
    }
    const EventGraph::Lane& lane = graph_.lanes[at.lane];
    if (step > lane.first_step) {
      --step;
      return true;
    }
    if (round == 0) return false;
    --round;
    step = lane.first_step + lane.step_count - 1;
    return true;
  }

  void count(const EventGraph::Message& message) {
    const EventGraph::Connection& connection = graph_.connections[message.connection];
    const auto hop = static_cast<std::size_t>(connection.hop);
    counts_.messages[hop] += 1;
    counts_.way_ns[hop] += connection.latency_ns;
    counts_.link_byte_ns[hop] += message.chunks * chunk_bytes_ * connection.ns_per_byte;
  }

  const Walk& walk_;
  const EventGraph& graph_;
  const Walk::Skip& skip_;
  double chunk_bytes_;
  Counts counts_;
  std::unordered_map<std::uint64_t, Visit> visits_;  // by step and phase of the period
  bool turned_ = false;
};

PlanPrice price_of(const Walk& walk, const Counts& counts, const Costs& costs) {
  const Walk::Skip& skip = walk.skip();
  PlanPrice price;
  price.time_ns = walk.end_ns() + skip.times * skip.period_ns;
  price.events = walk.events();
  PriceTerms& terms = price.terms;
  terms.start_ns = costs.start_ns;
  double sum = costs.start_ns;
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    terms.latency_ns[hop] = counts.messages[hop] * costs.hops[hop].alpha_ns + counts.way_ns[hop];
    terms.transfer_ns[hop] = counts.link_byte_ns[hop] / costs.hops[hop].efficiency;
    sum += terms.latency_ns[hop] + terms.transfer_ns[hop];
    price.path.messages[hop] = static_cast<std::uint64_t>(std::llround(counts.messages[hop]));
    price.path.link_byte_ns[hop] = counts.link_byte_ns[hop];
  }
  terms.steps_ns = counts.steps * costs.step_ns + counts.remotes * costs.remote_ns;
  terms.operands_ns = counts.operand_bytes * costs.operand_ns_per_byte +
                      counts.remote_bytes * costs.remote_ns_per_byte;
  sum += terms.steps_ns + terms.operands_ns;
  terms.queue_ns = price.time_ns - sum;
  // A remainder of rounding is not a queue.
  if (std::abs(terms.queue_ns) < 1e-9 * price.time_ns) terms.queue_ns = 0;
  price.path.steps = static_cast<std::uint64_t>(std::llround(counts.steps));
  price.path.operand_bytes = counts.operand_bytes;
  return price;
}

// The first `slices` of those requested.
Result<PlanPrice> walk_slices(const EventGraph& graph, const Costs& costs,
                              const PriceRequest& request, std::uint32_t slices) {
  const double chunk_bytes = static_cast<double>(request.bytes) / graph.chunks / request.slices;
  Walk walk(graph, costs,
            {.chunk_bytes = chunk_bytes,
             .slices = slices,
             .slots = request.slots,
             .shortcut = !request.full});
  LinkQueues links(walk);
  TUTTI_TRY(walk.run(links));
  return price_of(walk, Path(walk, chunk_bytes).trace(), costs);
}

// Adds `factor` times what `price` has more than `less`.
void extend(PlanPrice& price, const PlanPrice& less, double factor) {
  const auto add = [factor](auto& to, const auto& from) {
    const double more = static_cast<double>(to) - static_cast<double>(from);
    to =
        static_cast<std::remove_reference_t<decltype(to)>>(static_cast<double>(to) + factor * more);
  };
  add(price.time_ns, less.time_ns);
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    add(price.terms.latency_ns[hop], less.terms.latency_ns[hop]);
    add(price.terms.transfer_ns[hop], less.terms.transfer_ns[hop]);
    add(price.path.messages[hop], less.path.messages[hop]);
    add(price.path.link_byte_ns[hop], less.path.link_byte_ns[hop]);
  }
  add(price.terms.queue_ns, less.terms.queue_ns);
  add(price.terms.steps_ns, less.terms.steps_ns);
  add(price.terms.operands_ns, less.terms.operands_ns);
  add(price.path.steps, less.path.steps);
  add(price.path.operand_bytes, less.path.operand_bytes);
  price.events += less.events;
}

}  // namespace

PlanModel::PlanModel(std::unique_ptr<EventGraph> graph) : graph_(std::move(graph)) {}
PlanModel::PlanModel(PlanModel&&) noexcept = default;
PlanModel& PlanModel::operator=(PlanModel&&) noexcept = default;
PlanModel::~PlanModel() = default;

const EventGraph& PlanModel::graph() const { return *graph_; }

Result<PlanModel> PlanModel::make(const Algorithm& algorithm, const Problem& problem,
                                  const Network& network, std::uint32_t replicas, bool every_rank) {
  TUTTI_TRY_ASSIGN(EventGraph graph,
                   EventGraph::build(algorithm, problem, network,
                                     {.replicas = replicas, .every_rank = every_rank}));
  return PlanModel(std::make_unique<EventGraph>(std::move(graph)));
}

Result<PlanPrice> PlanModel::price(const Costs& costs, const PriceRequest& request) const {
  TUTTI_TRY(check_request(costs, request.slices, request.slots));
  const bool all = request.full || request.most_slices == 0;
  const std::uint32_t walked = all ? request.slices : std::min(request.slices, request.most_slices);
  TUTTI_TRY_ASSIGN(PlanPrice price, walk_slices(*graph_, costs, request, walked));
  if (walked < request.slices) {
    const std::uint32_t half = (walked + 1) / 2;
    TUTTI_TRY_ASSIGN(const PlanPrice less, walk_slices(*graph_, costs, request, half));
    extend(price, less, static_cast<double>(request.slices - walked) / std::max(1U, walked - half));
  }
  for (const EventGraph::Lane& lane : graph_->lanes) {
    const std::uint32_t replica = lane.replica;
    if (replica >= request.slices) continue;
    const std::uint32_t rounds = (request.slices - replica - 1) / graph_->replicas + 1;
    price.total_events += graph_->represented * lane.step_count * rounds;
  }
  return price;
}

}  // namespace tutti
