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
  bool gauged = false;      // its stores into slots, by the gauge of this step of the plan:
  std::uint32_t plan_step = 0;
};

// What a line of single cells, one of each connection, does one after the other.
struct CellOp {
  enum Kind : std::uint8_t {
    kOpen,     // the slot is free: says where the payload goes
    kReceive,  // the message is there: says where its payload lies
    kMove,     // the moves of the step
    kReduce,   // its only one, a call of the kernel with two sources and one destination
    kCommit,   // the message is visible
    kSend,     // kOpen, a copy, kCommit
    kRelease,  // the slot is free again
    kEnter,    // StraightHooks::enter, before the first message that is waited for
    // Lines of the connection's message that is `ahead` of the next one: for writing, from the
    // cache of whoever read them; for reading.
    kFetch,
    kFetchRead,
    kEnd,
  };
  Kind kind = kOpen;
  bool answered = false;  // see StraightLine
  std::uint16_t step = 0;
  std::uint16_t message = 0;           // its base
  std::uint32_t ahead = 0;             // kFetch, kFetchRead
  std::uint32_t mask = 0, stride = 0;  // slots - 1, of a power of two; bytes from slot to slot
  std::byte* cells = nullptr;          // of its connection
  ConnectionState* state = nullptr;
  Connection* connection = nullptr;
  Word* consumed = nullptr;
  StraightPlace source{};                // kSend, kReduce
  StraightPlace other{}, destination{};  // kReduce
  // kSend: of the payload; kReduce: elements; kFetch, kFetchRead: lines of the cell.
  std::uint32_t size = 0;
  std::uint32_t average_over = 0;  // kReduce
};

struct StraightLine {
  std::vector<StraightStep> steps;
  std::vector<StraightMove> moves;
  std::vector<StraightPlace> places;
  std::vector<Connection*> ends;  // the executor's, in the order of messages
  std::vector<CellOp> ops;        // where each carries one message of one cell, to kEnd; else none
  bool pumped = false;            // some of its messages move by StraightHooks::pump alone
  bool one_lane = false;
  // Those to ranks from which the line receives, too: who sent in an operation had ended the one
  // before, and so given its credits.
  std::vector<Connection*> answered;
  DataType type = DataType::kFloat32;
  ReduceCopyFn kernel = nullptr;
  std::uint32_t average_over = 0;  // as in OperationArgs
  UniformCut cut;
  std::uint64_t room_bytes = 0;                   // of a chunk of scratch
  bool short_messages = false;                    // Plan::has_short_messages
  std::uint64_t messages = 0, payload_bytes = 0;  // sent
};

struct StraightCall;

// What calls do beside their messages.
struct StraightHooks {
  // What no message needs: once, and by a line of single cells when it has sent what it can, so
  // that its own work takes place while the messages are on their way.
  void (*enter)(const StraightCall&) = [](const StraightCall&) {};
  // Of a pumped line. Moves what there is to move; false: that failed. `over`: all steps are done.
  bool (*pump)(const StraightCall&, bool over) = nullptr;
  bool (*flushed)(const StraightCall&) = nullptr;  // nothing that was queued needs this rank
};

inline constexpr StraightHooks kNoHooks;

// What one call brings.
struct StraightCall {
  const StraightHooks& hooks = kNoHooks;
  std::uint64_t input_base = 0, output_base = 0;  // Call::input_base
  std::uint64_t operation = 0;
  std::uint64_t signature = 0;
};

}  // namespace tutti
