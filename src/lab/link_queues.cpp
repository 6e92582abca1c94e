// SPDX-License-Identifier: Apache-2.0
#include "lab/link_queues.hpp"

#include <algorithm>
#include <tuple>

namespace tutti {

LinkQueues::LinkQueues(Walk& walk)
    : walk_(walk),
      graph_(walk.graph()),
      free_ns_(graph_.link_ns_per_byte.size(), 0),
      connection_free_ns_(graph_.connections.size(), 0),
      arrived_ns_(graph_.connections.size(), 0),
      gap_ns_(on_grid(walk.costs().gap_ns)) {
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    alpha_ns_[hop] = walk.costs().hops[hop].alpha_ns;
    wire_bytes_[hop] = 1 / walk.costs().hops[hop].efficiency;
  }
}

void LinkQueues::send(std::uint32_t place, std::uint32_t round) {
  const std::uint32_t number = graph_.sends[place];
  const EventGraph::Message& message = graph_.messages[number];
  const EventGraph::Connection& connection = graph_.connections[message.connection];
  const EventGraph::Step& step = graph_.steps[message.send_step];
  now_ns_ = walk_.now_ns();
  double& free_ns = connection_free_ns_[message.connection];
  const double start_ns = std::max(now_ns_, free_ns);
  Visit visit{
      .time_ns = start_ns,
      .through_ns = start_ns,
      .bytes_ns = walk_.bytes_of(number) * wire_bytes_[static_cast<std::size_t>(connection.hop)],
      .order = step.order,
      .which = place - step.first_send,
      .message = number,
      .connection = message.connection,
      .round = round,
      .hop = 0};
  visit.through_ns += alone_ns(visit);
  free_ns = visit.through_ns;
  if (connection.link_count == 0) {
    arrive(visit);
  } else if (start_ns > now_ns_) {
    later_.push(visit);
  } else {
    now_.push_back(visit);
  }
}

// From its start on it takes at least as long as it would alone.
double LinkQueues::alone_ns(const Visit& visit) const {
  return on_grid(visit.bytes_ns * graph_.connections[visit.connection].ns_per_byte);
}

double LinkQueues::next_ns() const {
  if (!now_.empty()) return now_ns_;
  return later_.next_ns();
}

void LinkQueues::run_until(double now_ns) {
  now_ns_ = now_ns;
  while (later_.next_ns() <= now_ns) now_.push_back(later_.pop());
  while (!now_.empty()) run_level();
}

// The visits at the least hop number; what they lead to at the same time has a larger one.
void LinkQueues::run_level() {
  const auto before = [](const Visit& a, const Visit& b) { return a.rank_now() < b.rank_now(); };
  if (!std::ranges::is_sorted(now_, before)) std::ranges::sort(now_, before);
  const std::uint32_t hop = now_.front().hop;
  const auto end = std::ranges::find_if(now_, [&](const Visit& visit) { return visit.hop != hop; });
  level_.assign(now_.begin(), end);
  now_.erase(now_.begin(), end);
  for (std::size_t i = 0; i < level_.size(); ++i) {
    fetch_after(i);
    cross(level_[i]);
  }
}

// Holds the values that later visits need.
void LinkQueues::fetch_after(std::size_t number) const {
  constexpr std::size_t kFirst = 24, kSecond = 16, kThird = 8;
  if (number + kFirst >= level_.size()) return;
  const Visit& first = level_[number + kFirst];
  __builtin_prefetch(&graph_.connections[first.connection]);
  __builtin_prefetch(&graph_.messages[first.message]);
  __builtin_prefetch(&arrived_ns_[first.connection], 1);
  const Visit& second = level_[number + kSecond];
  __builtin_prefetch(&graph_.route_links[graph_.connections[second.connection].first_link]);
  walk_.fetch_receiver(second.message, second.round);
  const Visit& third = level_[number + kThird];
  const std::uint32_t link = graph_.connections[third.connection].first_link + third.hop;
  __builtin_prefetch(&free_ns_[graph_.route_links[link]], 1);
  walk_.fetch_lane(third.message);
}

void LinkQueues::cross(Visit visit) {
  const EventGraph::Connection& connection = graph_.connections[visit.connection];
  const LinkId link = graph_.route_links[connection.first_link + visit.hop];
  const double bytes_ns = on_grid(visit.bytes_ns * graph_.link_ns_per_byte[link]);
  const double start_ns = std::max(visit.time_ns, free_ns_[link]);
  // A link without a limit serves all at once.
  if (graph_.link_ns_per_byte[link] > 0) free_ns_[link] = start_ns + bytes_ns + gap_ns_;
  visit.time_ns = start_ns;
  if (visit.hop == 0) visit.through_ns = start_ns + alone_ns(visit);
  visit.through_ns = std::max(visit.through_ns, start_ns + bytes_ns);
  if (++visit.hop == connection.link_count) {
    arrive(visit);
  } else {
    (start_ns == now_ns_ ? now_.push_back(visit) : later_.push(visit));
  }
}

void LinkQueues::arrive(const Visit& visit) {
  const EventGraph::Connection& connection = graph_.connections[visit.connection];
  const auto hop = static_cast<std::size_t>(connection.hop);
  double& arrived_ns = arrived_ns_[visit.connection];
  arrived_ns =
      std::max(arrived_ns, visit.through_ns + on_grid(alpha_ns_[hop] + connection.latency_ns));
  walk_.deliver(visit.message, visit.round, arrived_ns);
}

}  // namespace tutti
