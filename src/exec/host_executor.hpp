// SPDX-License-Identifier: Apache-2.0
// The host executor: runs a sealed plan as a state machine.
//
// advance() fires every step that is ready and returns; it never waits, so one thread can carry
// several operations (a group call of many ranks) by turns. No allocation, lock or virtual call per
// step. One thread at a time per operation. Knows no transport, bootstrap or configuration: its
// connections are plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "exec/peer_memory.hpp"
#include "exec/store_gauge.hpp"
#include "exec/straight_line.hpp"
#include "kernels/reduce_copy.hpp"
#include "plan/plan.hpp"
#include "transports/connection_ops.hpp"

namespace tutti {

// Holds the arguments that one call binds to a plan.
struct OperationArgs {
  const Call* call = nullptr;  // read by start() alone, but for its sizes and its user_op
  ReduceCopyFn kernel = nullptr;
  std::uint32_t average_over = 0;  // post-operation: divide by this; 0: none
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
  bool nontemporal_output = false;
  bool in_windows = false;  // on all ranks: peers' memory is mapped, and not copied by the kernel
  // May these be lent to connections that are pumped? (Transport::may_lend)
  bool lend_input = false, lend_output = false;
};

// Traffic of this rank; counts payload, not headers.
struct TrafficCounters {
  std::uint64_t messages = 0;       // sent
  std::uint64_t payload_bytes = 0;  // sent
  std::uint64_t lent_bytes = 0;     // of these, from the user's memory, without a copy
  std::uint64_t read_bytes = 0;     // of peers' memory
  std::uint64_t stored_bytes = 0;   // in peers' memory
  std::uint64_t around_bytes = 0;   // of all these, or of what sends bring, stored around the cache
  std::uint64_t placed_bytes = 0;   // received straight into the output, without a copy

  TrafficCounters& operator+=(const TrafficCounters& other) {
    messages += other.messages;
    payload_bytes += other.payload_bytes;
    lent_bytes += other.lent_bytes;
    around_bytes += other.around_bytes;
    read_bytes += other.read_bytes;
    stored_bytes += other.stored_bytes;
    placed_bytes += other.placed_bytes;
    return *this;
  }
};

// Holds what a plan with remote operands needs besides connections.
struct DirectAccess {
  LentMemory* own = nullptr;      // outlives the executor
  std::vector<PeerMemory> peers;  // in the order of plan.remotes
};

class HostExecutor {
 public:
  // The plan, and its connections in the order of plan.sends and plan.recvs.
  HostExecutor(const Plan& plan, std::vector<Connection> sends, std::vector<Connection> recvs,
               DirectAccess direct = {});

  // Begins an operation; the last one is done. Refuses a plan without a seal (kInternalError).
  [[nodiscard]] Status start(const OperationArgs& args);
  // Fires what is ready. True if anything fired.
  bool advance();
  // Every step has been fired, and nothing of the user's memory is lent any more.
  [[nodiscard]] bool done() const { return lanes_left_ == 0 && std::ranges::all_of(lends_, taken); }

  // The plan's steps for calls like this one, with its kernel and divisor, whatever their number
  // and buffers; none where they are not simple: several slices, steps that wait for other lanes,
  // peers' memory. Lanes go by turns, a step each: an order that no rank needs, since whoever waits
  // in vain leaves the line. `pumped`: calls bring a pump.
  [[nodiscard]] std::optional<StraightLine> straighten(const OperationArgs& args,
                                                       bool pumped = false);
  // In the place of start() and advance(): runs the line to its end. False: after so many looks a
  // step still lacked something, or the pump failed, and advance() goes on from there.
  [[nodiscard]] bool run(const StraightLine& line, const StraightCall& call,
                         std::uint32_t most_looks) {
    return line.ops.empty() ? run_steps(line, call, most_looks) : run_cells(line, call, most_looks);
  }

  // Takes the buffers of an operation that will not be completed back from the peers that use
  // them; waits for those that are in the middle of a piece of a step, if they read, for those of
  // this process alone. Returns a peer of another process, not `gone`, that was still storing after
  // `wait_ns`, so that it is stopped or starved: it may write a last piece to the output
  // when it goes on. kNoRank: there is none.
  static constexpr std::int64_t kMostStoreWaitNs = 1'000'000'000;
  Rank withdraw(const std::function<bool(Rank)>& gone, std::int64_t wait_ns = kMostStoreWaitNs);

