// SPDX-License-Identifier: Apache-2.0
// The interpreter: a block of threads runs the lanes that it owns, step by step, until all are
// done.
//
// One source for a CUDA block and for the host emulation of one. Thread 0 looks for a lane whose
// next step is ready: its waits hold, its connections have a credit and a message. Then all threads
// move the step's bytes together, and thread 0 makes them visible. A block owns lanes `block()`,
// `block() + blocks()`, ...; whoever launches sees to it that all blocks of all ranks that talk are
// resident, since they wait for each other.
//
// A block is anything with
//   block() blocks() thread() threads()   its place
//   sync()                                a barrier of its threads that orders memory among them
//   pause()                               called between two looks
//   now_ns()                              a clock
//   shared()                              its Shared, the same for all its threads
//   kLanes                                threads that access memory together (a warp; 1 on a host)
// Order of memory: sync() makes what all threads read and wrote come before thread 0's release of a
// counter; thread 0's acquire and sync() make a message's bytes come before all threads' reads.
// Nothing is allocated. It ends early when the rank's abort word is not 0, which whoever finds a
// fault sets on all ranks, and a rank's own blocks once the host says so; then the connections are
// in no defined state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/task.hpp"
#include "kernels/device/reduce_copy.hpp"
#include "transports/connection_ops.hpp"

namespace tutti::device {

inline constexpr std::uint32_t kNoLane = 0xffffffff;

// Holds what the threads of a block share besides the task.
struct Shared {
  Task task;                     // the block's own copy, with the operation's number
  std::uint32_t lane = kNoLane;  // whose step is moved now; kNoLane: all is over
  void* addresses[kMaxOperands];
};

// ---- where a lane is, and what it does next
// ------------------------------------------------------

struct Position {
  const LaneState* state;
  const Lane* lane;
  const Step* step;
  std::uint32_t repetition;
};

[[nodiscard]] TUTTI_HD inline Position position_of(const Task& task, std::uint32_t lane) {
  const LaneState& state = task.lanes[lane];
  const Lane& of = task.program.lanes[lane];
  const Loop& loop = task.program.loops[of.first_loop + state.loop];
  return {&state, &of, &task.program.steps[loop.first_step + state.step], state.repetition};
}

TUTTI_HD inline void next_step(const Task& task, std::uint32_t lane) {
  LaneState& state = task.lanes[lane];
  const Lane& of = task.program.lanes[lane];
  const Loop& loop = task.program.loops[of.first_loop + state.loop];
  ++state.fired;
  ++state.in_slice;
  if (++state.step < loop.steps) return;
  state.step = 0;
  if (++state.repetition < loop.repetitions) return;
  state.repetition = 0;
  if (++state.loop < of.loops) return;
  state.loop = 0;
  state.in_slice = 0;
  state.slice += task.program.replicas;
}

[[nodiscard]] TUTTI_HD inline bool in_scratch(const Operand& operand) {
  return operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch;
}

// The operand's k-th chunk, or room of scratch.
[[nodiscard]] TUTTI_HD inline std::uint32_t chunk_of(const Task& task, const Operand& operand,
                                                     std::uint32_t repetition, std::uint32_t k) {
  const std::uint32_t modulus =
      in_scratch(operand) ? task.program.scratch_rooms : task.program.chunks;
  Span span = operand.span;
  span.first = first_chunk(operand, repetition, modulus);
  return span.at(k, modulus);
}

// Returns the bytes of the step's k-th chunk: scratch takes its size from the first operand that
// names a real one.
[[nodiscard]] TUTTI_HD_COLD inline std::uint64_t chunk_bytes(const Task& task, const Position& at,
                                                             std::uint32_t k) {
  const std::uint32_t operands = std::uint32_t{at.step->destinations} + at.step->sources;
  for (std::uint32_t i = 0; i < operands; ++i) {
    const Operand& operand = task.program.operands[at.step->first_operand + i];
    if (in_scratch(operand)) continue;
    const std::uint32_t chunk = chunk_of(task, operand, at.repetition, k);
    return task.cut.slice(chunk, at.state->slice).count() * task.element_bytes;
  }
  return task.room_bytes;
}

[[nodiscard]] TUTTI_HD inline std::uint32_t chunks_of(const Task& task, const Position& at) {
  return task.program.operands[at.step->first_operand].span.count();
}

// ---- readiness: thread 0
// -------------------------------------------------------------------------

[[nodiscard]] TUTTI_HD inline bool waits_hold(const Task& task, const Position& at) {
  const std::uint64_t turn = at.state->slice / task.program.replicas;
  for (std::uint32_t i = 0; i < at.step->waits; ++i) {
    const LoopWait& loop_wait = task.program.waits[at.step->first_wait + i];
    const Wait& wait = loop_wait.wait;
    if (turn < wait.back) continue;
    const std::uint32_t step = wait.step + loop_wait.advance * at.repetition;
    const std::uint64_t needed = (turn - wait.back) * task.program.lanes[wait.lane].steps + step;
    // Acquire pairs with the release in complete(): what that step wrote comes before it.
    if (task.fired[wait.lane].load(std::memory_order_acquire) <= needed) return false;
  }
  return true;
}

// The next message's lines, and the epoch that they carry.
[[nodiscard]] TUTTI_HD inline Word* lines_of(const Connection& c) {
  return reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(c.cells) + c.slot * c.slot_bytes);
}

