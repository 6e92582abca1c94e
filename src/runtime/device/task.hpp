// What one operation of one rank binds to a program: plain data that a kernel gets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/program.hpp"
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

// Where a lane is. Only the block that owns the lane writes it.
struct LaneState {
  std::uint32_t slice = 0;       // of this operation
  std::uint32_t loop = 0;        // within the lane
  std::uint32_t repetition = 0;  // of that loop
  std::uint32_t step = 0;        // within the loop's body
  std::uint32_t in_slice = 0;    // repetitions unrolled
  std::uint64_t fired = 0;       // steps completed in this operation
};

// A peer's buffers, for programs that read them.
struct PeerBuffers {
  const std::byte* input = nullptr;
  const std::byte* output = nullptr;
};

// Why a task ended early; the first one stays. 0: it did not.
enum class Fault : std::uint32_t { kNone, kSignature, kCorrupt };
[[nodiscard]] TUTTI_HD constexpr std::uint64_t fault_word(Fault fault, std::uint32_t connection,
                                                          bool sends) {
  return std::uint64_t{static_cast<std::uint32_t>(fault)} << 32 | (sends ? 1u << 16 : 0u) |
         connection;
}

struct Task {
  ProgramView program;
  Connection* sends = nullptr;  // in the order of the plan
  Connection* recvs = nullptr;
  const PeerBuffers* peers = nullptr;
  Messages messages = Messages::kSlots;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // may equal input
  std::byte* scratch = nullptr;
  UniformCut cut;
  std::uint32_t element_bytes = 1;
  std::uint32_t average_over = 0;
  std::uint64_t room_bytes = 0;
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
  LaneState* lanes = nullptr;   // program.lane_count of them
  Word* fired = nullptr;        // one a lane: LaneState::fired, for the other blocks
  Word* fault = nullptr;        // fault_word
  const Word* abort = nullptr;  // not 0: give up
};

}  // namespace tutti::device
