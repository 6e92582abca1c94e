// SPDX-License-Identifier: Apache-2.0
// A plan: one rank's share of a schedule, compiled once and run many times.
//
// schedule + protocol + replicas + slots + slot capacity, flattened into three arrays (lanes,
// steps, operands) that the executor walks without allocating. The protocol is kDirect where the
// schedule reads or writes peers' memory: its messages are then empty, signals in flagged cells. A
// plan does not depend on the call's count: how many slices a call needs follows from the capacity
// (slices_for). Both ends compute the places of its connections in memory (the buffer layout) from
// the same inputs; they are never exchanged. Pure: knows no transport object, no thread, no
// communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "schedule/cut.hpp"
#include "schedule/rank_order.hpp"
#include "transports/connection.hpp"
#include "transports/packets.hpp"

namespace tutti {

// Calls of at most so many bytes of data repeat in a straight line, if they have one slice
// (exec/straight_line.hpp).
inline constexpr std::uint64_t kMostStraightBytes = 16 << 10;

inline constexpr std::uint64_t kMaxSlices = std::uint64_t{1} << 30;

struct PlanOptions {
  Protocol protocol = Protocol::kSlots;
  std::uint32_t replicas = 1;
  std::uint32_t slots = 2;
  // kSlots: wanted slot size, header included. kDirect: the most of a chunk in one slice; 0: all.
  std::uint64_t slot_bytes = 0;
  std::uint64_t arena_bytes = 0;  // inbox arena of every rank; kSlots only
  std::uint64_t arena_begin = 0;  // where in it the plan's messages begin (arena_uses.hpp)
  std::uint32_t min_slices = 1;   // run at least this many slices
  // kFlagged: 512-byte cells of every pair, and what they are divided into where not one cell after
  // the other (devices).
  std::uint32_t cells_per_pair = kCellsPerPair;
  std::uint32_t connections_per_pair = kPlanConnectionsPerPair;  // that the transport has room for
  std::optional<PacketFormat> packets = {};
  bool always_verify = false;
  // Say which rank takes which position of the schedule: replica j's are the orders' j-th, in turn;
  // they outlive the plan. Null or empty: by number.
  const std::vector<RankOrder>* orders = nullptr;
  bool operator==(const PlanOptions&) const = default;
};

// Says why an executor may run a plan. kFamily: algorithm x passes are proved by the test suite at
// its listed rank counts; kVerified: this very schedule was proved when it was compiled.
enum class Seal : std::uint8_t { kNone, kFamily, kVerified };

struct PlanOperand {
  OperandKind kind = OperandKind::kLocal;
  BufferKind buffer = BufferKind::kInput;
  std::uint16_t connection = 0;  // into Plan::sends, Plan::recvs or Plan::remotes
  Rank peer = kNoRank;
  Span span;
};

struct PlanStep {
  std::uint32_t first_operand = 0;  // destinations first, then sources
  std::uint32_t first_wait = 0;
  std::uint16_t destinations = 0;
  std::uint16_t sources = 0;
  std::uint16_t waits = 0;
  bool finish = false;
  bool remote = false;  // some operand lies in a peer's memory
  bool stores = false;  // some destination does
};

struct PlanLane {
  std::uint32_t first_step = 0;
  std::uint32_t steps = 0;
  std::uint32_t replica = 0;
};

struct Plan {
  std::uint64_t id = 0;     // equal on all ranks; travels in the operation's signature
  std::uint64_t carve = 0;  // equal for plans that lay the same connections over the same memory
  // Equal for plans that divide a pair's cells alike, so that a connection's slots lie where they
  // lay, whichever of them used it before. Of a plan in slots without meaning.
  std::uint64_t cells = 0;
  Seal seal = Seal::kNone;
  const Algorithm* algorithm = nullptr;
  ScheduleShape shape;
  PlanOptions options;
  Rank rank = 0;
  std::uint64_t message_bytes = 0;  // capacity of one message's payload
  std::vector<PlanLane> lanes;
  std::vector<PlanStep> steps;
  std::vector<PlanOperand> operands;
  std::vector<Wait> waits;
  std::vector<ConnectionSpec> sends, recvs;
  std::vector<Rank> remotes;  // whose memory is read or written, and who may do so in this rank's
  bool stores = false;        // this rank writes theirs

  // The cut of a call's data, `count` as in Call, with the fewest slices with which every message
  // fits. More than kMaxSlices: refuse the call.
  [[nodiscard]] std::uint64_t slices_for(std::uint64_t count, std::size_t element_bytes) const;
  // Is no message of a call with this cut longer than a cell holds? Alike on all ranks.
  [[nodiscard]] bool has_short_messages(const UniformCut& cut, std::size_t element_bytes) const {
    return options.protocol == Protocol::kFlagged &&
           shape.max_message_chunks * cut.max_slice_count() * element_bytes <= kCellPayloadBytes;
  }
  [[nodiscard]] UniformCut cut_of(std::uint64_t count, std::size_t element_bytes,
                                  std::uint64_t slices) const;
};

// Errors: kNotSupported if the family does not cover the problem; kInvalidUsage with the verifier's
// message if the schedule falls; kInvalidArgument if the options cannot be laid out (the arena or
// the pair's cells are too small for two slots a connection); kNotSupported for remote operands
// without kDirect, for messages with data under it, for peers' scratch, and for an order of ranks
// in a collective whose chunks belong to ranks. The seal holds for every order: a proof
// speaks of places (passes.hpp, reorder).
[[nodiscard]] Result<Plan> compile_plan(const Algorithm& algorithm, const Problem& problem,
                                        const PlanOptions& options, Rank rank);

// The id that compile_plan will give, wherever in the arena; equal on all ranks for equal inputs.
[[nodiscard]] std::uint64_t plan_id(const Algorithm& algorithm, const Problem& problem,
                                    const PlanOptions& options);

// Payload bytes of one message under these options: what compile_plan will lay out. O(1).
[[nodiscard]] Result<std::uint64_t> message_capacity(const Algorithm& algorithm,
                                                     const Problem& problem,
                                                     const PlanOptions& options);

// Bytes of each rank's arena that the plan's messages take; equal on all ranks. 0 without slots.
[[nodiscard]] Result<std::uint64_t> arena_bytes_of(const Algorithm& algorithm,
                                                   const Problem& problem,
                                                   const PlanOptions& options);

// Elements per cache line: the cut's grain for this type.
[[nodiscard]] inline std::uint64_t grain_elements(std::size_t element_bytes) {
  return kCacheLineBytes / element_bytes;
}

}  // namespace tutti
