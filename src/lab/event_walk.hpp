// SPDX-License-Identifier: Apache-2.0
// Event walk: a plan's steps run in the order of time, over any model of the links.
//
// Steps, lanes, waits, credits and workers are here, the same for the price and the simulator; what
// happens to a message between its sender's step and its receiver's is Traffic's. A lane's next
// step is looked at once the one before it has started: what it lacks is counted, and whatever
// comes later counts it down (each lack is met exactly once). Steps are then served in the order in
// which they became ready, ties by EventGraph::Step::order.
//
// Times are multiples of kGridNs, so that up to 2^53 of them sums are exact: what is equal is
// equal to the last bit, whatever the order of additions, and ties do not hang on rounding.
//
// A round is a slice of a lane's replica. With `shortcut`, rounds are walked until all times of a
// few of them in a row lie the same time after those of the rounds `period` before; from then on
// the state only moves in time, and whole periods are left out. One thread; bounded by kMostEvents.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lab/costs.hpp"
#include "lab/event_queue.hpp"
#include "model/event_graph.hpp"

namespace tutti {

inline constexpr double kGridNs = 0x1p-26;  // exact sums up to 0.13 s, 1e-9 of 15 ns
[[nodiscard]] inline double on_grid(double time_ns) {
  return std::nearbyint(time_ns / kGridNs) * kGridNs;
}
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

class Walk;

// The links: takes messages and tells the walk when each is there.
class Traffic {
 public:
  virtual ~Traffic() = default;
  // `place` in EventGraph::sends; at the time that the walk is at.
  virtual void send(std::uint32_t place, std::uint32_t round) = 0;
  // When something happens here next; infinity: nothing until the next send.
  [[nodiscard]] virtual double next_ns() const = 0;
  // A message of this connection will be sent soon.
  virtual void fetch(std::uint32_t /*connection*/) const {}
  // Does all that happens up to the time `now_ns`; calls Walk::deliver.
  virtual void run_until(double now_ns) = 0;
};

// Refuses requests that cannot be walked: kInvalidArgument for no slices, no slots, or an
// efficiency out of range.
[[nodiscard]] Status check_request(const Costs& costs, std::uint32_t slices, std::uint32_t slots);

struct WalkRequest {
  double chunk_bytes = 0;  // of one chunk of one slice
  std::uint32_t slices = 1;
  std::uint32_t slots = 2;
  bool shortcut = false;
};

class Walk {
 public:
  // Says what a step waited for last: 0, the step before in its lane; 1 + a message; kWait + its
  // k-th wait.
  static constexpr std::uint32_t kWait = std::uint32_t{1} << 31;
  static constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 28;

  // Rounds that were left out: `times` times `period` of them after round `at`, each of the periods
  // `period_ns` long.
  struct Skip {
    std::uint32_t at = 0, period = 0, times = 0;
    double period_ns = 0;
  };

  // All outlive the walk.
  Walk(const EventGraph& graph, const Costs& costs, const WalkRequest& request);

  // Is told of every step that starts: (step, round, start_ns, end_ns).
  using Observer = std::function<void(std::uint32_t, std::uint32_t, double, double)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  // To the last step. kInternalError names the step of a rank that is stuck; kNotSupported: more
  // than kMostEvents.
  [[nodiscard]] Status run(Traffic& traffic);
  // From Traffic: the message is there at `time_ns`, not before the present.
  void deliver(std::uint32_t message, std::uint32_t round, double time_ns);

  // For Traffic that knows what it will deliver: brings its memory near, the lane after the rest.
  void fetch_receiver(std::uint32_t message, std::uint32_t round) const {
    __builtin_prefetch(&graph_.steps[graph_.messages[message].receive_step]);
    if (round < rounds_.size()) __builtin_prefetch(&rounds_[round].arrivals_ns[message], 1);
  }
  void fetch_lane(std::uint32_t message) const {
    __builtin_prefetch(&lanes_[graph_.steps[graph_.messages[message].receive_step].lane], 1);
  }

  [[nodiscard]] double now_ns() const { return now_ns_; }
  [[nodiscard]] const EventGraph& graph() const { return graph_; }
  [[nodiscard]] const Costs& costs() const { return costs_; }
  [[nodiscard]] double bytes_of(std::uint32_t message) const {
    return graph_.messages[message].chunks * request_.chunk_bytes;
  }

