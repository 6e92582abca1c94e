// SPDX-License-Identifier: Apache-2.0
#include "lab/fluid_links.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tutti {
namespace {

std::vector<double> capacities(const EventGraph& graph) {
  std::vector<double> bytes_per_ns;
  bytes_per_ns.reserve(graph.link_ns_per_byte.size());
  for (const double ns_per_byte : graph.link_ns_per_byte)
    bytes_per_ns.push_back(ns_per_byte > 0 ? 1 / ns_per_byte : FairShare::kNoLimit);
  return bytes_per_ns;
}

// Converts bytes, with a resolution of 2^-22 byte.
__extension__ __int128 served_of(double bytes) {
  constexpr int kKept = 22, kUnitBits = 44 + 26;
  static_assert(FairShare::kUnit * kGridNs == 1.0 / 0x1p70);
  return static_cast<__int128>(std::llround(std::ldexp(bytes, kKept))) << (kUnitBits - kKept);
}

}  // namespace

FluidLinks::FluidLinks(Walk& walk, Observer observer)
    : walk_(walk),
      graph_(walk.graph()),
      observer_(std::move(observer)),
      shares_(capacities(walk.graph())),
      gap_ns_(on_grid(walk.costs().gap_ns)),
      busy_(graph_.connections.size(), false),
      open_ns_(graph_.link_ns_per_byte.size(), 0) {
  for (std::size_t hop = 0; hop < kHopCount; ++hop) {
    alpha_ns_[hop] = walk.costs().hops[hop].alpha_ns;
    wire_bytes_[hop] = 1 / walk.costs().hops[hop].efficiency;
  }
  find_ways();
}

void FluidLinks::find_ways() {
  std::map<std::pair<double, std::vector<LinkId>>, std::uint32_t> known;
  way_of_.reserve(graph_.connections.size());
  for (std::uint32_t c = 0; c < graph_.connections.size(); ++c) {
    const EventGraph::Connection& connection = graph_.connections[c];
    const auto first = graph_.route_links.begin() + connection.first_link;
    const auto [way, fresh] =
        known.try_emplace({connection.ns_per_byte, {first, first + connection.link_count}},
                          static_cast<std::uint32_t>(ways_.size()));
    if (fresh) ways_.emplace_back().connection = c;
    way_of_.push_back(way->second);
  }
}

const EventGraph::Connection& FluidLinks::connection_of(std::uint32_t place) const {
  return graph_.connections[graph_.messages[graph_.sends[place]].connection];
}

void FluidLinks::send(std::uint32_t place, std::uint32_t round) {
  const std::uint32_t connection = graph_.messages[graph_.sends[place]].connection;
  const Sent sent{place, round, walk_.now_ns()};
  if (busy_[connection]) {
    waiting_[connection].push_back(sent);
    return;
  }
  busy_[connection] = true;
  ask(sent, walk_.now_ns());
}

void FluidLinks::ask(const Sent& sent, double now_ns) {
  const EventGraph::Step& step = graph_.steps[graph_.messages[graph_.sends[sent.place]].send_step];
  asking_.push_back({now_ns, 0, step.order, sent.place - step.first_send, sent});
}

// Link by link: who asks a first link comes before who asks a second one at the same time. Does any
// flow begin?
bool FluidLinks::admit_all(double now_ns) {
  bool any = false;
  for (; !later_.empty() && later_.top().time_ns <= now_ns; later_.pop())
    asking_.push_back(later_.top());
  while (!asking_.empty()) {
    std::ranges::sort(asking_, {}, &Asking::rank_now);
    const std::uint32_t hop = asking_.front().hop;
    const auto end =
        std::ranges::find_if(asking_, [&](const Asking& asking) { return asking.hop != hop; });
    level_.assign(asking_.begin(), end);
    asking_.erase(asking_.begin(), end);
    for (const Asking& asking : level_) any |= admit(asking, now_ns);
  }
  return any;
}

bool FluidLinks::admit(Asking asking, double now_ns) {
  const EventGraph::Connection& connection = connection_of(asking.sent.place);
  if (gap_ns_ == 0 || asking.hop == connection.link_count) return begin(asking, now_ns);
  const LinkId link = graph_.route_links[connection.first_link + asking.hop];
  ++asking.hop;
  if (graph_.link_ns_per_byte[link] > 0) {
    asking.time_ns = std::max(asking.time_ns, open_ns_[link]);
    open_ns_[link] = asking.time_ns + gap_ns_;
  }
  if (asking.time_ns > now_ns) {
    later_.push(asking);
  } else {
    asking_.push_back(asking);
  }
  return false;
}

double FluidLinks::next_ns() const {
  if (!asking_.empty()) return asking_.front().time_ns;
  double next_ns = std::numeric_limits<double>::infinity();
  if (!later_.empty()) next_ns = later_.top().time_ns;
  if (!ends_.empty()) next_ns = std::min(next_ns, ends_.front().time_ns);
  return next_ns;
}

void FluidLinks::run_until(double now_ns) {
  for (bool more = true; more;) {
    bool changed = end_flows(now_ns);
    changed |= admit_all(now_ns);
    if (changed) settle(now_ns);
    drop_old_ends();
    more = next_ns() <= now_ns;
  }
}

