// SPDX-License-Identifier: Apache-2.0
// The plan's device form: a rank's program as flat arrays that a block can walk in device memory.
//
// A ring among p ranks repeats one step p - 2 times with its chunks moved on by one. Here such runs
// are written once, as a loop whose operands say by how much their span advances each time, so that
// a program's size does not grow with the ranks. Plain data without pointers of the host: the same
// bytes are read by a CUDA block and by the host emulation of one.
#pragma once

#include <cstdint>

#include "device/divisor.hpp"
#include "schedule/schedule.hpp"

namespace tutti::device {

// Operands of one step; a block keeps their addresses in shared memory.
inline constexpr std::uint32_t kMaxOperands = 256;

struct Operand {
  OperandKind kind = OperandKind::kLocal;
  BufferKind buffer = BufferKind::kInput;
  std::uint16_t connection = 0;  // into the sends, recvs or remotes, of the plan or of a block
  std::uint32_t advance = 0;     // of span.first from one repetition to the next, modulo its space
  Span span;
};

[[nodiscard]] TUTTI_HD inline bool is_message(const Operand& operand) {
  return operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
}

// Wait::step is the index of the other lane's step in one slice, repetitions unrolled.
struct LoopWait {
  Wait wait;
  std::uint32_t advance = 0;  // of wait.step from one repetition to the next
  std::uint32_t steps = 0;    // of the other lane in one slice
  // The other lane is this block's, of this number there; kElsewhere: it is another block's.
  static constexpr std::uint32_t kElsewhere = 0xffffffff;
  std::uint32_t in_block = kElsewhere;
};

struct Step {
  std::uint32_t first_operand = 0;  // destinations first, then sources
  std::uint32_t first_wait = 0;
  std::uint16_t destinations = 0;
  std::uint16_t sources = 0;
  std::uint16_t waits = 0;
  bool finish = false;
  bool messages = false;  // some operand is a message
  bool awaited = false;   // by a step of another block
};

struct Loop {
  std::uint32_t first_step = 0;
  std::uint32_t steps = 0;
  std::uint32_t repetitions = 1;
};

struct Lane {
  std::uint32_t first_loop = 0;
  std::uint32_t loops = 0;
  std::uint32_t steps = 0;  // of one slice, repetitions unrolled
  std::uint32_t replica = 0;
  std::uint32_t number = 0;  // among the plan's
};

// The chunk, or room of scratch, that an operand's k-th is in repetition `repetition` of its loop.
[[nodiscard]] TUTTI_HD inline std::uint32_t chunk_at(const Operand& operand,
                                                     std::uint32_t repetition, std::uint32_t k,
                                                     const Divisor& modulus) {
  const Span& span = operand.span;
  return modulus.rest(span.first + std::uint64_t{operand.advance} * repetition +
                      std::uint64_t{k / span.run} * span.stride + k % span.run);
}

}  // namespace tutti::device
