// The host executor: runs a sealed plan as a state machine.
//
// advance() fires every step that is ready and returns; it never waits, so one thread can carry
// several operations (a group call of many ranks) by turns. No allocation, lock or virtual call per
// step. One thread at a time per operation. Knows no transport, bootstrap or configuration: its
// connections are plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/reduce_copy.hpp"
#include "runtime/plan.hpp"
#include "transports/connection.hpp"

namespace tutti {

// What one call binds to a plan.
struct OperationArgs {
  const void* input = nullptr;
  void* output = nullptr;  // may equal input: in place
  std::uint64_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceCopyFn kernel = nullptr;
  std::uint32_t average_over = 0;  // post-operation: divide by this; 0: none
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
  bool nontemporal_output = false;
};

// Traffic this rank sent; counts payload, not headers.
struct TrafficCounters {
  std::uint64_t messages = 0;
  std::uint64_t payload_bytes = 0;
};

class HostExecutor {
 public:
  // The plan, and its connections in the order of plan.sends and plan.recvs.
  HostExecutor(const Plan& plan, std::vector<Connection> sends, std::vector<Connection> recvs);

  // Begins an operation; the last one is done. Refuses a plan without a seal (kInternalError).
  [[nodiscard]] Status start(const OperationArgs& args);
  // Fires what is ready. True if anything fired.
  bool advance();
  [[nodiscard]] bool done() const { return lanes_left_ == 0; }

  // While not done: the peer whose message or credit is missing at the first blocked lane.
  [[nodiscard]] Rank blocked_on() const { return blocked_on_; }
  // Set when a message carried another operation's signature, or when a peer's counter made no
  // sense; advance() fires nothing more.
  enum class Fault : std::uint8_t { kNone, kSignature, kCorrupt };
  [[nodiscard]] Fault fault() const { return fault_; }
  [[nodiscard]] Rank fault_peer() const { return fault_peer_; }

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

  bool advance_lane(std::size_t lane);
  void enter_step(const PlanLane& lane, LaneState& state);
  void next_step(const PlanLane& lane, LaneState& state);
  [[nodiscard]] bool ready(const LaneState& state, const PlanStep& step);
  [[nodiscard]] bool waits_hold(const LaneState& state, const PlanStep& step) const;
  void fire(const PlanStep& step, std::uint32_t slice);
  void run_chunk(const PlanStep& step, std::uint32_t slice, std::uint32_t k,
                 std::uint64_t message_offset, std::uint64_t bytes);
  void complete_messages(const PlanStep& step, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t chunk_bytes(const PlanStep& step, std::uint32_t k,
                                          std::uint32_t slice) const;
  [[nodiscard]] std::byte* local_address(const PlanOperand& operand, std::uint32_t k,
                                         std::uint32_t slice);
  void raise(Fault fault, Rank peer);

  const Plan& plan_;
  std::vector<Connection> sends_, recvs_;
  std::vector<LaneState> states_;
  std::vector<std::byte> scratch_;
  std::vector<const void*> source_pointers_;
  std::vector<void*> destination_pointers_;
  OperationArgs args_;
  UniformCut cut_;
  std::size_t element_bytes_ = 1;
  std::uint64_t room_bytes_ = 0;
  std::size_t lanes_left_ = 0;
  Rank blocked_on_ = kNoRank;
  Fault fault_ = Fault::kNone;
  Rank fault_peer_ = kNoRank;
  TrafficCounters traffic_;
};

}  // namespace tutti