// Has the message begun to come? Its first line has. If so, `signature`.
[[nodiscard]] TUTTI_HD inline bool packets_come(const Connection& c, Messages messages,
                                                std::uint64_t& signature) {
  const std::uint64_t epoch = connection_detail::epoch_of_next(c);
  Word* const first = lines_of(c);
  if (messages == Messages::kLl128) {
    // One thread alone: the line's last word, then its first.
    if (first[15].load(std::memory_order_acquire) != epoch) return false;
    signature = first[0].load(std::memory_order_relaxed);
    return true;
  }
  std::uint64_t unit[1];
  const bool there = messages == Messages::kLl8
                         ? Packets<PacketFormat::kLl8>::load(first, 0, epoch, unit)
                         : Packets<PacketFormat::kLl16>::load(first, 0, epoch, unit);
  signature = unit[0];
  return there;
}

// Tells the host, then ends the operation on all ranks.
TUTTI_HD_COLD inline void raise(const Task& task, Fault fault, Rank peer) {
  if (task.host->fault.load(std::memory_order_relaxed) == 0)
    task.host->fault.store(fault_word(fault, peer), std::memory_order_release);
  for (std::uint32_t rank = 0; rank < task.rank_count; ++rank)
    task.ranks[rank]->abort.store(1, std::memory_order_release);
}

[[nodiscard]] TUTTI_HD inline bool can_send_on(const Task& task, std::uint32_t number) {
  Connection& c = task.sends[number];
  if (c.operation != task.operation) begin_operation(c, task.operation);
  if (can_send(c)) return true;
  if (is_corrupt(c)) raise(task, Fault::kCorrupt, task.send_peers[number]);
  return false;
}

[[nodiscard]] TUTTI_HD inline bool can_recv_on(const Task& task, std::uint32_t number) {
  Connection& c = task.recvs[number];
  if (c.operation != task.operation) begin_operation(c, task.operation);
  std::uint64_t signature = task.signature;
  if (!in_packets(task.messages)) {
    if (!can_recv(c)) {
      if (is_corrupt(c)) raise(task, Fault::kCorrupt, task.recv_peers[number]);
      return false;
    }
    signature = recv_signature(c);
  } else if (!packets_come(c, task.messages, signature)) {
    return false;
  }
  if (signature == task.signature) return true;
  raise(task, Fault::kSignature, task.recv_peers[number]);
  return false;
}

[[nodiscard]] TUTTI_HD_COLD inline bool ready(const Task& task, const Position& at) {
  if (!waits_hold(task, at)) return false;
  const Operand* operand = &task.program.operands[at.step->first_operand];
  for (std::uint32_t d = 0; d < at.step->destinations; ++d, ++operand)
    if (operand->kind == OperandKind::kSend && !can_send_on(task, operand->connection))
      return false;
  for (std::uint32_t s = 0; s < at.step->sources; ++s, ++operand)
    if (operand->kind == OperandKind::kRecv && !can_recv_on(task, operand->connection))
      return false;
  return true;
}

[[nodiscard]] TUTTI_HD inline bool stopped(const Task& task) {
  return task.ranks[task.rank]->abort.load(std::memory_order_relaxed) != 0;
}

// The same, asking the host as well; what it says is passed on to the rank's other blocks.
[[nodiscard]] TUTTI_HD_COLD inline bool told_to_stop(const Task& task) {
  if (task.host->stop.load(std::memory_order_relaxed) != 0)
    task.ranks[task.rank]->abort.store(1, std::memory_order_relaxed);
  return stopped(task);
}

