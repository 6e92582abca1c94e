// SPDX-License-Identifier: Apache-2.0
#include "lab/simulator.hpp"

#include <algorithm>
#include <tuple>

#include "lab/event_walk.hpp"
#include "lab/fluid_links.hpp"
#include "model/event_graph.hpp"

namespace tutti {
namespace {

// Writes down steps and messages in the words of the programs.
class Tracer {
 public:
  Tracer(const EventGraph& graph, double chunk_bytes) : graph_(graph), chunk_bytes_(chunk_bytes) {
    for (std::uint32_t l = 0; l < graph.lanes.size(); ++l)
      if (l == 0 || graph.lanes[l].rank != graph.lanes[l - 1].rank) first_lanes_.push_back(l);
  }

  void step(std::uint32_t id, std::uint32_t round, double begin_ns, double end_ns) {
    events_.push_back(of_step(id, round));
    events_.back().begin_ns = begin_ns;
    events_.back().end_ns = end_ns;
  }
  void message(std::uint32_t id, std::uint32_t round, double sent_ns, double there_ns) {
    const EventGraph::Message& message = graph_.messages[id];
    SimulatedEvent event = of_step(message.send_step, round);
    event.kind = SimulatedEvent::Kind::kMessage;
    event.begin_ns = sent_ns;
    event.end_ns = there_ns;
    event.peer = graph_.ranks[graph_.lanes[graph_.steps[message.receive_step].lane].rank];
    event.bytes = message.chunks * chunk_bytes_;
    events_.push_back(event);
  }
  std::vector<SimulatedEvent> take() {
    std::ranges::sort(events_, {}, [](const SimulatedEvent& event) {
      return std::tuple(event.begin_ns, event.rank, event.lane, event.step, event.slice, event.kind,
                        event.peer);
    });
    return std::move(events_);
  }

 private:
  [[nodiscard]] SimulatedEvent of_step(std::uint32_t id, std::uint32_t round) const {
    const EventGraph::Lane& lane = graph_.lanes[graph_.steps[id].lane];
    SimulatedEvent event;
    event.rank = graph_.ranks[lane.rank];
    event.lane = graph_.steps[id].lane - first_lanes_[lane.rank];
    event.step = id - lane.first_step;
    event.slice = round * graph_.replicas + lane.replica;
    return event;
  }

  const EventGraph& graph_;
  double chunk_bytes_;
  std::vector<std::uint32_t> first_lanes_;  // by index of rank
  std::vector<SimulatedEvent> events_;
};

// Bytes do not depend on the order of events.
std::vector<double> busy_shares(const EventGraph& graph, const Costs& costs,
                                const SimulationRequest& request, double time_ns) {
  std::vector<double> busy(graph.link_ns_per_byte.size(), 0);
  const double chunk_bytes = static_cast<double>(request.bytes) / graph.chunks / request.slices;
  for (const EventGraph::Message& message : graph.messages) {
    const std::uint32_t replica = graph.lanes[graph.steps[message.send_step].lane].replica;
    if (replica >= request.slices || time_ns <= 0) continue;
    const std::uint32_t rounds = (request.slices - replica - 1) / graph.replicas + 1;
    const EventGraph::Connection& connection = graph.connections[message.connection];
    const double wire_bytes = message.chunks * chunk_bytes * rounds /
                              costs.hops[static_cast<std::size_t>(connection.hop)].efficiency;
    for (std::uint32_t i = 0; i < connection.link_count; ++i) {
      const LinkId link = graph.route_links[connection.first_link + i];
      busy[link] += wire_bytes * graph.link_ns_per_byte[link] / time_ns;
    }
  }
  return busy;
}

}  // namespace

Result<Simulation> simulate(const PlanModel& model, const Costs& costs,
                            const SimulationRequest& request) {
  TUTTI_TRY(check_request(costs, request.slices, request.slots));
  if (request.trace && !request.full)
    return make_error(Code::kInvalidArgument,
                      "a trace needs every slice: ask for all slices (full), or for no trace");
  const EventGraph& graph = model.graph();
  const double chunk_bytes = static_cast<double>(request.bytes) / graph.chunks / request.slices;
  Walk walk(graph, costs,
            {.chunk_bytes = chunk_bytes,
             .slices = request.slices,
             .slots = request.slots,
             .shortcut = !request.full});
  Tracer tracer(graph, chunk_bytes);
  FluidLinks::Observer observer;
  if (request.trace) {
    observer = [&](auto... what) { tracer.message(what...); };
    walk.observe([&](auto... what) { tracer.step(what...); });
  }
  FluidLinks links(walk, std::move(observer));
  TUTTI_TRY(walk.run(links));
  const double left_out_ns = walk.skip().times * walk.skip().period_ns;
  Simulation simulation;
  simulation.time_ns = walk.end_ns() + left_out_ns;
  simulation.ranks = graph.ranks;
  simulation.rank_ends_ns = walk.rank_ends_ns();
  for (double& end_ns : simulation.rank_ends_ns) end_ns += left_out_ns;
  simulation.link_busy = busy_shares(graph, costs, request, simulation.time_ns);
  simulation.events = walk.events();
  if (request.trace) simulation.trace = tracer.take();
  return simulation;
}

}  // namespace tutti
