// SPDX-License-Identifier: Apache-2.0
// A small call as a straight line: what each step of a plan reads and writes, looked up once for
// calls of one count and type, so that the next such call looks up nothing. Plain data;
// HostExecutor makes it and runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "kernels/reduce_copy.hpp"
#include "schedule/cut.hpp"

namespace tutti {

// Where a move reads or writes: in the call's input or output, or in a message's cells.
struct StraightPlace {
  enum class In : std::uint8_t { kInput, kOutput, kMessage } in = In::kInput;
  std::uint16_t connection = 0;  // of a message
  std::uint32_t offset = 0;      // bytes; of a message from its first payload byte on
};

// One call of the kernel: destinations first, then sources.
struct StraightMove {
  std::uint16_t first_place = 0, destinations = 0, sources = 0;
  bool finish = false;
  std::uint32_t elements = 0;
};

struct StraightStep {
  std::uint16_t first_connection = 0, sends = 0, receives = 0;  // sends first
  std::uint16_t first_move = 0, moves = 0;
  std::uint32_t bytes = 0;  // of its messages
};

struct StraightLine {
  std::vector<StraightStep> steps;
  std::vector<StraightMove> moves;
  std::vector<StraightPlace> places;
  std::vector<std::uint16_t> connections;
  DataType type = DataType::kFloat32;
  UniformCut cut;
};

// What one call brings.
struct StraightCall {
  std::uint64_t input_base = 0, output_base = 0;  // Call::input_base
  ReduceCopyFn kernel = nullptr;
  std::uint32_t average_over = 0;  // as in OperationArgs
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
};

}  // namespace tutti
