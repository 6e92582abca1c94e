// SPDX-License-Identifier: Apache-2.0
#include "lab/event_walk.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::uint32_t kLongestPeriod = 8;
constexpr std::uint32_t kMostWindow = 16;
// Times of like rounds differ by their period to this, relative to the time: exact below 0.13 s.
constexpr double kSameTime = 1e-13;

bool same_time(double a_ns, double b_ns, double scale_ns) {
  return std::abs(a_ns - b_ns) <= kSameTime * scale_ns;  // false of what is unknown
}

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

Status check_request(const Costs& costs, std::uint32_t slices, std::uint32_t slots) {
  if (slices == 0 || slots == 0)
    return make_error(
        Code::kInvalidArgument,
        fmt::format("{} slices in {} slots cannot be simulated; use at least 1 of each", slices,
                    slots));
  for (const HopCosts& hop : costs.hops)
    if (!(hop.efficiency > 0 && hop.efficiency <= 1))
      return make_error(
          Code::kInvalidArgument,
          fmt::format("an efficiency of {} is out of range: it must be above 0 and at most 1",
                      hop.efficiency));
  return {};
}

Walk::Walk(const EventGraph& graph, const Costs& costs, const WalkRequest& request)
    : graph_(graph),
      costs_(costs),
      request_(request),
      operand_ns_per_chunk_(request.chunk_bytes * costs.operand_ns_per_byte),
      remote_ns_per_chunk_(request.chunk_bytes * costs.remote_ns_per_byte),
      lanes_(graph.lanes.size()),
      rank_free_ns_(graph.ranks.size(), 0),
      rank_ends_ns_(graph.ranks.size(), 0) {
  const std::uint32_t replicas = graph.replicas;
  for (std::uint32_t j = 0; j < replicas; ++j)
    lane_rounds_.push_back(request.slices > j ? ceil_div(request.slices - j, replicas) : 0);
  if (graph.pool_workers < graph.pool_ranks) {
    const auto ranks = static_cast<std::uint32_t>(graph.pool_ranks);
    const std::uint32_t pools = ceil_div(static_cast<std::uint32_t>(graph.ranks.size()), ranks);
    const auto workers = static_cast<std::size_t>(std::max(1, graph.pool_workers));
    pools_.assign(pools, std::vector<Worker>(workers));
  }
  const std::uint64_t most_messages = std::uint64_t{graph.most_messages} * lane_rounds_.front();
  credits_ = most_messages > request.slots;
  // How many rounds back a step can reach, by credits and by waits.
  const std::uint32_t slots = std::max(1U, request.slots);
  const std::uint32_t by_credits = ceil_div(slots, std::max(1U, graph.least_messages)) + 1;
  window_ = std::min(kMostWindow, std::max(by_credits, graph.max_back + 1));
}

double Walk::cost_ns(const EventGraph::Step& step) const {
  return on_grid(costs_.step_ns + static_cast<double>(step.operand_chunks) * operand_ns_per_chunk_ +
                 step.remotes * costs_.remote_ns + step.remote_chunks * remote_ns_per_chunk_);
}

std::uint32_t Walk::rounds_of(std::uint32_t replica) const { return lane_rounds_[replica]; }

Walk::Round& Walk::round_at(std::uint32_t round) {
  while (rounds_.size() <= round) {
    Round& made = rounds_.emplace_back();
    if (!spare_.empty()) {
      made = std::move(spare_.back());
      spare_.pop_back();
    }
    made.ends_ns.assign(graph_.step_count(), kUnknown);
    made.arrivals_ns.assign(graph_.messages.size(), kUnknown);
    made.reasons.assign(graph_.step_count(), 0);
    made.lanes_left = 0;
    const auto number = static_cast<std::uint32_t>(rounds_.size() - 1);
    for (const EventGraph::Lane& lane : graph_.lanes)
      if (lane.step_count > 0 && number < rounds_of(lane.replica)) ++made.lanes_left;
  }
  return rounds_[round];
}

