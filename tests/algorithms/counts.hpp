// SPDX-License-Identifier: Apache-2.0
// Counted off a schedule: what the formulas of the families are compared with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/verifier.hpp"

namespace tutti::counts {

struct RankCounts {
  std::uint64_t messages = 0;        // sent
  std::uint64_t sent_chunks = 0;     // in them
  std::uint64_t reduced_chunks = 0;  // (sources - 1) * chunks
  std::uint64_t finished_chunks = 0;
};

inline RankCounts of(const RankProgram& program) {
  RankCounts counts;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) {
      const std::uint32_t chunks = step.sources.front().span.count();
      counts.reduced_chunks += (step.sources.size() - 1) * chunks;
      if (step.finish) counts.finished_chunks += chunks;
      for (const Operand& operand : step.destinations)
        if (operand.kind == OperandKind::kSend) {
          ++counts.messages;
          counts.sent_chunks += chunks;
        }
    }
  return counts;
}

// Of the operands of that kind.
inline std::uint64_t chunks_of(const RankProgram& program, OperandKind kind) {
  std::uint64_t chunks = 0;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const auto* side : {&step.destinations, &step.sources})
        for (const Operand& operand : *side)
          if (operand.kind == kind) chunks += operand.span.count();
  return chunks;
}

struct SentMessage {
  Rank to = 0;
  Span span;
  bool operator==(const SentMessage&) const = default;
};

// In the order of the program.
inline std::vector<SentMessage> sent_by(const RankProgram& program) {
  std::vector<SentMessage> sent;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : step.destinations)
        if (operand.kind == OperandKind::kSend) sent.push_back({operand.peer, operand.span});
  return sent;
}

// What the verifier says of a schedule that it must prove: messages in a row, order of the sum.
inline Proof proof_of(const Schedule& schedule) {
  const Result<Proof> proof = verify(schedule);
  EXPECT_TRUE(proof) << schedule.shape.algorithm << ", " << schedule.shape.ranks
                     << " ranks: " << proof.error().message;
  return proof.value_or(Proof{});
}

// ceil(log_radix p).
inline std::uint32_t ceil_log(std::uint64_t p, std::uint64_t radix) {
  std::uint32_t rounds = 0;
  for (std::uint64_t reached = 1; reached < p; reached *= radix) ++rounds;
  return rounds;
}

// Sender, receiver, tag.
using Connection = std::tuple<Rank, Rank, Tag>;

struct Connections {
  std::map<Connection, std::uint64_t> sends, receives;  // messages, as each end counts them
  std::map<Connection, std::set<std::size_t>> sending_lanes, receiving_lanes;
  std::uint32_t max_message_chunks = 0;

  explicit Connections(const Schedule& schedule) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (std::size_t l = 0; l < schedule.ranks[r].lanes.size(); ++l)
        for (const Step& step : schedule.ranks[r].lanes[l].steps) {
          for (const Operand& operand : step.destinations) add(operand, static_cast<Rank>(r), l);
          for (const Operand& operand : step.sources) add(operand, static_cast<Rank>(r), l);
        }
  }

  [[nodiscard]] std::uint32_t max_incoming() const {
    std::map<Rank, std::uint32_t> incoming;
    for (const auto& [connection, messages] : sends) ++incoming[std::get<1>(connection)];
    return most(incoming);
  }
  [[nodiscard]] std::uint32_t max_per_pair() const {
    std::map<std::pair<Rank, Rank>, std::uint32_t> pairs;
    for (const auto& [connection, messages] : sends)
      ++pairs[{std::get<0>(connection), std::get<1>(connection)}];
    return most(pairs);
  }

 private:
  void add(const Operand& operand, Rank rank, std::size_t lane) {
    if (operand.kind == OperandKind::kSend) {
      const Connection connection{rank, operand.peer, operand.tag};
      ++sends[connection];
      sending_lanes[connection].insert(lane);
      max_message_chunks = std::max(max_message_chunks, operand.span.count());
    } else if (operand.kind == OperandKind::kRecv) {
      const Connection connection{operand.peer, rank, operand.tag};
      ++receives[connection];
      receiving_lanes[connection].insert(lane);
    }
  }

  template <typename Map>
  static std::uint32_t most(const Map& map) {
    std::uint32_t most = 0;
    for (const auto& [key, value] : map) most = std::max(most, value);
    return most;
  }
};

}  // namespace tutti::counts
