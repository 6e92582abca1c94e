// SPDX-License-Identifier: Apache-2.0
// Price of a plan over a network: the longest path through its event graph.
//
// Steps are events. A step starts when its lane, its waits, its messages and the credits of its
// sends are there and its rank's worker is free; it holds the worker for
//   step_ns + sum over operands of bytes * operand_ns_per_byte (+ remote terms).
// Then its messages leave: a message holds each link of its route for bytes * ns_per_byte(link) /
// efficiency + gap_ns, in the order in which messages come to the link, and is there alpha +
// latency + its bytes at the slowest link later. So contention for ports, NICs and cores is a
// queue, not a factor, and phases that load different links add up.
//
// Where nodes are alike and the algorithm treats all ranks alike (Algorithm::symmetry), the ranks
// of one node stand for all; slices are run until each adds the same, then counted. Both are exact
// where they apply, and tests hold them against the full walk. Levels of a hierarchy that wait for
// each other one way only run at a pace each, and never repeat together: PriceRequest::most_slices
// bounds their walk.
//
// Pure; any thread. Memory of the represented ranks' steps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "algorithms/algorithm.hpp"
#include "lab/costs.hpp"
#include "model/network.hpp"

namespace tutti {

struct EventGraph;  // event_graph.hpp

struct PriceRequest {
  std::uint64_t bytes = 0;  // of the collective, per rank
  std::uint32_t slices = 1;
  std::uint32_t slots = 2;  // per connection
  bool full = false;        // every rank and every slice: the oracle of the shortcuts
  // If there are more slices, only this many are walked (fewer if they repeat sooner), and each of
  // the others is taken to add as much as one of the later half of these: near, not exact. 0: all
  // slices are walked.
  std::uint32_t most_slices = 0;
};

// Divides the time of the longest path; sums to time_ns (to rounding).
struct PriceTerms {
  double start_ns = 0;
  std::array<double, kHopCount> latency_ns{};   // alpha + latency of messages, by hop
  std::array<double, kHopCount> transfer_ns{};  // bytes over links, by hop
  double queue_ns = 0;                          // behind other messages, for a worker, for credits
  double steps_ns = 0;
  double operands_ns = 0;  // copied and reduced bytes
};

// Counts along the longest path: the regressors of a fit. time = their product with Costs where
// nothing queued.
struct PathCounts {
  std::array<std::uint64_t, kHopCount> messages{};
  std::array<double, kHopCount> link_byte_ns{};  // sum of bytes * ns_per_byte, at efficiency 1
  std::uint64_t steps = 0;
  double operand_bytes = 0;
};

struct PlanPrice {
  double time_ns = 0;
  PriceTerms terms;
  PathCounts path;
  std::uint64_t events = 0;  // steps that were walked, of all that there are:
  double total_events = 0;
};

// An algorithm's steps among the ranks of a network, ready to be priced at any size: made once,
// priced often.
class PlanModel {
 public:
  // replicas as in replicate(). Errors: check_problem's; kInvalidArgument where the problem's ranks
  // are not the network's.
  [[nodiscard]] static Result<PlanModel> make(const Algorithm& algorithm, const Problem& problem,
                                              const Network& network, std::uint32_t replicas = 1,
                                              bool every_rank = false);
  // costs may differ from call to call. kInternal names the rank that is stuck.
  // kInvalidArgument: no slices, no slots, or an efficiency that is none; kNotSupported: too many
  // slices to walk.
  [[nodiscard]] Result<PlanPrice> price(const Costs& costs, const PriceRequest& request) const;

  [[nodiscard]] const EventGraph& graph() const;  // for the simulator

  PlanModel(PlanModel&&) noexcept;
  PlanModel& operator=(PlanModel&&) noexcept;
  ~PlanModel();

 private:
  explicit PlanModel(std::unique_ptr<EventGraph> graph);
  std::unique_ptr<EventGraph> graph_;
};

}  // namespace tutti
