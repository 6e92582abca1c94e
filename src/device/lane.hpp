// SPDX-License-Identifier: Apache-2.0
// The interpreter: a block of threads runs the lanes that it owns, step by step, until all are
// done.
//
// One source for a CUDA block and for the host emulation of one (position.hpp says what a block
// is). The first warp looks for a lane whose next step is ready (ready.hpp) and writes where its
// operands lie; all threads move the step's bytes; the first warp makes them visible. Two barriers
// a step, whatever its bytes (more for data in cells, and where more than kMaxOperands addresses
// are needed); one fence at most, and none where nobody but the block itself waits
// for what the step did. Whoever launches sees to it that all blocks of all ranks that talk are
// resident, since they wait for each other.
//
// Order of memory: sync() makes what all threads read and wrote come before the first warp's fence,
// and each of its threads then tells one peer; a thread's acquire and sync() make a message's bytes
// come before all threads' reads. (PTX, memory consistency model: the release pattern is a fence
// and then a write of the same thread, so each has a fence of its own; they are one instruction.)
// Nothing is allocated. It ends early when the rank's abort word is not 0, which whoever finds a
// fault sets on all ranks, and a rank's own blocks once the host says so; then the connections are
// in no defined state.
#pragma once

#include "device/move_packets.hpp"

namespace tutti::device {

// ---- addresses: the first warp -----------------------------------------------------------------

// Do the operands of all chunks fit among the addresses?
[[nodiscard]] TUTTI_HD inline bool fit_together(const Position& at) {
  return chunks_of(at) * operands_of(*at.step) <= kMaxOperands;
}

// Bytes of a message before its k-th chunk.
[[nodiscard]] TUTTI_HD inline std::uint64_t bytes_before(const Task& task, const Position& at,
                                                         std::uint32_t k) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < k; ++i) bytes += chunk_bytes(task, at, i);
  return bytes;
}

template <class Block>
[[nodiscard]] TUTTI_HD void* address_of(Block& block, const Position& at, std::uint32_t i,
                                        std::uint32_t k) {
  const Operand& operand = at.operands[i];
  const Shared& shared = block.shared();
  if (!is_message(operand)) return memory_of(block, at, operand, k);
  const End& end = end_of(shared.view, operand);
  if constexpr (Block::kPackets) return lines_of(end);
  return payload_of(end, end.slot).base + bytes_before(shared.task, at, k);
}

// Those of `chunks` chunks from `first` on. `threads` threads share it, of which this is `thread`.
template <class Block>
TUTTI_HD_COLD void write_addresses(Block& block, const Position& at, std::uint32_t first,
                                   std::uint32_t chunks, std::uint32_t thread,
                                   std::uint32_t threads) {
  const std::uint32_t each = operands_of(*at.step);
  for (std::uint32_t i = thread; i < chunks * each; i += threads) {
    const std::uint32_t k = first + i / each;
    block.shared().addresses[i] = address_of(block, at, i % each, k);
  }
}

// Where as many chunks as fit lie from `first` on, and their lines in messages. `threads` threads
// share it, of which this is `thread`.
template <class Block>
TUTTI_HD_COLD void write_places(Block& block, const Position& at, std::uint32_t first,
                                std::uint32_t thread, std::uint32_t threads) {
  const std::uint32_t chunks = fit_together(at) ? chunks_of(at) : 1;
  write_addresses(block, at, first, chunks, thread, threads);
  Shared& shared = block.shared();
  if constexpr (Block::kPackets) {
    for (std::uint32_t i = thread; i < operands_of(*at.step); i += threads) {
      const Operand& operand = at.operands[i];
      shared.epochs[i] =
          is_message(operand) ? connection_detail::epoch_of_next(end_of(shared.view, operand)) : 0;
    }
    if (thread != 0) return;
    std::uint32_t line = 1;
    for (std::uint32_t k = 0; k < first + chunks; ++k) {
      const std::uint64_t bytes = chunk_bytes(shared.task, at, k);
      const std::uint64_t lines =
          with_format(block, [&]<PacketFormat format>() { return lines_for(format, bytes) - 1; });
      if (k >= first)
        shared.chunks[k - first] = {static_cast<std::uint32_t>(bytes),
                                    static_cast<std::uint32_t>(lines), line};
      line += static_cast<std::uint32_t>(lines);
    }
    shared.first_chunk = first;
    shared.chunk_count = chunks;
  }
}

// What all threads need of the step that they are to move.
template <class Block>
TUTTI_HD_COLD void announce(Block& block, std::uint32_t lane) {
  Shared& shared = block.shared();
  if (block.thread() == 0) {
    shared.lane = lane;
    shared.at = position_of(shared.view, lane);
  }
  block.warp_sync();
  write_places(block, shared.at, 0, block.thread(), block.warp());
}