// Times that no step looks at any more. Reasons stay: the path is traced along them.
void Walk::free_rounds(std::uint32_t finished) {
  const std::uint32_t by_credits =
      ceil_div(std::max(1U, request_.slots), std::max(1U, graph_.least_messages)) + 1;
  const std::uint32_t keep =
      std::max({window_ + kLongestPeriod, by_credits, graph_.max_back + 1}) + 1;
  for (; kept_from_ + keep < finished; ++kept_from_) {
    Round& old = rounds_[kept_from_];
    Round& spare = spare_.emplace_back();
    spare.ends_ns = std::move(old.ends_ns);
    spare.arrivals_ns = std::move(old.arrivals_ns);
  }
}

Status Walk::run(Traffic& traffic) {
  now_ns_ = on_grid(costs_.start_ns);
  end_ns_ = now_ns_;
  for (const EventGraph::Lane& lane : graph_.lanes)
    if (rounds_of(lane.replica) > 0 && lane.step_count > 0) ++lanes_left_;
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].step = graph_.lanes[l].first_step;
    if (rounds_of(graph_.lanes[l].replica) > 0 && graph_.lanes[l].step_count > 0)
      look_at(l, now_ns_);
  }
  while (true) {
    const double traffic_ns = traffic.next_ns(), step_ns = events_ahead_.next_ns();
    if (!std::isfinite(std::min(traffic_ns, step_ns))) break;
    if (traffic_ns < step_ns) {
      now_ns_ = traffic_ns;
      traffic.run_until(traffic_ns);
      continue;
    }
    const Event event = events_ahead_.pop();
    fetch_ahead(traffic);
    now_ns_ = event.time_ns;
    if (!event.sends) {
      start(graph_.steps[event.step].lane);
      if (events_ > kMostEvents)
        return make_error(
            Code::kNotSupported,
            fmt::format("the simulation needs more than {} steps; use fewer slices", kMostEvents));
      continue;
    }
    for (std::uint32_t i = graph_.steps[event.step].first_send;
         i < graph_.steps[event.step + 1].first_send; ++i)
      traffic.send(i, event.round);
  }
  return lanes_left_ == 0 ? Status{} : stuck();
}

// Ranks in lockstep walk through all memory at every step: what the next ones need comes early,
// what must be read to find it earlier still.
void Walk::fetch_ahead(const Traffic& traffic) const {
  constexpr std::size_t kSteps = 32, kLists = 24, kMessages = 16, kConnections = 8;
  if (const Event* event = events_ahead_.ahead(kSteps))
    __builtin_prefetch(&graph_.steps[event->step]);
  if (const Event* event = events_ahead_.ahead(kLists)) {
    const EventGraph::Step& step = graph_.steps[event->step];
    __builtin_prefetch(&lanes_[step.lane]);
    __builtin_prefetch(&graph_.lanes[step.lane]);
    __builtin_prefetch(event->sends ? graph_.sends.data() + step.first_send
                                    : graph_.receives.data() + step.first_receive);
    __builtin_prefetch(&rounds_[event->round].ends_ns[event->step], 1);
    __builtin_prefetch(&rounds_[event->round].reasons[event->step], 1);
  }
  if (const Event* event = events_ahead_.ahead(kConnections); event != nullptr && event->sends) {
    const std::uint32_t first = graph_.steps[event->step].first_send;
    const std::uint32_t connection = graph_.messages[graph_.sends[first]].connection;
    __builtin_prefetch(&graph_.connections[connection]);
    traffic.fetch(connection);
  }
  const Event* event = events_ahead_.ahead(kMessages);
  if (event == nullptr) return;
  const EventGraph::Step* step = &graph_.steps[event->step];
  if (event->sends) {
    __builtin_prefetch(&graph_.messages[graph_.sends[step->first_send]]);
    return;
  }
  __builtin_prefetch(&rank_free_ns_[graph_.lanes[step->lane].rank], 1);
  if (step[1].first_receive < graph_.receives.size())
    __builtin_prefetch(&rounds_[event->round].arrivals_ns[graph_.receives[step[1].first_receive]]);
}

