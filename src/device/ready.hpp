// SPDX-License-Identifier: Apache-2.0
// Which step a block moves next: the first warp looks, one wait or operand a thread, and votes.
//
// A step is ready when its waits hold and its connections have a credit and a message. A message in
// packets need not have come where all blocks own one lane each, on each rank: whoever reads it
// waits for it, and nothing else could be done meanwhile. Otherwise its first line must have come:
// then its sender has begun the step, and a begun step depends on begun steps alone. (If only some
// blocks had one lane, these would begin steps whose own messages have not come, and send first
// lines that others take for more.)
#pragma once

#include "device/position.hpp"
#include "transports/connection_ops.hpp"

namespace tutti::device {

// The next message's lines.
[[nodiscard]] TUTTI_HD inline Word* lines_of(const Connection& c) {
  return reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(c.cells) + c.slot * c.slot_bytes);
}

template <class Block>
[[nodiscard]] TUTTI_HD bool wait_holds(Block& block, const Position& at, std::uint32_t i) {
  const Shared& shared = block.shared();
  const LoopWait& loop_wait = shared.view.waits[at.step->first_wait + i];
  const std::uint32_t turn = at.state->slice / shared.task.replicas;
  if (turn < loop_wait.wait.back) return true;
  const std::uint32_t step = loop_wait.wait.step + loop_wait.advance * at.state->repetition;
  const std::uint64_t needed = std::uint64_t{turn - loop_wait.wait.back} * loop_wait.steps + step;
  if (loop_wait.in_block != LoopWait::kElsewhere)
    return shared.view.states[loop_wait.in_block].fired > needed;
  // What that step wrote comes before what this one reads (complete()).
  return block.acquire(shared.task.fired[loop_wait.wait.lane]) > needed;
}

// The other end wrote a counter that cannot be.
template <class Block>
TUTTI_HD_COLD void raise_corrupt(Block& block, const Position& at, End& end, bool receives,
                                 std::uint64_t seen) {
  end.own.corrupt = true;
  FaultPlace place = place_of(block.shared().view, at, receives);
  place.expected = end.own.next;
  place.seen = seen;
  raise(block, Fault::kCorrupt, end.peer, place);
}

// Is there room for the next message?
template <class Block>
[[nodiscard]] TUTTI_HD bool can_send_on(Block& block, const Position& at, std::uint32_t number) {
  End& end = block.shared().view.sends[number];
  ConnectionState& state = end.own;
  if (state.next - state.seen < end.slots || !block.shared().task.credits) return !state.corrupt;
  const std::uint64_t consumed = block.acquire(end.words->consumed);
  if (consumed - state.seen > state.next - state.seen) {
    raise_corrupt(block, at, end, false, consumed);
    return false;
  }
  state.seen = consumed;
  return state.next - consumed < end.slots;
}

template <class Block>
[[nodiscard]] TUTTI_HD bool slot_come(Block& block, const Position& at, std::uint32_t number) {
  End& end = block.shared().view.recvs[number];
  ConnectionState& state = end.own;
  if (state.corrupt) return false;
  if (state.seen > state.next) return true;
  const std::uint64_t produced = block.acquire(end.words->produced);
  if (produced - state.seen > state.next + kMaxSlots - state.seen) {
    raise_corrupt(block, at, end, true, produced);
    return false;
  }
  state.seen = produced;
  return produced > state.next;
}

// The signature of the next message, which has come, in a slot or a cell.
[[nodiscard]] TUTTI_HD inline std::uint64_t signature_of(const End& end, Messages messages) {
  if (messages == Messages::kSlots) return slot_header(end, end.slot).signature;
  // Relaxed: ordered by the acquire of the same cell's epoch.
  return end.cells[std::size_t{end.slot} * end.cells_per_slot].signature.load(
      std::memory_order_relaxed);
}

template <class Block>
[[nodiscard]] TUTTI_HD_COLD bool signature_is_own(Block& block, const Position& at,
                                                  std::uint32_t number, std::uint64_t signature) {
  if (signature == block.shared().task.signature) return true;
  FaultPlace place = place_of(block.shared().view, at, true);
  place.expected = block.shared().task.signature;
  place.seen = signature;
  raise(block, Fault::kSignature, block.shared().view.recvs[number].peer, place);
  return false;
}

