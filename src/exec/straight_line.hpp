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
#include "transports/connection.hpp"

namespace tutti {

// Where a move reads or writes: bytes behind one of the call's bases.
struct StraightPlace {
  // Of the call's input and output as Call::input_base says, and of scratch; behind them the
  // payload of each message.
  enum Base : std::uint16_t { kInput, kOutput, kScratch, kFirstMessage };
  std::uint16_t base = kInput;
  std::uint32_t offset = 0;
};

// One call of the kernel, or a copy: destinations first, then sources.
struct StraightMove {
  std::uint16_t first_place = 0, destinations = 0, sources = 0;
  bool copies = false;  // one source, of which nothing is computed
  bool finish = false;
  std::uint32_t elements = 0, bytes = 0;
};

struct StraightStep {
  std::uint16_t lane = 0;
  std::uint16_t first_end = 0, sends = 0, receives = 0;  // sends first
  std::uint16_t first_move = 0, moves = 0;
  std::uint32_t bytes = 0;  // of its messages
};

struct StraightLine {
  std::vector<StraightStep> steps;
  std::vector<StraightMove> moves;
  std::vector<StraightPlace> places;
  std::vector<Connection*> ends;  // the executor's, in the order of messages
  // Those to ranks from which the line receives, too: who sent in an operation had ended the one
  // before, and so given its credits.
  std::vector<Connection*> answered;
  DataType type = DataType::kFloat32;
  UniformCut cut;
  std::uint64_t room_bytes = 0;                   // of a chunk of scratch
  bool short_messages = false;                    // Plan::has_short_messages
  std::uint64_t messages = 0, payload_bytes = 0;  // sent
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