// Returns what the lane's next step still waits for, and when it has the rest.
void Walk::look_at(std::uint32_t lane, double lane_ready_ns) {
  LaneState& at = lanes_[lane];
  at.lacks = 0;
  at.reason = 0;
  at.ready_ns = lane_ready_ns;
  at.credit_ns = 0;
  at.looked_at = true;
  furthest_round_ = std::max(furthest_round_, at.round);
  const EventGraph::Step& step = graph_.steps[at.step];
  const EventGraph::Step& next = graph_.steps[at.step + 1];
  const Round& round = round_at(at.round);
  for (std::uint32_t i = step.first_receive; i < next.first_receive; ++i)
    require(at, round.arrivals_ns[graph_.receives[i]], 1 + graph_.receives[i]);
  for (std::uint32_t i = step.first_wait; i < next.first_wait; ++i) {
    const EventGraph::Wait& wait = graph_.waits[i];
    if (wait.back > at.round) continue;
    require(at, rounds_[at.round - wait.back].ends_ns[wait.step], kWait + i - step.first_wait);
  }
  for (std::uint32_t i = step.first_send; credits_ && i < next.first_send; ++i) {
    const double known_ns = credit_ns(graph_.sends[i], at.round);
    if (std::isnan(known_ns)) {
      ++at.lacks;
    } else {
      at.credit_ns = std::max(at.credit_ns, known_ns);
    }
  }
  queue_if_ready(lane);
}

void Walk::require(LaneState& lane, double known_ns, std::uint32_t reason) const {
  if (std::isnan(known_ns)) {
    ++lane.lacks;
  } else if (known_ns > lane.ready_ns) {
    lane.ready_ns = known_ns;
    lane.reason = reason;
  }
}

// When the message's slot is free: when the step that took the message `slots` before has ended.
double Walk::credit_ns(std::uint32_t message, std::uint32_t round) const {
  if ((std::uint64_t{round} + 1) * graph_.most_messages <= request_.slots) return 0;
  const EventGraph::Connection& connection =
      graph_.connections[graph_.messages[message].connection];
  const std::uint64_t number =
      std::uint64_t{round} * connection.message_count + message - connection.first_message;
  if (number < request_.slots) return 0;
  const std::uint64_t taken = number - request_.slots;
  const auto at = static_cast<std::uint32_t>(taken / connection.message_count);
  const auto which = static_cast<std::uint32_t>(taken % connection.message_count);
  if (at >= rounds_.size()) return kUnknown;
  return rounds_[at].ends_ns[graph_.messages[connection.first_message + which].receive_step];
}

void Walk::queue_if_ready(std::uint32_t lane) {
  const LaneState& at = lanes_[lane];
  if (at.lacks > 0) return;
  events_ahead_.push(
      {std::max(at.ready_ns, at.credit_ns), graph_.steps[at.step].order, at.step, at.round, false});
}

// A message or an awaited step, known from now on, of a step that may wait for it already.
void Walk::meet(std::uint32_t step, std::uint32_t round, double time_ns, std::uint32_t reason) {
  const std::uint32_t lane = graph_.steps[step].lane;
  LaneState& at = lanes_[lane];
  if (!at.looked_at || at.step != step || at.round != round) return;
  --at.lacks;
  if (time_ns > at.ready_ns) {
    at.ready_ns = time_ns;
    at.reason = reason;
  }
  queue_if_ready(lane);
}

void Walk::meet_credit(std::uint32_t step, std::uint32_t round, double time_ns) {
  const std::uint32_t lane = graph_.steps[step].lane;
  LaneState& at = lanes_[lane];
  if (!at.looked_at || at.step != step || at.round != round) return;
  --at.lacks;
  at.credit_ns = std::max(at.credit_ns, time_ns);
  queue_if_ready(lane);
}

