// SPDX-License-Identifier: Apache-2.0
// One replica of a schedule in flat arrays, with every message matched to its receive: what the
// proofs walk over.
//
// A connection belongs to one lane at each end and balances within a slice, so that the k-th
// message of a slice is always taken by the k-th receive of the same slice: the match is static.
// Replicas share no tag, lane or scratch room, and their slices are distinct parts of input and
// output; so each replica is proved alone, and equal replicas once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedule/verify/rules.hpp"

namespace tutti::proof {

struct FlatLane {
  Rank rank = 0;
  std::uint32_t lane = 0;  // as the schedule numbers it
  std::uint32_t first_step = 0;
  std::uint32_t steps = 0;
};

struct FlatWait {
  std::uint32_t step = 0;  // flat
  std::uint32_t back = 0;
};

// Ranges of Model::sends, recvs and waits; sends and recvs in the order of the step's operands.
struct FlatStep {
  const Step* step = nullptr;
  std::uint32_t lane = 0;   // flat
  std::uint32_t index = 0;  // in its lane
  std::uint32_t first_send = 0, sends = 0;
  std::uint32_t first_recv = 0, recvs = 0;
  std::uint32_t first_wait = 0, waits = 0;
};

struct Message {
  std::uint32_t sender = 0;    // flat step
  std::uint32_t receiver = 0;  // flat step
  std::uint32_t connection = 0;
  std::uint32_t position = 0;     // among the messages of a slice on its connection
  std::uint64_t first_value = 0;  // in a table of all messages' chunks
};

struct Connection {
  Rank from = 0;
  Rank to = 0;
  Tag tag = 0;
  std::uint32_t sender = 0;    // flat lane
  std::uint32_t receiver = 0;  // flat lane
};

struct Model {
  const Schedule* schedule = nullptr;
  std::uint32_t replica = 0;
  std::vector<FlatLane> lanes;              // by rank
  std::vector<std::uint32_t> rank_lanes;    // lanes of rank r: [rank_lanes[r], rank_lanes[r+1])
  std::vector<FlatStep> steps;              // by lane
  std::vector<std::uint32_t> sends, recvs;  // message numbers
  std::vector<FlatWait> waits;
  std::vector<Message> messages;
  std::vector<Connection> connections;
  std::uint64_t message_chunks = 0;
  std::uint32_t max_message_chunks = 0;

  [[nodiscard]] const ScheduleShape& shape() const { return schedule->shape; }
  [[nodiscard]] std::span<const std::uint32_t> sends_of(const FlatStep& step) const {
    return std::span(sends).subspan(step.first_send, step.sends);
  }
  [[nodiscard]] std::span<const std::uint32_t> recvs_of(const FlatStep& step) const {
    return std::span(recvs).subspan(step.first_recv, step.recvs);
  }
  [[nodiscard]] std::span<const FlatWait> waits_of(const FlatStep& step) const {
    return std::span(waits).subspan(step.first_wait, step.waits);
  }
  [[nodiscard]] Rank rank_of(const FlatStep& step) const { return lanes[step.lane].rank; }
  [[nodiscard]] Site site_of(std::uint32_t step) const {
    const FlatLane& lane = lanes[steps[step].lane];
    return {lane.rank, lane.lane, steps[step].index};
  }
  [[nodiscard]] tl::unexpected<Error> fall_at(Rule rule, std::uint32_t step,
                                              std::string_view text) const {
    return fall(rule, *schedule, site_of(step), text);
  }
};

// Every static rule on the lanes of one replica, then the model.
[[nodiscard]] Result<Model> build_model(const Schedule& schedule, std::uint32_t replica);

// Returns whether two replicas differ only in tags, scratch slots and lane numbers, as `replicate`
// leaves them, and their ranks stand in one order.
[[nodiscard]] bool same_replica(const Schedule& schedule, std::uint32_t a, std::uint32_t b);

// Connections of all replicas, for the counts that the shape declares.
struct ConnectionCounts {
  std::vector<std::uint32_t> incoming;  // by rank
  std::map<std::pair<Rank, Rank>, std::uint32_t> per_pair;
  std::uint32_t max_message_chunks = 0;

  void add(const Model& model);
  [[nodiscard]] Status check(const ScheduleShape& shape) const;
};

}  // namespace tutti::proof