  // After run().
  [[nodiscard]] double end_ns() const { return end_ns_; }
  [[nodiscard]] const Skip& skip() const { return skip_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  [[nodiscard]] std::uint32_t last_step() const { return last_step_; }
  [[nodiscard]] std::uint32_t last_round() const { return last_round_; }
  [[nodiscard]] std::uint32_t reason(std::uint32_t step, std::uint32_t round) const {
    return rounds_[round].reasons[step];
  }
  // By index in EventGraph::ranks: when the rank is through. Does not know of rounds left out.
  [[nodiscard]] const std::vector<double>& rank_ends_ns() const { return rank_ends_ns_; }
  [[nodiscard]] double cost_ns(const EventGraph::Step& step) const;

 private:
  struct LaneState {
    std::uint32_t step = 0, round = 0;  // the next one
    std::uint32_t lacks = 0;            // messages, waits and credits
    std::uint32_t reason = 0;
    double ready_ns = 0;   // by all but credits
    double credit_ns = 0;  // by credits
    bool looked_at = false;
  };
  struct Worker {
    double free_ns = 0;
    std::uint32_t rank = std::numeric_limits<std::uint32_t>::max();
  };
  struct Round {
    std::vector<double> ends_ns;      // by step; kUnknown: not started
    std::vector<double> arrivals_ns;  // by message
    std::vector<std::uint32_t> reasons;
    std::uint32_t lanes_left = 0;
  };
  struct Event {
    double time_ns;
    std::uint32_t order;
    std::uint32_t step;
    std::uint32_t round;
    bool sends;  // its messages leave; else it is ready
    [[nodiscard]] bool operator>(const Event& other) const {
      if (time_ns != other.time_ns) return time_ns > other.time_ns;
      if (order != other.order) return order > other.order;
      return step != other.step ? step > other.step : round > other.round;
    }
  };

  Round& round_at(std::uint32_t round);
  void free_rounds(std::uint32_t finished);
  [[nodiscard]] std::uint32_t rounds_of(std::uint32_t replica) const;
  void look_at(std::uint32_t lane, double lane_ready_ns);
  [[nodiscard]] double credit_ns(std::uint32_t message, std::uint32_t round) const;
  void require(LaneState& lane, double known_ns, std::uint32_t reason) const;
  void meet(std::uint32_t step, std::uint32_t round, double time_ns, std::uint32_t reason);
  void meet_credit(std::uint32_t step, std::uint32_t round, double time_ns);
  void queue_if_ready(std::uint32_t lane);
  void start(std::uint32_t lane);
  [[nodiscard]] double take_worker(std::uint32_t rank, double ready_ns, double cost_ns);
  void tell(std::uint32_t step, std::uint32_t round, double end_ns);
  void give_credits(std::uint32_t step, std::uint32_t round, double end_ns);
  void advance(std::uint32_t lane, double end_ns);
  void finish_round(std::uint32_t round);
  void look_for_period(std::uint32_t round);
  [[nodiscard]] std::optional<double> distance_ns(std::uint32_t round, std::uint32_t period) const;
  [[nodiscard]] bool ahead_is_alike(std::uint32_t round, std::uint32_t period,
                                    double period_ns) const;
  void leave_out(std::uint32_t round, std::uint32_t period, double period_ns);
  void fetch_ahead(const Traffic& traffic) const;
  [[nodiscard]] Status stuck() const;

  const EventGraph& graph_;
  const Costs costs_;
  const WalkRequest request_;
  double operand_ns_per_chunk_ = 0, remote_ns_per_chunk_ = 0;
  std::vector<LaneState> lanes_;
  std::vector<std::uint32_t> lane_rounds_;  // by replica: how many it runs
  std::vector<double> rank_free_ns_, rank_ends_ns_;
  std::vector<std::vector<Worker>> pools_;  // empty: every rank has a worker of its own
  std::vector<Round> rounds_;
  std::vector<Round> spare_;
  EventQueue<Event> events_ahead_;
  bool credits_ = true;       // does any connection have more messages than slots?
  std::uint32_t window_ = 1;  // rounds in a row that must be alike
  std::uint32_t kept_from_ = 0;
  std::uint32_t furthest_round_ = 0;
  Observer observer_;
  Skip skip_;
  double now_ns_ = 0, end_ns_ = 0;
  std::uint32_t last_step_ = 0, last_round_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t lanes_left_ = 0;
};

}  // namespace tutti
