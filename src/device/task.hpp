// SPDX-License-Identifier: Apache-2.0
// What one operation of one rank binds to a program: plain data. The constant parts of a plan lie
// in device memory (image.hpp); a launch brings the rest, so that the ranks of a device fit into a
// kernel's parameters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device_cut.hpp"
#include "device/program.hpp"
#include "transports/connection.hpp"
#include "transports/packets.hpp"

namespace tutti::device {

// How the messages of a task move; one for all its connections.
enum class Messages : std::uint8_t {
  kSlots,
  kCells,  // the host's flagged cells; also the signals of direct plans
  kLl8,
  kLl16,
  kLl128,
};
[[nodiscard]] TUTTI_HD constexpr bool in_packets(Messages messages) {
  return messages >= Messages::kLl8;
}

[[nodiscard]] constexpr const char* name_of(Messages messages) {
  constexpr const char* kNames[] = {"slots", "cells", "ll8", "ll16", "ll128"};
  return kNames[static_cast<int>(messages)];
}

// Of messages in packets.
[[nodiscard]] TUTTI_HD constexpr PacketFormat format_of(Messages messages) {
  return static_cast<PacketFormat>(static_cast<int>(messages) - static_cast<int>(Messages::kLl8));
}

// Holds the position of a lane. Only the block that owns the lane writes it.
struct LaneState {
  std::uint32_t slice = 0;       // of this operation
  std::uint32_t loop = 0;        // within the lane
  std::uint32_t repetition = 0;  // of that loop
  std::uint32_t step = 0;        // within the loop's body
  std::uint64_t fired = 0;       // steps completed in this operation
};

// One end of a connection as a block uses it: while it does, with its state beside it.
struct End : Connection {
  ConnectionState* home = nullptr;  // where the state lives between operations
  Rank peer = kNoRank;
  ConnectionState own;  // `state` points here
};

// Where a block's part of a program lies, in bytes from the image's start.
struct BlockPart {
  // What is only read, in one piece: [begin, ends).
  std::uint32_t begin = 0;
  std::uint32_t lanes = 0, loops = 0, steps = 0, operands = 0, waits = 0, remotes = 0;
  std::uint32_t ends = 0;    // of connections: sends, then recvs
  std::uint32_t states = 0;  // of lanes, for a block without room of its own
  std::uint32_t lane_count = 0, send_count = 0, recv_count = 0;

