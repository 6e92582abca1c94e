// SPDX-License-Identifier: Apache-2.0
// What the threads of a block share, where its lanes are in the program, and which bytes a step
// moves.
//
// A block is anything with
//   block() blocks() thread() threads()   its place
//   warp()                                threads 0 to warp() - 1 look for work together
//   sync()                                a barrier of its threads that orders memory among them
//   warp_sync(), all(bool)                the same of the first warp; all() is a vote besides
//   line_all(bool), line_store(function)  of the eight threads, from a multiple of eight on, that
//                                         share an LL128 line: a vote; and stores that they make
//                                         together, the last thread's seen with or after the
//                                         others'
//   pause()                               called between two looks
//   now_ns()                              a clock
//   shared(), room(), room_bytes()        its Shared, and memory of its own; both the same for all
//   kLanes                                threads that access memory together (a warp; 1 on a host)
//   kPackets                              does its kernel move packets, or all else?
//   kLooks                                how often a thread looks for a packet before it looks at
//                                         the clock and for an abort between
// and with the words that others write or read:
//   load(word), acquire(word)             relaxed; ordered before what follows
//   store(word, value)                    relaxed
//   fence(), publish(word, value)         what came before fence() comes before what publish() says
//   add(word)                             plus one; acquire and release; returns what was there
//   together(function)                    the loads in it do not wait for each other
//   attempt(function)                     a function that is called once
//   look(function)                        a function that is called until it returns true
// The last three matter to who counts alone: `together` counts as one load, and what returns false
// counts as none, since it takes the time that is waited for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/task.hpp"