// Where the epoch of a message in packets stands first.
[[nodiscard]] TUTTI_HD inline const Word& first_flag(const End& end, Messages messages) {
  return lines_of(end)[messages == Messages::kLl128 ? 15 : messages == Messages::kLl16 ? 1 : 0];
}
[[nodiscard]] TUTTI_HD inline bool is_flag(std::uint64_t word, std::uint64_t epoch,
                                           Messages messages) {
  return messages == Messages::kLl8 ? word >> 32 == packet_detail::flag_of(epoch) : word == epoch;
}

template <class Block>
[[nodiscard]] TUTTI_HD bool can_recv_on(Block& block, const Position& at, std::uint32_t number) {
  const Messages messages = block.shared().task.messages;
  End& end = block.shared().view.recvs[number];
  if constexpr (Block::kPackets) {
    if (block.shared().task.one_lane && block.shared().view.lane_count == 1) return true;
    // Relaxed: whoever reads the line looks at its flag again.
    return is_flag(block.load(first_flag(end, messages)), connection_detail::epoch_of_next(end),
                   messages);
  }
  if (messages == Messages::kSlots) {
    if (!slot_come(block, at, number)) return false;
  } else if (block.acquire(end.cells[std::size_t{end.slot} * end.cells_per_slot].epoch) !=
             connection_detail::epoch_of_next(end)) {
    return false;
  }
  return signature_is_own(block, at, number, signature_of(end, messages));
}

template <class Block>
[[nodiscard]] TUTTI_HD bool operand_ready(Block& block, const Position& at, std::uint32_t i) {
  const Operand& operand = at.operands[i];
  if (operand.kind == OperandKind::kSend) return can_send_on(block, at, operand.connection);
  if (operand.kind == OperandKind::kRecv) return can_recv_on(block, at, operand.connection);
  return true;
}

// The first warp.
template <class Block>
[[nodiscard]] TUTTI_HD_COLD bool ready(Block& block, std::uint32_t lane) {
  const Position at = position_of(block.shared().view, lane);
  const std::uint32_t waits = at.step->waits, all = waits + operands_of(*at.step);
  bool mine = true;
  for (std::uint32_t i = block.thread(); i < all && mine; i += block.warp())
    mine = i < waits ? wait_holds(block, at, i) : operand_ready(block, at, i - waits);
  return block.all(mine);
}

// Says for whose message or credit the first unfinished lane of this block waits. One thread.
template <class Block>
TUTTI_HD_COLD void raise_timeout(Block& block) {
  const View& view = block.shared().view;
  Position& at = block.shared().at;  // no step is moved any more
  for (std::uint32_t lane = 0; lane < view.lane_count; ++lane) {
    if (view.states[lane].slice >= block.shared().task.cut.slices()) continue;
    at = position_of(view, lane);
    for (std::uint32_t i = 0; i < operands_of(*at.step); ++i) {
      if (operand_ready(block, at, i)) continue;
      const Operand& operand = at.operands[i];
      const bool receives = operand.kind == OperandKind::kRecv;
      const End& end = end_of(view, operand);
      FaultPlace place = place_of(view, at, receives);
      place.expected = end.own.next + (receives ? 1 : 0);
      place.seen = end.own.seen;
      return raise(block, Fault::kTimeout, end.peer, place);
    }
  }
  raise(block, Fault::kTimeout, kNoRank, {});
}

// A lane of this block whose step is ready; kNoLane when all its lanes are done, or stopped. The
// first warp.
template <class Block>
[[nodiscard]] TUTTI_HD_COLD std::uint32_t next_ready(Block& block) {
  const Shared& shared = block.shared();
  std::uint32_t found = kNoLane;
  Patience patience;
  Patience::Answer answer = Patience::Answer::kGoOn;
  bool goes_on = true;
  block.look([&] {
    bool open = false;
    for (std::uint32_t lane = 0; lane < shared.view.lane_count; ++lane) {
      if (shared.view.states[lane].slice >= shared.task.cut.slices()) continue;
      open = true;
      if (!ready(block, lane)) continue;
      found = lane;
      return true;
    }
    if (!open) return true;
    if (block.thread() == 0) answer = patience.wait(block);
    goes_on = block.all(answer == Patience::Answer::kGoOn);
    return !goes_on;
  });
  if (goes_on || block.thread() != 0) return found;
  block.shared().gave_up = true;
  if (answer == Patience::Answer::kOver) raise_timeout(block);
  return found;
}

}  // namespace tutti::device