  [[nodiscard]] TUTTI_HD std::uint32_t end_count() const { return send_count + recv_count; }
  // Of all that a block keeps in shared memory.
  [[nodiscard]] TUTTI_HD std::uint32_t bytes() const {
    return ends - begin + end_count() * static_cast<std::uint32_t>(sizeof(End)) +
           lane_count * static_cast<std::uint32_t>(sizeof(LaneState));
  }
};

// Holds the state that a rank keeps in its device's memory between operations, zero at first, so
// that a graph can replay an operation without the host: its number is counted here. Only the block
// that ends an operation writes the first line; peers read or write the others.
struct RankWords {
  alignas(64) Word operations;  // that have ended
  Word ended;                   // blocks that have ended the one under way
  Word carve;                   // of the last operation
  Word faults;                  // that this rank's blocks have found; the first is told
  alignas(64) Word done;        // operations all of whose messages this rank has consumed
  Word input, output;           // of the operation under way, for programs that read them
  alignas(64) Word abort;       // not 0: give up; any rank writes it
};

// Why a task ended early; the first one stays. 0: it did not.
enum class Fault : std::uint32_t { kNone, kSignature, kCorrupt, kTimeout };
// With whom, if that is known, by 32 bits.
[[nodiscard]] TUTTI_HD constexpr std::uint64_t fault_word(Fault fault, Rank peer) {
  return std::uint64_t{static_cast<std::uint32_t>(fault)} << 32 | static_cast<std::uint32_t>(peer);
}

// Where a block was when it found a fault, and what it looked at.
struct FaultPlace {
  std::uint32_t block = 0, lane = 0;
  std::uint32_t slice = 0, step = 0;  // the step within the lane, loops counted once
  bool receives = false;              // a message is awaited, not a credit
  // An epoch, a signature, or the number of messages or credits.
  std::uint64_t expected = 0, seen = 0;
};
inline constexpr int kFaultWords = 5;

// A rank's words in host memory, which its kernels reach across the bus: they look at it rarely.
struct HostWords {
  Word fault;               // fault_word, by a kernel, after `place`
  Word stop;                // not 0: give up; by the host, which needs no CUDA call for it
  Word left;                // Common::call of the last operation that ended well, by its kernel
  Word place[kFaultWords];  // a FaultPlace
};

TUTTI_HD inline void write_place(HostWords& words, const FaultPlace& at) {
  const std::uint64_t packed[kFaultWords] = {std::uint64_t{at.block} << 32 | at.lane,
                                             std::uint64_t{at.slice} << 32 | at.step,
                                             at.receives ? 1U : 0U, at.expected, at.seen};
  for (int i = 0; i < kFaultWords; ++i) words.place[i].store(packed[i], std::memory_order_relaxed);
}

struct FaultFound {
  Fault fault = Fault::kNone;
  Rank peer = kNoRank;
  FaultPlace place;
};
// Nothing, if no kernel has found a fault.
[[nodiscard]] inline FaultFound read_fault(const HostWords& words) {
  // Acquire: what the kernel did before it told.
  const std::uint64_t word = words.fault.load(std::memory_order_acquire);
  if (word == 0) return {};
  std::uint64_t packed[kFaultWords];
  for (int i = 0; i < kFaultWords; ++i) packed[i] = words.place[i].load(std::memory_order_relaxed);
  const auto high = [&](int i) { return static_cast<std::uint32_t>(packed[i] >> 32); };
  const auto low = [&](int i) { return static_cast<std::uint32_t>(packed[i]); };
  return {.fault = static_cast<Fault>(word >> 32),
          .peer = static_cast<Rank>(static_cast<std::uint32_t>(word)),
          .place = {.block = high(0),
                    .lane = low(0),
                    .slice = high(1),
                    .step = low(1),
                    .receives = low(2) != 0,
                    .expected = packed[3],
                    .seen = packed[4]}};
}

// Holds the parts of a call that are equal on all ranks of a launch.
struct Common {
  DeviceCut cut;
  std::uint32_t element_bytes = 1;
  std::uint32_t average_over = 0;
  std::uint64_t room_bytes = 0;
  std::uint64_t signature = 0;
  // Before it sends, does a rank look whether a slot is free? Not where ranks hear from all that
  // they send to and two operations' messages fit (Proof::mutual).
  bool credits = true;
  std::uint64_t call = 0;  // its number on the board; 0: captured, so that it may run again
};

// What a plan fixes of a rank's operations.
struct alignas(16) BoundTask {
  const std::byte* image = nullptr;   // where the parts' offsets count from
  const BlockPart* parts = nullptr;   // of each block
  RankWords* own = nullptr;           // this rank's
  RankWords* const* ranks = nullptr;  // all ranks'
  HostWords* host = nullptr;
  std::byte* scratch = nullptr;
  Word* fired = nullptr;         // of each lane of the plan: LaneState::fired, for other blocks
  std::uint64_t carve = 0;       // Plan::carve, mixed with the format of messages; not 0
  std::uint64_t timeout_ns = 0;  // of waiting for the same thing; 0: for ever
  Divisor chunks;                // of input and output
  Divisor scratch_rooms;         // of one version, all replicas'
  std::uint32_t scratch_versions = 1;
  std::uint32_t replicas = 1;
  std::uint32_t fired_count = 0;  // lanes of which some step is awaited by another block; 0 or all
  std::uint32_t rank_count = 1;
  Messages messages = Messages::kSlots;
  bool one_device = false;  // of all ranks
  bool one_lane = false;    // of a replica, on each rank
};

struct Task : BoundTask, Common {
  // Slots that were filled without credits say nothing to who looks for some: another carve.
  [[nodiscard]] static TUTTI_HD std::uint64_t carve_of(const BoundTask& bound,
                                                       const Common& common) {
    return common.credits ? bound.carve : ~bound.carve;
  }
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may equal input
  std::uint64_t operation = 0;  // set when a block begins
};

// A rank's share of a launch.
struct LaunchTask {
  const BoundTask* bound = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

}  // namespace tutti::device