void Walk::deliver(std::uint32_t message, std::uint32_t round, double time_ns) {
  round_at(round).arrivals_ns[message] = time_ns;
  const std::uint32_t step = graph_.messages[message].receive_step;
  meet(step, round, time_ns, 1 + message);
}

double Walk::take_worker(std::uint32_t rank, double ready_ns, double cost) {
  double start_ns = std::max(ready_ns, rank_free_ns_[rank]);
  if (!pools_.empty()) {
    const double switch_ns = on_grid(costs_.switch_ns);
    std::vector<Worker>& pool = pools_[rank / static_cast<std::uint32_t>(graph_.pool_ranks)];
    const auto start_on = [&](const Worker& worker) {
      return std::max(start_ns, worker.free_ns) + (worker.rank == rank ? 0 : switch_ns);
    };
    Worker& taken = *std::ranges::min_element(pool, {}, start_on);
    start_ns = start_on(taken);
    taken = {start_ns + cost, rank};
  }
  rank_free_ns_[rank] = start_ns + cost;
  return start_ns;
}

void Walk::start(std::uint32_t lane) {
  LaneState& at = lanes_[lane];
  const std::uint32_t step = at.step, round = at.round;
  const EventGraph::Step& made = graph_.steps[step];
  const std::uint32_t rank = graph_.lanes[lane].rank;
  at.looked_at = false;
  const double cost = cost_ns(made);
  const double end_ns = take_worker(rank, now_ns_, cost) + cost;
  ++events_;
  if (observer_) observer_(step, round, end_ns - cost, end_ns);
  rounds_[round].ends_ns[step] = end_ns;
  rounds_[round].reasons[step] = at.reason;
  rank_ends_ns_[rank] = std::max(rank_ends_ns_[rank], end_ns);
  if (end_ns > end_ns_) {
    end_ns_ = end_ns;
    last_step_ = step;
    last_round_ = round;
  }
  if (graph_.steps[step + 1].first_send > made.first_send)
    events_ahead_.push({end_ns, made.order, step, round, true});
  tell(step, round, end_ns);
  advance(lane, end_ns);
}

void Walk::tell(std::uint32_t step, std::uint32_t round, double end_ns) {
  if (credits_) give_credits(step, round, end_ns);
  for (std::uint32_t i = graph_.steps[step].first_dependent;
       i < graph_.steps[step + 1].first_dependent; ++i) {
    const EventGraph::Wait& dependent = graph_.dependents[i];
    const std::uint32_t lane = graph_.steps[dependent.step].lane;
    if (lanes_[lane].step != dependent.step) continue;
    std::uint32_t w = graph_.steps[dependent.step].first_wait;
    while (graph_.waits[w].step != step || graph_.waits[w].back != dependent.back) ++w;
    meet(dependent.step, round + dependent.back, end_ns,
         kWait + w - graph_.steps[dependent.step].first_wait);
  }
}

void Walk::give_credits(std::uint32_t step, std::uint32_t round, double end_ns) {
  // No connection's slot is asked for again so soon: nothing of it need be looked at.
  if (round + request_.slots / std::max(1U, graph_.most_messages) > furthest_round_) return;
  for (std::uint32_t i = graph_.steps[step].first_receive; i < graph_.steps[step + 1].first_receive;
       ++i) {
    const std::uint32_t message = graph_.receives[i];
    const EventGraph::Connection& connection =
        graph_.connections[graph_.messages[message].connection];
    const std::uint64_t number = std::uint64_t{message - connection.first_message} + request_.slots;
    const bool same = number < connection.message_count;
    const std::uint64_t ahead = same ? 0 : number / connection.message_count;
    if (round + ahead > furthest_round_) continue;
    const auto which = static_cast<std::uint32_t>(number - ahead * connection.message_count);
    meet_credit(graph_.messages[connection.first_message + which].send_step,
                round + static_cast<std::uint32_t>(ahead), end_ns);
  }
}