// ---- moving a step's bytes: all threads --------------------------------------------------------

template <class Fold, class Block>
TUTTI_HD void move_piece(Block& block, void* const* addresses, std::uint64_t bytes) {
  const Task& task = block.shared().task;
  const Step& step = *block.shared().at.step;
  const DeviceReduceCopy call{.sources = addresses + step.destinations,
                              .destinations = addresses,
                              .source_count = step.sources,
                              .destination_count = step.destinations,
                              .elements = bytes / Fold::kElementBytes,
                              .average_over = step.finish ? task.average_over : 0};
  const Threads<Block::kLanes> threads{block.thread(), block.threads()};
  if (step.sources == 1 && call.average_over <= 1)
    copy_apart(threads, call, Fold::kElementBytes);
  else
    reduce_copy_apart<Fold>(threads, call);
}

// Where the chunks lie that come next; all threads. False: there are none.
template <class Block>
[[nodiscard]] TUTTI_HD_COLD bool next_chunks(Block& block) {
  const Shared& shared = block.shared();
  const std::uint32_t next = shared.first_chunk + shared.chunk_count;
  if (next >= chunks_of(shared.at)) return false;
  block.sync();  // before they are written again
  write_places(block, shared.at, next, block.thread(), block.threads());
  block.sync();
  return true;
}

// A thread that gives up still comes to the barriers of the others; it soon finds again that the
// rank has stopped.
template <class Fold, class Block>
TUTTI_HD void move_packets(Block& block) {
  with_format(block, [&]<PacketFormat format>() { send_headers<format>(block); });
  do move_chunks<Fold>(block);
  while (next_chunks(block));
}

// Messages with data in cells: writes the addresses of what is left of a chunk, and returns how
// many bytes of it come before a cell ends.
template <class Block>
TUTTI_HD_COLD std::uint64_t next_in_cells(Block& block, std::uint32_t k, std::uint64_t done,
                                          std::uint64_t left) {
  const Position& at = block.shared().at;
  const std::uint64_t in_message = bytes_before(block.shared().task, at, k) + done;
  for (std::uint32_t i = block.thread(); i < operands_of(*at.step); i += block.threads()) {
    const Operand& operand = at.operands[i];
    if (!is_message(operand)) {
      block.shared().addresses[i] = memory_of(block, at, operand, k) + done;
      continue;
    }
    const End& end = end_of(block.shared().view, operand);
    block.shared().addresses[i] = byte_at(payload_of(end, end.slot), in_message);
  }
  return least(left, kCellPayloadBytes - in_message % kCellPayloadBytes);
}

// A piece is a chunk, but where messages have data in cells. Called from one place, so that the
// registers of what moves the bytes are those that a kernel has left.
template <class Fold, class Block>
TUTTI_HD void move_pieces(Block& block) {
  const Position& at = block.shared().at;
  const bool in_cells = block.shared().task.messages == Messages::kCells && at.step->messages;
  const bool together = fit_together(at) && !in_cells;
  for (std::uint32_t k = 0; k < chunks_of(at); ++k) {
    std::uint64_t left = chunk_bytes(block.shared().task, at, k);
    for (std::uint64_t done = 0; left > 0;) {
      std::uint64_t piece = left;
      if (!together) {
        block.sync();  // before the addresses are written again
        if (in_cells)
          piece = next_in_cells(block, k, done, left);
        else
          write_addresses(block, at, k, 1, block.thread(), block.threads());
        block.sync();
      }
      move_piece<Fold>(block, block.shared().addresses + (together ? k * operands_of(*at.step) : 0),
                       piece);
      done += piece;
      left -= piece;
    }
  }
}

template <class Fold, class Block>
TUTTI_HD void move_step(Block& block) {
  if constexpr (Block::kPackets)
    move_packets<Fold>(block);
  else
    move_pieces<Fold>(block);
}

// ---- after a step: the first warp --------------------------------------------------------------