namespace tutti::device {

inline constexpr std::uint32_t kNoLane = 0xffffffff;

// A block's part of the program, and the state of its lanes and connections, in its room or, if
// that is too small, in the image.
struct View {
  const Lane* lanes = nullptr;
  const Loop* loops = nullptr;
  const Step* steps = nullptr;
  const Operand* operands = nullptr;
  const LoopWait* waits = nullptr;
  RankWords* const* remotes = nullptr;
  End* sends = nullptr;
  End* recvs = nullptr;
  LaneState* states = nullptr;
  std::uint32_t lane_count = 0;
};

struct Position {
  const LaneState* state = nullptr;
  const Lane* lane = nullptr;
  const Step* step = nullptr;
  const Operand* operands = nullptr;  // of the step
};

// A chunk of a step in packets. It fits into a message's slot.
struct PacketChunk {
  std::uint32_t bytes = 0;
  std::uint32_t lines = 0;
  std::uint32_t first_line = 1;  // in each message
};

struct Shared {
  Task task;  // with the operation's number
  View view;
  std::uint32_t lane = kNoLane;  // whose step is moved now; kNoLane: all is over
  Position at;                   // of that lane
  bool gave_up = false;          // it was over before the lanes were done
  // The operands of the step's first chunks, as many chunks as there is room for.
  void* addresses[kMaxOperands];
  // Of steps in packets, whose messages' addresses are those of their first lines: the epoch of
  // each operand's message, 0 of one in memory.
  std::uint64_t epochs[kMaxOperands];
  PacketChunk chunks[kMaxOperands / 2];  // whose addresses are there; of two operands at least
  std::uint32_t first_chunk = 0, chunk_count = 0;
};

[[nodiscard]] TUTTI_HD inline Position position_of(const View& view, std::uint32_t lane) {
  const LaneState& state = view.states[lane];
  const Lane& of = view.lanes[lane];
  const Step* const step =
      &view.steps[view.loops[of.first_loop + state.loop].first_step + state.step];
  return {&state, &of, step, &view.operands[step->first_operand]};
}

// One thread.
TUTTI_HD inline void next_step(const View& view, std::uint32_t lane, std::uint32_t replicas) {
  LaneState& state = view.states[lane];
  const Lane& of = view.lanes[lane];
  const Loop& loop = view.loops[of.first_loop + state.loop];
  ++state.fired;
  if (++state.step < loop.steps) return;
  state.step = 0;
  if (++state.repetition < loop.repetitions) return;
  state.repetition = 0;
  if (++state.loop < of.loops) return;
  state.loop = 0;
  state.slice += replicas;
}

[[nodiscard]] TUTTI_HD inline std::uint32_t operands_of(const Step& step) {
  return std::uint32_t{step.destinations} + step.sources;
}
[[nodiscard]] TUTTI_HD inline std::uint32_t chunks_of(const Position& at) {
  return at.operands->span.count();
}
[[nodiscard]] TUTTI_HD inline bool in_scratch(const Operand& operand) {
  return operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch;
}

// Of an operand that is a message.
[[nodiscard]] TUTTI_HD inline End& end_of(const View& view, const Operand& operand) {
  return (operand.kind == OperandKind::kSend ? view.sends : view.recvs)[operand.connection];
}

// Returns the bytes of the step's k-th chunk: scratch takes its size from the first operand that
// names a real one.
[[nodiscard]] TUTTI_HD_COLD inline std::uint64_t chunk_bytes(const Task& task, const Position& at,
                                                             std::uint32_t k) {
  for (std::uint32_t i = 0; i < operands_of(*at.step); ++i) {
    const Operand& operand = at.operands[i];
    if (in_scratch(operand)) continue;
    const std::uint32_t chunk = chunk_at(operand, at.state->repetition, k, task.chunks);
    return task.cut.slice(chunk, at.state->slice).count() * task.element_bytes;
  }
  return task.room_bytes;
}

// Returns where the k-th chunk of an operand in a buffer lies.
template <class Block>
[[nodiscard]] TUTTI_HD_COLD std::byte* memory_of(Block& block, const Position& at,
                                                 const Operand& operand, std::uint32_t k) {
  const Task& task = block.shared().task;
  if (in_scratch(operand)) {
    const std::uint32_t room = chunk_at(operand, at.state->repetition, k, task.scratch_rooms);
    const std::uint32_t version = at.state->slice / task.replicas % task.scratch_versions;
    return task.scratch +
           (std::uint64_t{version} * task.scratch_rooms.number() + room) * task.room_bytes;
  }
  const std::uint32_t chunk = chunk_at(operand, at.state->repetition, k, task.chunks);
  const std::uint64_t offset = task.cut.slice(chunk, at.state->slice).begin * task.element_bytes;
  const bool input = operand.buffer == BufferKind::kInput;
  if (operand.kind == OperandKind::kRemote) {
    // Relaxed: the peer wrote them before it sent the signal after which this step runs.
    const RankWords& peer = *block.shared().view.remotes[operand.connection];
    return reinterpret_cast<std::byte*>(block.load(input ? peer.input : peer.output)) + offset;
  }
  // Sources are only read; a plan never lists input as a destination (verified).
  return (input ? const_cast<std::byte*>(task.input) : task.output) + offset;
}

// ---- faults and patience -----------------------------------------------------------------------

template <class Block>
[[nodiscard]] TUTTI_HD bool stopped(Block& block) {
  return block.load(block.shared().task.own->abort) != 0;
}

// The same, asking the host as well; what it says is passed on to the rank's other blocks.
template <class Block>
[[nodiscard]] TUTTI_HD_COLD bool told_to_stop(Block& block) {
  const Task& task = block.shared().task;
  if (task.host->stop.load(std::memory_order_relaxed) != 0)
    task.own->abort.store(1, std::memory_order_relaxed);
  return stopped(block);
}

// Tells the host, then ends the operation on all ranks. Any thread.
template <class Block>
TUTTI_HD_COLD void raise(Block& block, Fault fault, Rank peer, FaultPlace place) {
  const Task& task = block.shared().task;
  if (block.add(task.own->faults) == 0) {
    place.block = block.block();
    write_place(*task.host, place);
    task.host->fault.store(fault_word(fault, peer), std::memory_order_release);
  }
  for (std::uint32_t rank = 0; rank < task.rank_count; ++rank)
    task.ranks[rank]->abort.store(1, std::memory_order_release);
}

[[nodiscard]] TUTTI_HD inline FaultPlace place_of(const View& view, const Position& at,
                                                  bool receives) {
  FaultPlace place;
  place.lane = at.lane->number;
  place.slice = at.state->slice;
  place.step =
      static_cast<std::uint32_t>(at.step - view.steps) - view.loops[at.lane->first_loop].first_step;
  place.receives = receives;
  return place;
}

// How long a thread has found nothing to do; the host and the clock are asked now and then.
class Patience {
 public:
  enum class Answer : std::uint8_t { kGoOn, kStopped, kOver };
  // A round without anything to do; kOver once they last longer than the task allows.
  template <class Block>
  [[nodiscard]] TUTTI_HD Answer wait(Block& block) {
    block.pause();
    ++rounds_;
    if (rounds_ % 64 != 0) return Answer::kGoOn;
    if (rounds_ % 1024 != 0) return stopped(block) ? Answer::kStopped : Answer::kGoOn;
    if (told_to_stop(block)) return Answer::kStopped;
    const std::uint64_t timeout_ns = block.shared().task.timeout_ns;
    if (timeout_ns == 0) return Answer::kGoOn;
    const std::uint64_t now = block.now_ns();
    if (since_ == 0) since_ = now;
    return now - since_ > timeout_ns ? Answer::kOver : Answer::kGoOn;
  }

 private:
  std::uint64_t since_ = 0;
  std::uint32_t rounds_ = 0;
};

}  // namespace tutti::device
