// SPDX-License-Identifier: Apache-2.0
// What one operation of one rank binds to a program: plain data. The constant parts of a plan lie
// in device memory; a launch brings the rest, so that the ranks of a device fit into a kernel's
// parameters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/program.hpp"
#include "schedule/cut.hpp"
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

// Holds the position of a lane. Only the block that owns the lane writes it.
struct LaneState {
  std::uint32_t slice = 0;       // of this operation
  std::uint32_t loop = 0;        // within the lane
  std::uint32_t repetition = 0;  // of that loop
  std::uint32_t step = 0;        // within the loop's body
  std::uint32_t in_slice = 0;    // repetitions unrolled
  std::uint64_t fired = 0;       // steps completed in this operation
};

// Holds the state that a rank keeps in its device's memory between operations, zero at first, so
// that a graph can replay an operation without the host: its number is counted here. Only the block
// that ends an operation writes the first line; peers read or write the others.
struct RankWords {
  alignas(64) Word operations;  // that have ended
  Word ended;                   // blocks that have ended the one under way
  Word carve;                   // of the last operation
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
// A rank's words in host memory, which its kernels reach across the bus: they look at it rarely.
struct HostWords {
  Word fault;  // fault_word, by a kernel
  Word stop;   // not 0: give up; by the host, which needs no CUDA call for it
  Word left;   // Common::call of the last operation that ended well, by its kernel
};
struct FaultFound {
  Fault fault = Fault::kNone;
  Rank peer = kNoRank;
};
[[nodiscard]] constexpr FaultFound read_fault(std::uint64_t word) {
  return {static_cast<Fault>(word >> 32), static_cast<Rank>(static_cast<std::uint32_t>(word))};
}

// Holds the parts of a call that are equal on all ranks of a launch.
struct Common {
  UniformCut cut;
  std::uint32_t element_bytes = 1;
  std::uint32_t average_over = 0;
  std::uint64_t room_bytes = 0;
  std::uint64_t signature = 0;
  std::uint64_t call = 0;  // its number on the board; 0: captured, so that it may run again
};

struct Task : Common {
  ProgramView program;
  Connection* sends = nullptr;  // in the order of the plan
  Connection* recvs = nullptr;
  const Rank* send_peers = nullptr;     // whom each of the sends goes to
  const Rank* recv_peers = nullptr;     // whom each of the recvs comes from
  RankWords* const* ranks = nullptr;    // of all ranks
  RankWords* const* remotes = nullptr;  // of those whose memory is read, in the order of the plan
  std::uint32_t rank = 0;
  std::uint32_t rank_count = 1;
  Messages messages = Messages::kSlots;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may equal input
  std::byte* scratch = nullptr;
  std::uint64_t operation = 0;   // set when a block begins
  std::uint64_t carve = 0;       // Plan::carve, mixed with the format of messages; not 0
  std::uint64_t timeout_ns = 0;  // of waiting for the same thing; 0: for ever
  LaneState* lanes = nullptr;    // program.lane_count of them
  Word* fired = nullptr;         // one a lane: LaneState::fired, for the other blocks; 0 at first
  HostWords* host = nullptr;
  const Task* bound = nullptr;  // its copy in device memory, of what the plan fixes
};

// A rank's share of a launch.
struct LaunchTask {
  const Task* bound = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

}  // namespace tutti::device
