// SPDX-License-Identifier: Apache-2.0
// Simulator: a plan run on a network at flow level.
//
// The steps, lanes, waits, credits and workers of the price (event_walk.hpp), but messages in
// flight share their links max-min fairly (fluid_links.hpp) instead of queueing one behind the
// other. So it is nearer to what switches and adapters do with many messages at once, and dearer.
// Where no two messages meet on a link both say the same.
//
// Pure; any thread. Memory of the represented ranks' steps; of every event where a trace is asked
// for.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/event_price.hpp"

namespace tutti {

struct SimulationRequest {
  std::uint64_t bytes = 0;  // of the collective, per rank
  std::uint32_t slices = 1;
  std::uint32_t slots = 2;  // per connection
  bool full = false;        // every slice, also where they repeat; a trace needs it
  bool trace = false;
};

struct SimulatedEvent {
  enum class Kind : std::uint8_t {
    kStep,     // from its start to its end, on a worker
    kMessage,  // from the end of its step to when it is at the peer
  };
  Kind kind = Kind::kStep;
  double begin_ns = 0, end_ns = 0;
  Rank rank = 0;
  Rank peer = kNoRank;  // of a message: who receives it, among the ranks that are represented
  std::uint32_t lane = 0, step = 0;  // of the rank's program (a message: of its sender's)
  std::uint32_t slice = 0;
  double bytes = 0;  // of a message
};

struct Simulation {
  double time_ns = 0;
  std::vector<Rank> ranks;           // those that were run: all, or one node's that stand for all
  std::vector<double> rank_ends_ns;  // of each of them: the end of its last step
  // For each link of their nodes: how much of the time it would take alone to carry what it
  // carried.
  std::vector<double> link_busy;
  std::uint64_t events = 0;           // steps that were run
  std::vector<SimulatedEvent> trace;  // by their begins
};

// Errors: as PlanModel::price; kInvalidArgument for a trace without `full`.
[[nodiscard]] Result<Simulation> simulate(const PlanModel& model, const Costs& costs,
                                          const SimulationRequest& request);

}  // namespace tutti