// How long a block has found nothing to do; the host and the clock are asked now and then.
template <class Block>
class Patience {
 public:
  // A round without anything to do; true once they last longer than the task allows.
  [[nodiscard]] TUTTI_HD bool over(Block& block, const Task& task) {
    block.pause();
    if (++rounds_ % 256 == 0 && told_to_stop(task)) return false;  // the caller finds out
    if (task.timeout_ns == 0 || rounds_ % 1024 != 0) return false;
    const std::uint64_t now = block.now_ns();
    if (since_ == 0) since_ = now;
    return now - since_ > task.timeout_ns;
  }

 private:
  std::uint64_t since_ = 0;
  std::uint32_t rounds_ = 0;
};

// Says for whose message or credit the first unfinished lane of this block waits.
template <class Block>
TUTTI_HD_COLD void raise_timeout(Block& block, const Task& task) {
  for (std::uint32_t lane = block.block(); lane < task.program.lane_count; lane += block.blocks()) {
    if (task.lanes[lane].slice >= task.cut.slices) continue;
    const Position at = position_of(task, lane);
    const Operand* operand = &task.program.operands[at.step->first_operand];
    for (std::uint32_t d = 0; d < at.step->destinations; ++d, ++operand)
      if (operand->kind == OperandKind::kSend && !can_send_on(task, operand->connection))
        return raise(task, Fault::kTimeout, task.send_peers[operand->connection]);
    for (std::uint32_t i = 0; i < at.step->sources; ++i, ++operand)
      if (operand->kind == OperandKind::kRecv && !can_recv_on(task, operand->connection))
        return raise(task, Fault::kTimeout, task.recv_peers[operand->connection]);
  }
  raise(task, Fault::kTimeout, kNoRank);
}

// A lane of this block whose step is ready; kNoLane when all its lanes are done, or stopped.
template <class Block>
[[nodiscard]] TUTTI_HD std::uint32_t next_ready(Block& block, const Task& task) {
  for (Patience<Block> patience;;) {
    bool open = false;
    for (std::uint32_t lane = block.block(); lane < task.program.lane_count;
         lane += block.blocks()) {
      if (task.lanes[lane].slice >= task.cut.slices) continue;
      open = true;
      if (ready(task, position_of(task, lane))) return lane;
    }
    if (!open || stopped(task)) return kNoLane;
    if (patience.over(block, task)) raise_timeout(block, task);
  }
}

// ---- moving a step's bytes: all threads
// ----------------------------------------------------------

[[nodiscard]] TUTTI_HD_COLD inline std::byte* memory_of(const Task& task, const Position& at,
                                                        const Operand& operand, std::uint32_t k) {
  const std::uint32_t chunk = chunk_of(task, operand, at.repetition, k);
  if (in_scratch(operand)) {
    const std::uint64_t version =
        at.state->slice / task.program.replicas % task.program.scratch_versions;
    return task.scratch + (version * task.program.scratch_rooms + chunk) * task.room_bytes;
  }
  const std::uint64_t offset = task.cut.slice(chunk, at.state->slice).begin * task.element_bytes;
  const bool input = operand.buffer == BufferKind::kInput;
  if (operand.kind == OperandKind::kRemote) {
    // Relaxed: the peer wrote them before it sent the signal after which this step runs.
    const RankWords& peer = *task.remotes[operand.connection];
    const Word& buffer = input ? peer.input : peer.output;
    return reinterpret_cast<std::byte*>(buffer.load(std::memory_order_relaxed)) + offset;
  }
  // Sources are only read; a plan never lists input as a destination (verified).
  return (input ? const_cast<std::byte*>(task.input) : task.output) + offset;
}

template <class Block>
TUTTI_HD void gather_addresses(Block& block, const Task& task, const Position& at, std::uint32_t k,
                               std::uint64_t in_chunk, std::uint64_t in_message) {
  const std::uint32_t operands = std::uint32_t{at.step->destinations} + at.step->sources;
  for (std::uint32_t i = block.thread(); i < operands; i += block.threads()) {
    const Operand& operand = task.program.operands[at.step->first_operand + i];
    block.shared().addresses[i] =
        operand.kind == OperandKind::kSend
            ? byte_at(send_slot(task.sends[operand.connection]), in_message)
        : operand.kind == OperandKind::kRecv
            ? byte_at(recv_slot(task.recvs[operand.connection]), in_message)
            : memory_of(task, at, operand, k) + in_chunk;
  }
}