// False where it takes no time.
bool FluidLinks::begin(const Asking& asking, double now_ns) {
  const Sent& sent = asking.sent;
  const std::uint32_t message = graph_.sends[sent.place];
  const EventGraph::Connection& connection = connection_of(sent.place);
  const double bytes =
      walk_.bytes_of(message) * wire_bytes_[static_cast<std::size_t>(connection.hop)];
  if (bytes <= 0 || connection.ns_per_byte <= 0) {
    finish(sent, now_ns);
    return false;
  }
  const std::uint32_t number = way_of_[graph_.messages[message].connection];
  Way& way = ways_[number];
  if (way.members.empty()) {
    const auto links =
        std::span(graph_.route_links).subspan(connection.first_link, connection.link_count);
    way.flow = shares_.add(links, 1 / connection.ns_per_byte);
    way.rate = 0;
    way.since_ns = now_ns;
    if (way_of_flow_.size() <= way.flow) way_of_flow_.resize(way.flow + 1);
    way_of_flow_[way.flow] = number;
  }
  serve(way, now_ns);
  way.members.push({way.served + served_of(bytes), asking.order, asking.which, sent});
  if (way.members.size() > 1)
    shares_.resize(way.flow, static_cast<std::uint32_t>(way.members.size()));
  touch(number);
  return true;
}

void FluidLinks::serve(Way& way, double now_ns) {
  way.served += Served{way.rate} * std::llround((now_ns - way.since_ns) / kGridNs);
  way.since_ns = now_ns;
}

void FluidLinks::touch(std::uint32_t way) {
  if (ways_[way].touched) return;
  ways_[way].touched = true;
  touched_.push_back(way);
}

bool FluidLinks::end_flows(double now_ns) {
  bool any = false;
  while (!ends_.empty() && ends_.front().time_ns <= now_ns) {
    const End end = ends_.front();
    std::ranges::pop_heap(ends_, std::greater<>{});
    ends_.pop_back();
    Way& way = ways_[end.way];
    if (way.version != end.version) continue;
    serve(way, now_ns);
    for (; !way.members.empty() && way.members.top().target <= way.served; way.members.pop())
      finish(way.members.top().sent, now_ns);
    if (way.members.empty()) {
      shares_.remove(way.flow);
    } else {
      shares_.resize(way.flow, static_cast<std::uint32_t>(way.members.size()));
    }
    touch(end.way);
    any = true;
  }
  return any;
}

// The last byte has left the links: the connection's next message may go.
void FluidLinks::finish(const Sent& sent, double now_ns) {
  const std::uint32_t message = graph_.sends[sent.place];
  const std::uint32_t number = graph_.messages[message].connection;
  const EventGraph::Connection& connection = graph_.connections[number];
  const double there_ns =
      now_ns + on_grid(alpha_ns_[static_cast<std::size_t>(connection.hop)] + connection.latency_ns);
  if (observer_) observer_(message, sent.round, sent.sent_ns, there_ns);
  walk_.deliver(message, sent.round, there_ns);
  const auto waiting = waiting_.find(number);
  if (waiting == waiting_.end()) {
    busy_[number] = false;
    return;
  }
  const Sent next = waiting->second.front();
  waiting->second.pop_front();
  if (waiting->second.empty()) waiting_.erase(waiting);
  ask(next, now_ns);
}

// New rates, and new ends of the ways that have another rate or other members.
void FluidLinks::settle(double now_ns) {
  for (const FairShare::FlowId flow : shares_.update()) touch(way_of_flow_[flow]);
  const std::size_t before = ends_.size();
  for (const std::uint32_t number : touched_) {
    Way& way = ways_[number];
    way.touched = false;
    ++way.version;
    if (way.members.empty()) continue;
    serve(way, now_ns);
    way.rate = shares_.units(way.flow);
    const Served left = std::max(Served{0}, way.members.top().target - way.served);
    const auto grids = static_cast<double>((left + way.rate - 1) / way.rate);
    double end_ns = now_ns + grids * kGridNs;
    // Beyond 0.13 s times are coarser than the grid: the end is later all the same.
    if (left > 0 && end_ns <= now_ns)
      end_ns = std::nextafter(now_ns, std::numeric_limits<double>::infinity());
    ends_.push_back({end_ns, number, way.version});
  }
  touched_.clear();
  // Many new ends make as many old ones void: throw those out, and the heap keeps its size.
  if (ends_.size() - before > before / 4) {
    std::erase_if(ends_, [&](const End& end) { return ways_[end.way].version != end.version; });
    std::ranges::make_heap(ends_, std::greater<>{});
    return;
  }
  for (std::size_t i = before + 1; i <= ends_.size(); ++i)
    std::push_heap(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(i), std::greater<>{});
}

void FluidLinks::drop_old_ends() {
  while (!ends_.empty() && ways_[ends_.front().way].version != ends_.front().version) {
    std::ranges::pop_heap(ends_, std::greater<>{});
    ends_.pop_back();
  }
}

}  // namespace tutti