  // While not done: the peer whose message or credit is missing at the first blocked lane.
  [[nodiscard]] Rank blocked_on() const { return blocked_on_; }
  // The first such peer, at any lane, that is `wanted`; kNoRank: there is none. Until the next
  // advance(), blocked_on() and blocked_at() speak of it. For a look at who is to blame: it asks
  // every lane.
  [[nodiscard]] Rank blocked_on_one(const std::function<bool(Rank)>& wanted);
  // And where: that lane, the step in it and the slice that it cannot do.
  struct Place {
    std::uint32_t lane = 0, step = 0, slice = 0;
  };
  [[nodiscard]] Place blocked_at() const;
  // Set when a message carried another operation's signature, when a peer's counter made no sense,
  // or when a peer's memory could not be read; advance() fires nothing more.
  enum class Fault : std::uint8_t { kNone, kSignature, kCorrupt, kUnreadable };
  [[nodiscard]] Fault fault() const { return fault_; }
  [[nodiscard]] Rank fault_peer() const { return fault_peer_; }
  // kUnreadable: why; 0: the peer has given up.
  [[nodiscard]] int fault_errno() const { return fault_errno_; }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] std::uint32_t slices() const { return cut_.slices; }
  [[nodiscard]] const TrafficCounters& traffic() const { return traffic_; }
  [[nodiscard]] std::uint64_t scratch_bytes() const { return scratch_.size(); }

 private:
  struct LaneState {
    std::uint32_t slice = 0;  // of this operation
    std::uint32_t step = 0;   // within the lane
    std::uint64_t fired = 0;  // steps completed in this operation
    std::uint64_t bytes = 0;  // of the current step's messages
  };

  // A message whose payload is the user's memory until the transport has taken it.
  struct Lend {
    const ConnectionState* state = nullptr;
    std::uint64_t message = 0;
    Rank peer = kNoRank;
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };
  [[nodiscard]] static bool taken(const Lend& lend) { return lend.state->taken > lend.message; }

  // host_executor_straight.cpp
  void note_answered(StraightLine& line);
  [[nodiscard]] bool add_straight(StraightLine& line, const PlanStep& step, const Call& call);
  void add_places(StraightLine& line, std::span<const PlanOperand> operands, std::uint32_t k,
                  std::uint64_t done, std::uint64_t in_message) const;
  [[nodiscard]] inline bool may_run(const StraightLine& line, const StraightStep& step,
                                    std::uint64_t signature);
  void run_step(const StraightLine& line, const StraightStep& step, std::uint64_t signature);
  template <bool kAround>
  inline void run_kernel(const StraightLine& line, const StraightMove& move);
  template <bool kAround>
  inline void run_moves(const StraightLine& line, const StraightStep& step);
  void run_gauged(const StraightLine& line, const StraightStep& step);
  [[nodiscard]] bool run_steps(const StraightLine& line, const StraightCall& call,
                               std::uint32_t most_looks);
  static void fetch_cells(const StraightLine& line);
  // host_executor_cells.cpp
  void note_cells(StraightLine& line);
  [[nodiscard]] bool run_cells(const StraightLine& line, const StraightCall& call,
                               std::uint32_t most_looks);
  void go_on_at_cells(const StraightLine& line, std::uint32_t step, const StraightCall& call);
  void go_on_at(const StraightLine& line, std::size_t step, const StraightCall& call);