template <class Fold, class Block>
TUTTI_HD void move_piece(Block& block, const Task& task, const Step& step, std::uint64_t bytes) {
  void* const* const addresses = block.shared().addresses;
  const DeviceReduceCopy call{.sources = addresses + step.destinations,
                              .destinations = addresses,
                              .source_count = step.sources,
                              .destination_count = step.destinations,
                              .elements = bytes / task.element_bytes,
                              .average_over = step.finish ? task.average_over : 0};
  const Threads<Block::kLanes> threads{block.thread(), block.threads()};
  if (step.sources == 1 && call.average_over <= 1)
    copy_apart(threads, call, task.element_bytes);
  else
    reduce_copy_apart<Fold>(threads, call);
}

// Messages in slots; those in cells are cut where a cell ends.
template <class Fold, class Block>
TUTTI_HD void move_slots(Block& block, const Task& task, const Position& at,
                         std::uint64_t segment_bytes) {
  std::uint64_t in_message = 0;
  const std::uint32_t chunks = chunks_of(task, at);
  for (std::uint32_t k = 0; k < chunks; ++k) {
    const std::uint64_t bytes = chunk_bytes(task, at, k);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t piece = least(bytes - done, segment_bytes - in_message % segment_bytes);
      gather_addresses(block, task, at, k, done, in_message);
      block.sync();
      move_piece<Fold>(block, task, *at.step, piece);
      block.sync();  // before the addresses are written again
      done += piece;
      in_message += piece;
    }
  }
}

// ---- packets
// -------------------------------------------------------------------------------------

// Up to eight bytes of elements, wherever they lie.
[[nodiscard]] TUTTI_HD inline std::uint64_t load_unit(const std::byte* from, std::uint64_t bytes) {
  if (bytes >= kUnitBytes && reinterpret_cast<std::uintptr_t>(from) % kUnitBytes == 0)
    return word_at<std::uint64_t>(load_bits<8>(from), 0);
  std::uint64_t unit = 0;
  const std::uint64_t count = least(bytes, kUnitBytes);
  for (std::uint64_t i = 0; i < count; ++i)
    unit |= std::uint64_t{load_bits<1>(from + i).words[0]} << (8 * i);
  return unit;
}
TUTTI_HD inline void store_unit(std::byte* to, std::uint64_t unit, std::uint64_t bytes) {
  if (bytes >= kUnitBytes && reinterpret_cast<std::uintptr_t>(to) % kUnitBytes == 0) {
    store_bits<8>(to, bit_cast<Bits<8>>(unit));
    return;
  }
  const std::uint64_t count = least(bytes, kUnitBytes);
  for (std::uint64_t i = 0; i < count; ++i)
    store_bits<1>(to + i, Bits<4>{{static_cast<std::uint32_t>(unit >> (8 * i) & 0xff)}});
}

// One chunk of a step whose messages are packets, from line `first_line` of every message on.
template <class Fold, PacketFormat format, class Block>
class PacketMover {
 public:
  static constexpr std::uint32_t kUnits = kUnitsPerThread<format>;

  TUTTI_HD PacketMover(Block& block, const Task& task, const Position& at, std::uint64_t bytes,
                       std::uint64_t first_line)
      : block_(block), task_(task), at_(at), bytes_(bytes), first_line_(first_line) {}

  TUTTI_HD void run() {
    constexpr LineShape shape = line_shape(format);
    constexpr std::uint64_t kLineBytes = std::uint64_t{shape.units} * kUnitBytes;
    const std::uint64_t lines = (bytes_ + kLineBytes - 1) / kLineBytes;
    const std::uint32_t part = block_.thread() % shape.threads;
    const std::uint64_t step = block_.threads() / shape.threads;
    for (std::uint64_t line = block_.thread() / shape.threads; line < lines; line += step) {
      std::uint64_t units[kUnits];
      if (!reduce_line(line, part, units)) return;
      store_line(line, part, units);
    }
  }

 private:
  // Returns where this thread's units of a line begin, in bytes of the chunk.
  [[nodiscard]] static TUTTI_HD std::uint64_t offset_of(std::uint64_t line, std::uint32_t part) {
    return (line * line_shape(format).units + std::uint64_t{part} * kUnits) * kUnitBytes;
  }
  // Does this thread hold payload there? The epoch's place of LL128 holds none.
  [[nodiscard]] static TUTTI_HD bool holds(std::uint32_t part, std::uint32_t unit) {
    return part * kUnits + unit < line_shape(format).units;
  }

