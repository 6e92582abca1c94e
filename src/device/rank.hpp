// SPDX-License-Identifier: Apache-2.0
// An operation of one rank, from its blocks' side: how it begins, runs and ends, so that a graph
// can replay it. The number of the operation is counted in the rank's device memory, equal on all
// ranks, as all run the same operations in the same order.
//
//   begin   the block takes its part of the program, the states of its connections and the number
//           into its own memory; where the operation before ran under another carve of the inbox,
//           it waits until all peers are done with that
//   run     run_lanes
//   end     the states go back; the last block sets the words for the next operation and tells the
//           peers that this one is done
// Operations of a rank follow one another: the launch of one begins after the end of the one
// before.
#pragma once

#include "device/lane.hpp"

namespace tutti::device {

// Pointers to a part: into the copy of it in the block's room, or to where it lies.
[[nodiscard]] TUTTI_HD inline View view_of(const BlockPart& part, const std::byte* image,
                                           std::byte* room) {
  const std::byte* const read = room != nullptr ? room : image + part.begin;
  const auto at = [&]<typename T>(std::uint32_t offset, const T*& pointer) {
    pointer = reinterpret_cast<const T*>(read + (offset - part.begin));
  };
  View view;
  at(part.lanes, view.lanes);
  at(part.loops, view.loops);
  at(part.steps, view.steps);
  at(part.operands, view.operands);
  at(part.waits, view.waits);
  at(part.remotes, view.remotes);
  auto* const written = const_cast<std::byte*>(read);
  view.sends = reinterpret_cast<End*>(written + (part.ends - part.begin));
  view.recvs = view.sends + part.send_count;
  view.states = room != nullptr
                    ? reinterpret_cast<LaneState*>(view.sends + part.end_count())
                    : reinterpret_cast<LaneState*>(const_cast<std::byte*>(image) + part.states);
  view.lane_count = part.lane_count;
  return view;
}

// Sixteen bytes by a generic address: to shared memory, where store_bits() may not write.
struct alignas(16) Sixteen {
  std::uint32_t words[4];
};
TUTTI_HD inline void copy_sixteen(std::byte* to, const std::byte* from) {
  *reinterpret_cast<Sixteen*>(to) = *reinterpret_cast<const Sixteen*>(from);
}

// A thread's share of `bytes` bytes, a multiple of 16.
template <class Block>
TUTTI_HD void copy_share(Block& block, std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (std::uint32_t i = 16 * block.thread(); i < bytes; i += 16 * block.threads())
    copy_sixteen(to + i, from + i);
}

// Waits until the peers are done with the operation before: each thread for some of them. Each look
// is a way to a peer and back.
template <class Block>
TUTTI_HD_COLD void await_peers(Block& block, const BoundTask& bound, std::uint64_t operation) {
  for (std::uint32_t rank = block.thread(); rank < bound.rank_count; rank += block.threads())
    block.look([&, patience = Patience()]() mutable {
      // Pairs with what end_task tells: the peer's reads of its inbox come before it.
      if (block.acquire(bound.ranks[rank]->done) + 1 >= operation) return true;
      const Patience::Answer answer = patience.wait(block);
      if (answer == Patience::Answer::kOver)
        raise(block, Fault::kTimeout, static_cast<Rank>(rank), {});
      return answer != Patience::Answer::kGoOn;
    });
}

// All threads: what is only read, into the room; an end to a thread, which needs nothing of the
// other threads' copies.
template <class Block>
TUTTI_HD_COLD void take_part(Block& block, const BlockPart& part, const std::byte* image,
                             bool in_room, std::uint64_t operation) {
  const View view = view_of(part, image, in_room ? block.room() : nullptr);
  if (block.thread() == 0) block.shared().view = view;
  block.together([&] {
    if (in_room) copy_share(block, block.room(), image + part.begin, part.ends - part.begin);
    for (std::uint32_t i = block.thread(); i < part.end_count(); i += block.threads()) {
      if (!in_room) continue;
      auto* const to = reinterpret_cast<std::byte*>(&view.sends[i]);
      const std::byte* const from = image + part.ends + i * sizeof(End);
      for (std::uint32_t byte = 0; byte < sizeof(End); byte += sizeof(Sixteen))
        copy_sixteen(to + byte, from + byte);
    }
    const auto* const lanes = reinterpret_cast<const Lane*>(image + part.lanes);
    for (std::uint32_t i = block.thread(); i < part.lane_count; i += block.threads()) {
      view.states[i] = {};
      view.states[i].slice = lanes[i].replica;
    }
  });
  block.together([&] {
    for (std::uint32_t i = block.thread(); i < part.end_count(); i += block.threads()) {
      End& end = view.sends[i];
      end.own.next = end.home->next;
      end.own.seen = end.home->seen;
      end.own.corrupt = end.home->corrupt;
      end.state = &end.own;
      begin_operation(static_cast<Connection&>(end), operation);
    }
  });
}

// All threads.
template <class Block>
TUTTI_HD_COLD void begin_task(Block& block, const Common& common, const LaunchTask& launch) {
  Shared& shared = block.shared();
  const BoundTask& bound = *launch.bound;
  const BlockPart* part = nullptr;
  RankWords* own = nullptr;
  block.together([&] {
    part = bound.parts + block.block();
    own = bound.own;
    // Other threads write what is behind it in the task.
    static_assert(
        offsetof(BoundTask, one_lane) + sizeof(bool) + alignof(Common) > sizeof(BoundTask),
        "Common would begin in what pads BoundTask");
    static_assert(sizeof(BoundTask) % sizeof(Sixteen) == 0);
    copy_share(block, reinterpret_cast<std::byte*>(static_cast<BoundTask*>(&shared.task)),
               reinterpret_cast<const std::byte*>(&bound), sizeof(BoundTask));
  });
  std::uint64_t operation = 0, carve = 0;
  bool in_room = false;
  block.together([&] {
    in_room = part->bytes() <= block.room_bytes();
    operation = block.load(own->operations) + 1;
    carve = block.load(own->carve);
  });
  take_part(block, *part, bound.image, in_room, operation);
  if (block.thread() == 0) {
    static_cast<Common&>(shared.task) = common;
    shared.task.input = launch.input;
    shared.task.output = launch.output;
    shared.task.operation = operation;
    shared.gave_up = false;
    // All blocks write the same, each before its own signals.
    block.store(own->input, reinterpret_cast<std::uintptr_t>(launch.input));
    block.store(own->output, reinterpret_cast<std::uintptr_t>(launch.output));
  }
  block.sync();
  // The first operation under this carve has waited.
  if (carve == Task::carve_of(bound, common)) return;
  await_peers(block, bound, operation);
  block.sync();
}

TUTTI_HD inline void give_back(const End& end) {
  end.home->next = end.own.next;
  end.home->seen = end.own.seen;
  end.home->corrupt = end.own.corrupt;
}

// All threads, after the last step of all.
template <class Block>
TUTTI_HD_COLD void end_task(Block& block) {
  const Task& task = block.shared().task;
  const View& view = block.shared().view;
  const auto ends = static_cast<std::uint32_t>(task.parts[block.block()].end_count());
  for (std::uint32_t i = block.thread(); i < ends; i += block.threads()) give_back(view.sends[i]);
  if (block.thread() != 0) return;
  RankWords& own = *task.own;
  // The last block acquires what the others have released: all they have read and written.
  if (block.blocks() > 1) {
    if (block.add(own.ended) + 1 != block.blocks()) return;
    block.store(own.ended, 0);
  }
  for (std::uint32_t lane = 0; lane < task.fired_count; ++lane) block.store(task.fired[lane], 0);
  block.store(own.carve, Task::carve_of(task, task));
  block.store(own.operations, task.operation);
  if (block.shared().gave_up || (block.blocks() > 1 && stopped(block))) return;
  block.fence();
  block.publish(own.done, task.operation);
  // A store across the bus that nobody waits for, and that orders nothing.
  if (task.call != 0) task.host->left.store(task.call, std::memory_order_relaxed);
}

// Every thread of each of the task's blocks calls it.
template <class Fold, class Block>
TUTTI_HD void run_task(Block& block, const Common& common, const LaunchTask& task) {
  begin_task(block, common, task);
  run_lanes<Fold>(block);
  end_task(block);
}

}  // namespace tutti::device