// What a message holds beside its payload, before the fence; and what tells of it, behind it.
TUTTI_HD inline void write_header(End& end, Messages messages, std::uint64_t signature,
                                  std::uint64_t bytes) {
  if (messages == Messages::kSlots) {
    slot_header(end, end.slot) = {signature, bytes};
    return;
  }
  Cell* const cells = end.cells + std::size_t{end.slot} * end.cells_per_slot;
  for (std::uint32_t i = 0; i < cells_for(bytes); ++i)
    cells[i].signature.store(signature, std::memory_order_relaxed);
}
template <class Block>
TUTTI_HD void tell(Block& block, End& end, Messages messages, std::uint64_t bytes) {
  if constexpr (Block::kPackets) {
    // They speak for themselves.
  } else if (messages == Messages::kSlots) {
    block.publish(end.words->produced, end.own.next + 1);
  } else {
    Cell* const cells = end.cells + std::size_t{end.slot} * end.cells_per_slot;
    // The first alone says that the message is there; the others say to which their bytes belong.
    for (std::uint32_t i = cells_for(bytes); i-- > 0;)
      block.publish(cells[i].epoch, connection_detail::epoch_of_next(end));
  }
  connection_detail::advance(end);
}

// Of a message that this thread sends or gives the credit of, as `visit(end, sends)`.
template <class Block, class Visit>
TUTTI_HD void visit_ends(Block& block, const Position& at, Visit&& visit) {
  const View& view = block.shared().view;
  for (std::uint32_t i = block.thread(); i < operands_of(*at.step); i += block.warp()) {
    const Operand& operand = at.operands[i];
    if (is_message(operand)) visit(end_of(view, operand), operand.kind == OperandKind::kSend);
  }
}

[[nodiscard]] TUTTI_HD inline bool has(const Position& at, OperandKind kind) {
  for (std::uint32_t i = 0; i < operands_of(*at.step); ++i)
    if (at.operands[i].kind == kind) return true;
  return false;
}

// Does anybody wait for what the first warp tells of this step?
[[nodiscard]] TUTTI_HD inline bool is_awaited(const Task& task, const Position& at) {
  if (at.step->awaited) return true;
  if (!at.step->messages) return false;
  if (!in_packets(task.messages) && has(at, OperandKind::kSend)) return true;
  return task.credits && has(at, OperandKind::kRecv);
}

template <class Block>
TUTTI_HD_COLD void complete(Block& block) {
  const Shared& shared = block.shared();
  const Task& task = shared.task;
  const Position& at = shared.at;
  const std::uint64_t bytes =
      Block::kPackets || !at.step->messages ? 0 : bytes_before(task, at, chunks_of(at));
  if (at.step->messages)
    visit_ends(block, at, [&](End& end, bool sends) {
      if (sends && !Block::kPackets) write_header(end, task.messages, task.signature, bytes);
      // All threads have looked at it; the flags of LL8 come again.
      if (!sends && task.messages == Messages::kLl8)
        Packets<PacketFormat::kLl8>::clear(lines_of(end));
    });
  if (is_awaited(task, at)) block.fence();
  if (at.step->messages)
    visit_ends(block, at, [&](End& end, bool sends) {
      if (sends) return tell(block, end, task.messages, bytes);
      if (task.credits)
        block.publish(end.words->consumed, end.own.next + 1);
      else  // for operations with credits, which begin after this one's end
        block.store(end.words->consumed, end.own.next + 1);
      connection_detail::advance(end);
    });
  block.warp_sync();
  if (block.thread() == 0) {
    // Pairs with the acquire in wait_holds().
    if (at.step->awaited) block.publish(task.fired[at.lane->number], at.state->fired + 1);
    next_step(shared.view, shared.lane, task.replicas);
  }
  block.warp_sync();
}

// The first warp: says in shared memory which lane's step is moved next, and where its bytes lie.
template <class Block>
TUTTI_HD_COLD void look_for_work(Block& block) {
  if (block.thread() >= block.warp()) return;
  const std::uint32_t lane = next_ready(block);
  if (lane != kNoLane)
    announce(block, lane);
  else if (block.thread() == 0)
    block.shared().lane = lane;
}

// The first warp, after the step's bytes are moved.
template <class Block>
TUTTI_HD_COLD void conclude(Block& block) {
  if (block.thread() >= block.warp()) return;
  Shared& shared = block.shared();
  if (block.all(block.thread() != 0 || !stopped(block))) return complete(block);
  // Some threads may have given up in the middle: nothing of it is made visible.
  if (block.thread() == 0) shared.gave_up = true;
  for (std::uint32_t own = block.thread(); own < shared.view.lane_count; own += block.warp())
    shared.view.states[own].slice = shared.task.cut.slices();
  block.warp_sync();
}

// Every thread of the block calls it with the block's task begun (rank.hpp). Between its calls
// nothing lies in registers, so that each has all of them.
template <class Fold, class Block>
TUTTI_HD void run_lanes(Block& block) {
  for (;;) {
    look_for_work(block);
    block.sync();
    if (block.shared().lane == kNoLane) return;
    move_step<Fold>(block);
    block.sync();
    conclude(block);
  }
}

}  // namespace tutti::device