  [[nodiscard]] TUTTI_HD bool given_up(std::uint32_t tries) const {
    return tries % 4096 == 0 ? told_to_stop(task_) : stopped(task_);
  }

  TUTTI_HD bool load_packet(const Connection& c, std::uint64_t line, std::uint32_t part,
                            std::uint64_t (&units)[kUnits]) {
    Word* const at = lines_of(c) + (first_line_ + line) * line_shape(format).bytes / sizeof(Word);
    const std::uint64_t epoch = connection_detail::epoch_of_next(c);
    for (std::uint32_t tries = 1; !Packets<format>::load(at, part, epoch, units); ++tries) {
      // Each look at another word makes this one wait twice as long.
      if (tries % 64 == 0 && any_of_line<format>(part, given_up(tries))) return false;
      block_.pause();
    }
    Packets<format>::clear(at, part);
    return true;
  }

  TUTTI_HD bool load_source(const Operand& operand, std::uint64_t line, std::uint32_t part,
                            std::uint64_t (&units)[kUnits]) {
    if (operand.kind == OperandKind::kRecv)
      return load_packet(task_.recvs[operand.connection], line, part, units);
    const std::byte* const from =
        static_cast<const std::byte*>(block_.shared().addresses[&operand - first_operand()]);
    const std::uint64_t offset = offset_of(line, part);
    for (std::uint32_t i = 0; i < kUnits; ++i) {
      const std::uint64_t place = offset + std::uint64_t{i} * kUnitBytes;
      const bool real = holds(part, i) && place < bytes_;
      units[i] = real ? load_unit(from + place, bytes_ - place) : 0;
    }
    return true;
  }

  TUTTI_HD bool reduce_line(std::uint64_t line, std::uint32_t part,
                            std::uint64_t (&units)[kUnits]) {
    const Operand* operand = first_operand() + at_.step->destinations;
    if (!load_source(*operand, line, part, units)) return false;
    const std::uint32_t average_over = at_.step->finish ? task_.average_over : 0;
    if (at_.step->sources == 1 && average_over <= 1) return true;
    typename Fold::template Accumulator<8> values[kUnits];
    for (std::uint32_t i = 0; i < kUnits; ++i) values[i] = Fold::load(bit_cast<Bits<8>>(units[i]));
    for (std::uint32_t s = 1; s < at_.step->sources; ++s) {
      if (!load_source(*++operand, line, part, units)) return false;
      for (std::uint32_t i = 0; i < kUnits; ++i) Fold::fold(values[i], bit_cast<Bits<8>>(units[i]));
    }
    for (std::uint32_t i = 0; i < kUnits; ++i)
      units[i] = word_at<std::uint64_t>(Fold::store(values[i], average_over), 0);
    return true;
  }

  TUTTI_HD void store_line(std::uint64_t line, std::uint32_t part,
                           const std::uint64_t (&units)[kUnits]) {
    const Operand* operand = first_operand();
    for (std::uint32_t d = 0; d < at_.step->destinations; ++d, ++operand) {
      if (operand->kind == OperandKind::kSend) {
        const Connection& c = task_.sends[operand->connection];
        Packets<format>::store(
            lines_of(c) + (first_line_ + line) * line_shape(format).bytes / sizeof(Word), part,
            connection_detail::epoch_of_next(c), units);
        continue;
      }
      std::byte* const to = static_cast<std::byte*>(block_.shared().addresses[d]);
      const std::uint64_t offset = offset_of(line, part);
      for (std::uint32_t i = 0; i < kUnits; ++i) {
        const std::uint64_t place = offset + std::uint64_t{i} * kUnitBytes;
        if (holds(part, i) && place < bytes_) store_unit(to + place, units[i], bytes_ - place);
      }
    }
  }

  [[nodiscard]] TUTTI_HD const Operand* first_operand() const {
    return &task_.program.operands[at_.step->first_operand];
  }

  Block& block_;
  const Task& task_;
  const Position& at_;
  const std::uint64_t bytes_;
  const std::uint64_t first_line_;
};