  void begin(std::uint64_t operation, bool short_messages);
  void use_short_messages(bool yes);
  // A message's payload lies in pieces of so many bytes.
  [[nodiscard]] std::uint64_t segment_bytes() const {
    return plan_.options.protocol == Protocol::kFlagged ? kCellPayloadBytes : UINT64_MAX;
  }
  bool advance_lane(std::size_t lane);
  void enter_step(const PlanLane& lane, LaneState& state);
  void next_step(const PlanLane& lane, LaneState& state);
  [[nodiscard]] bool ready(const LaneState& state, const PlanStep& step);
  void block_on(Rank peer, const LaneState& state);
  [[nodiscard]] Rank lent_to(const PlanStep& step, std::uint32_t slice);
  [[nodiscard]] std::byte* one_piece(const PlanStep& step, const PlanOperand& operand,
                                     std::uint32_t slice);
  [[nodiscard]] const std::byte* lendable(const PlanStep& step, const LaneState& state);
  [[nodiscard]] bool lends(const PlanOperand& operand) const {
    return lent_ != nullptr && operand.kind == OperandKind::kSend &&
           takes_lent(sends_[operand.connection]);
  }
  void offer_output(const PlanStep& step, const LaneState& state, Connection& connection);
  void withdraw_offers(const std::byte* begin, const std::byte* end);
  [[nodiscard]] bool waits_hold(const LaneState& state, const PlanStep& step) const;
  bool fire(const PlanStep& step, const LaneState& state);
  void run_chunks(const PlanStep& step, const LaneState& state);
  [[nodiscard]] StoreGauge& gauge_of(const PlanStep& step, std::uint64_t bytes);
  [[nodiscard]] bool fills_shared_slots(const PlanStep& step) const;
  [[nodiscard]] ReduceCopyArgs kernel_call(const PlanStep& step) const;
  void run_chunk(const PlanStep& step, std::uint32_t slice, std::uint32_t k,
                 std::uint64_t message_offset, std::uint64_t bytes);
  // host_executor_direct.cpp
  [[nodiscard]] std::span<const PlanOperand> operands_of(const PlanStep& step) const {
    return std::span(plan_.operands)
        .subspan(step.first_operand, std::size_t{step.destinations} + step.sources);
  }
  bool fire_remote(const PlanStep& step, const LaneState& state);
  void run_chunks_remote(const PlanStep& step, const LaneState& state);
  void run_chunk_remote(const PlanStep& step, std::uint32_t slice, std::uint32_t k);
  [[nodiscard]] bool address_piece(const PlanStep& step, std::uint32_t slice, std::uint32_t k,
                                   std::uint64_t offset, std::uint64_t bytes, bool plain);
  [[nodiscard]] const void* load_remote(const PlanOperand& operand, std::uint64_t offset,
                                        std::uint64_t bytes, void* bounce);
  [[nodiscard]] void* store_remote(const PlanOperand& operand, std::uint64_t offset,
                                   std::uint64_t bytes);
  [[nodiscard]] bool still_lent(const PlanStep& step);
  [[nodiscard]] void* bounce_of(std::uint32_t source) {
    return bounce_.empty() ? nullptr : &bounce_[source * piece_bytes_ / sizeof(Line)];
  }
  void complete_messages(const PlanStep& step, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t chunk_bytes(const PlanStep& step, std::uint32_t k,
                                          std::uint32_t slice) const;
  [[nodiscard]] std::uint32_t data_chunk(const PlanOperand& operand, std::uint32_t k,
                                         std::uint32_t slice) const;
  [[nodiscard]] ElementRange elements_of(const PlanOperand& operand, std::uint32_t k,
                                         std::uint32_t slice) const;
  [[nodiscard]] std::uint64_t offset_of(const PlanOperand& operand, std::uint32_t k,
                                        std::uint32_t slice) const;
  [[nodiscard]] std::byte* local_address(const PlanOperand& operand, std::uint32_t k,
                                         std::uint32_t slice);
  void raise(Fault fault, Rank peer);

  const Plan& plan_;
  std::vector<Connection> sends_, recvs_;
  bool short_messages_ = false;  // of the last operation: its connections use short cells
  DirectAccess direct_;
  struct Line {
    alignas(kCacheLineBytes) std::byte bytes[kCacheLineBytes];
  };
  std::vector<Line> bounce_;  // a piece of every source that is read by cross-memory attach
  std::uint64_t piece_bytes_ = 0;
  bool all_mapped_ = true;     // peers are of this process
  std::vector<bool> entered_;  // by peer: in the step that is being fired
  std::vector<LaneState> states_;
  std::vector<std::byte> scratch_;
  std::vector<const void*> source_pointers_;
  std::vector<void*> destination_pointers_;
  std::vector<std::byte*> bases_;  // of a straight line's places
  OperationArgs args_;
  std::uint64_t input_base_ = 0, output_base_ = 0;  // Call::input_base
  UniformCut cut_;
  const BlockSizes* sizes_ = nullptr;  // of the call's blocks; null: they are equal
  const UserOp* user_op_ = nullptr;    // of the call; null: it has none
  DataType type_ = DataType::kFloat32;
  std::size_t element_bytes_ = 1;
  std::uint64_t room_bytes_ = 0;
  std::vector<Lend> lends_;
  const std::byte* lent_ = nullptr;  // by the step that is being fired; null: nothing
  std::vector<StoreGauge> gauges_;   // by step; of a direct plan also by kind of call
  bool around_ = false;              // of the step that is being fired: its stores for other ranks
  std::byte* placed_ = nullptr;  // of the step that is being fired: where its message's payload is
  std::size_t lanes_left_ = 0;
  Rank blocked_on_ = kNoRank;
  std::size_t blocked_lane_ = 0;  // meaningful where blocked_on_ is
  Fault fault_ = Fault::kNone;
  Rank fault_peer_ = kNoRank;
  int fault_errno_ = 0;
  TrafficCounters traffic_;
};

}  // namespace tutti