void Walk::advance(std::uint32_t lane, double end_ns) {
  LaneState& at = lanes_[lane];
  const EventGraph::Lane& of = graph_.lanes[lane];
  if (++at.step < of.first_step + of.step_count) {
    look_at(lane, end_ns);
    return;
  }
  at.step = of.first_step;
  const std::uint32_t round = at.round++;
  finish_round(round);
  if (at.round < rounds_of(of.replica)) {
    look_at(lane, end_ns);
  } else {
    --lanes_left_;
  }
}

void Walk::finish_round(std::uint32_t round) {
  if (--rounds_[round].lanes_left > 0) return;
  if (request_.shortcut && skip_.times == 0) look_for_period(round);
  free_rounds(round);
}

// Is `round` the last of a window of rounds that all lie equally long after those `period` before?
void Walk::look_for_period(std::uint32_t round) {
  for (std::uint32_t period = 1; period <= kLongestPeriod && period + window_ <= round + 1;
       ++period) {
    const std::optional<double> period_ns = distance_ns(round, period);
    if (!period_ns) continue;
    bool alike = true;
    for (std::uint32_t n = round - window_ + 1; n < round && alike; ++n) {
      const std::optional<double> other_ns = distance_ns(n, period);
      alike = other_ns && same_time(*other_ns, *period_ns, end_ns_);
    }
    if (alike && ahead_is_alike(round, period, *period_ns)) {
      leave_out(round, period, *period_ns);
      return;
    }
  }
}

// How long after the round `period` before, if all its steps are that.
std::optional<double> Walk::distance_ns(std::uint32_t round, std::uint32_t period) const {
  const std::vector<double>& ends = rounds_[round].ends_ns;
  const std::vector<double>& before = rounds_[round - period].ends_ns;
  const double distance = ends.back() - before.back();
  for (std::size_t i = 0; i < ends.size(); ++i)
    if (!same_time(ends[i] - before[i], distance, end_ns_)) return std::nullopt;
  return distance;
}

// The same of what has been walked of the rounds after `round`.
bool Walk::ahead_is_alike(std::uint32_t round, std::uint32_t period, double period_ns) const {
  for (std::uint32_t n = round + 1; n < rounds_.size(); ++n) {
    const std::vector<double>& ends = rounds_[n].ends_ns;
    const std::vector<double>& before = rounds_[n - period].ends_ns;
    for (std::size_t i = 0; i < ends.size(); ++i)
      if (!std::isnan(ends[i]) && !same_time(ends[i] - before[i], period_ns, end_ns_)) return false;
  }
  return true;
}

// As many periods as lie between where any lane is and the last round of any.
void Walk::leave_out(std::uint32_t round, std::uint32_t period, double period_ns) {
  const std::uint32_t least = *std::ranges::min_element(lane_rounds_);
  if (least <= furthest_round_ + 1) return;
  skip_ = {round, period, (least - 1 - furthest_round_) / period, period_ns};
  for (std::uint32_t& rounds : lane_rounds_) rounds -= skip_.times * period;
}

Status Walk::stuck() const {
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    const EventGraph::Lane& lane = graph_.lanes[l];
    if (lanes_[l].round >= rounds_of(lane.replica) || lane.step_count == 0) continue;
    const Rank rank = graph_.ranks[lane.rank];
    return make_error(Code::kInternalError,
                      fmt::format("the simulated schedule is stuck with {} slots: rank {}, step {} "
                                  "of a lane, round {} waits for {} messages, steps or credits; "
                                  "this is a bug in the schedule, please report it",
                                  request_.slots, rank, lanes_[l].step - lane.first_step,
                                  lanes_[l].round, lanes_[l].lacks),
                      rank);
  }
  return {};
}

}  // namespace tutti