// The first line of every message that a step sends; those that it receives have been seen.
template <PacketFormat format, class Block>
TUTTI_HD void open_packets(Block& block, const Task& task, const Position& at) {
  constexpr std::uint32_t kThreads = line_shape(format).threads;
  const Operand* operand = &task.program.operands[at.step->first_operand];
  if (block.thread() >= kThreads) return;
  std::uint64_t units[kUnitsPerThread<format>] = {};
  if (block.thread() == 0) units[0] = task.signature;
  for (std::uint32_t d = 0; d < at.step->destinations; ++d, ++operand) {
    if (operand->kind != OperandKind::kSend) continue;
    const Connection& c = task.sends[operand->connection];
    Packets<format>::store(lines_of(c), block.thread(), connection_detail::epoch_of_next(c), units);
  }
  if (block.thread() != 0) return;
  for (std::uint32_t s = 0; s < at.step->sources; ++s, ++operand)
    if (operand->kind == OperandKind::kRecv)
      Packets<format>::clear(lines_of(task.recvs[operand->connection]), 0);
}

template <class Fold, PacketFormat format, class Block>
TUTTI_HD void move_packets(Block& block, const Task& task, const Position& at) {
  open_packets<format>(block, task, at);
  std::uint64_t line = 1;
  const std::uint32_t chunks = chunks_of(task, at);
  const std::uint32_t operands = std::uint32_t{at.step->destinations} + at.step->sources;
  for (std::uint32_t k = 0; k < chunks; ++k) {
    const std::uint64_t bytes = chunk_bytes(task, at, k);
    if (k > 0) block.sync();  // before the addresses are written again
    for (std::uint32_t i = block.thread(); i < operands; i += block.threads()) {
      const Operand& operand = task.program.operands[at.step->first_operand + i];
      if (operand.kind == OperandKind::kLocal || operand.kind == OperandKind::kRemote)
        block.shared().addresses[i] = memory_of(task, at, operand, k);
    }
    block.sync();
    PacketMover<Fold, format, Block>(block, task, at, bytes, line).run();
    line += lines_for(format, bytes) - 1;
  }
}

// ---- a block's life
// ------------------------------------------------------------------------------

template <class Fold, class Block>
TUTTI_HD void move_step(Block& block, const Task& task, const Position& at) {
  switch (task.messages) {
    case Messages::kSlots:
      return move_slots<Fold>(block, task, at, ~std::uint64_t{0});
    case Messages::kCells:
      return move_slots<Fold>(block, task, at, kCellPayloadBytes);
    case Messages::kLl8:
      return move_packets<Fold, PacketFormat::kLl8>(block, task, at);
    case Messages::kLl16:
      return move_packets<Fold, PacketFormat::kLl16>(block, task, at);
    case Messages::kLl128:
      return move_packets<Fold, PacketFormat::kLl128>(block, task, at);
  }
}

// Thread 0, after all have moved the step's bytes.
TUTTI_HD_COLD inline void complete(const Task& task, std::uint32_t lane) {
  const Position at = position_of(task, lane);
  const bool slots = !in_packets(task.messages);
  std::uint64_t bytes = 0;
  if (slots)
    for (std::uint32_t k = 0, chunks = chunks_of(task, at); k < chunks; ++k)
      bytes += chunk_bytes(task, at, k);
  const Operand* operand = &task.program.operands[at.step->first_operand];
  for (std::uint32_t d = 0; d < at.step->destinations; ++d, ++operand) {
    if (operand->kind != OperandKind::kSend) continue;
    Connection& c = task.sends[operand->connection];
    if (slots)
      commit(c, task.signature, bytes);
    else
      connection_detail::advance(c);  // the packets speak for themselves
  }
  for (std::uint32_t s = 0; s < at.step->sources; ++s, ++operand)
    if (operand->kind == OperandKind::kRecv) release(task.recvs[operand->connection]);
  next_step(task, lane);
  // Release pairs with the acquire in waits_hold.
  task.fired[lane].store(task.lanes[lane].fired, std::memory_order_release);
}

// Every thread of the block calls it with the block's own task, begun (rank.hpp).
template <class Fold, class Block>
TUTTI_HD void run_lanes(Block& block, const Task& task) {
  Shared& shared = block.shared();
  for (;;) {
    if (block.thread() == 0) shared.lane = next_ready(block, task);
    block.sync();
    const std::uint32_t lane = shared.lane;
    if (lane == kNoLane) return;
    move_step<Fold>(block, task, position_of(task, lane));
    block.sync();
    if (block.thread() != 0) continue;
    if (stopped(task)) {
      // Some threads may have given up in the middle: nothing of it is made visible.
      for (std::uint32_t own = block.block(); own < task.program.lane_count; own += block.blocks())
        task.lanes[own].slice = task.cut.slices;
      continue;
    }
    complete(task, lane);
  }
}

}  // namespace tutti::device
