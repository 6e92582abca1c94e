// SPDX-License-Identifier: Apache-2.0
// An operation of one rank, from its blocks' side: how it begins, runs and ends, so that a graph
// can replay it. The number of the operation is counted in the rank's device memory, equal on all
// ranks, as all run the same operations in the same order.
//
//   begin   the block takes a copy of the task and the number; where the operation before ran under
//           another carve of the inbox, it waits until all peers are done with that
//   run     run_lanes
//   end     the last block sets the words for the next operation and tells the peers that this one
//           is done
// Operations of a rank follow one another: the launch of one begins after the end of the one
// before.
#pragma once

#include "device/lane.hpp"

namespace tutti::device {

// Thread 0. The words of the rank stand still until the last of its blocks has ended.
template <class Block>
TUTTI_HD_COLD void begin_task(Block& block, Task& task) {
  RankWords& own = *task.ranks[task.rank];
  task.operation = own.operations.load(std::memory_order_relaxed) + 1;
  // All blocks write the same, each before its own signals.
  own.input.store(reinterpret_cast<std::uintptr_t>(task.input), std::memory_order_relaxed);
  own.output.store(reinterpret_cast<std::uintptr_t>(task.output), std::memory_order_relaxed);
  for (std::uint32_t lane = block.block(); lane < task.program.lane_count; lane += block.blocks()) {
    task.lanes[lane] = {};
    task.lanes[lane].slice = task.program.lanes[lane].replica;
  }
  // The first operation under this carve has waited: each look is a way to a peer and back.
  if (own.carve.load(std::memory_order_relaxed) == task.carve) return;
  Patience<Block> patience;
  for (std::uint32_t rank = 0; rank < task.rank_count; ++rank)
    // Acquire pairs with the release in end_task: the peer's reads of its inbox come before it.
    while (task.ranks[rank]->done.load(std::memory_order_acquire) + 1 < task.operation &&
           !stopped(task))
      if (patience.over(block, task)) raise(task, Fault::kTimeout, static_cast<Rank>(rank));
}

// Thread 0, after all threads of the block.
template <class Block>
TUTTI_HD_COLD void end_task(Block& block, const Task& task) {
  RankWords& own = *task.ranks[task.rank];
  // The last block acquires what the others have released: all they have read and written.
  if (own.ended.fetch_add(1) + 1 != block.blocks()) return;
  own.ended.store(0, std::memory_order_relaxed);
  for (std::uint32_t lane = 0; lane < task.program.lane_count; ++lane)
    task.fired[lane].store(0, std::memory_order_relaxed);
  own.carve.store(task.carve, std::memory_order_relaxed);
  own.operations.store(task.operation, std::memory_order_relaxed);
  if (stopped(task)) return;
  own.done.store(task.operation, std::memory_order_release);
  // A store across the bus that nobody waits for, and that orders nothing.
  if (task.call != 0) task.host->left.store(task.call, std::memory_order_relaxed);
}

// Every thread of each of the task's blocks calls it.
template <class Fold, class Block>
TUTTI_HD void run_task(Block& block, const Common& common, const LaunchTask& task) {
  Task& own = block.shared().task;
  if (block.thread() == 0) {
    own = *task.bound;
    static_cast<Common&>(own) = common;
    own.input = task.input;
    own.output = task.output;
    begin_task(block, own);
  }
  block.sync();
  run_lanes<Fold>(block, own);
  block.sync();
  if (block.thread() == 0) end_task(block, own);
}

}  // namespace tutti::device
