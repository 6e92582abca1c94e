// SPDX-License-Identifier: Apache-2.0
// The reference executor: runs a schedule on concrete values in a random interleaving, and says
// what went wrong. The judge of the verifier: it shares no code with it and reads schedule.hpp
// alone.
//
// * Every input cell holds a value of its own per (rank, chunk, slice, operation); values of two
//   parts add up to their sum, and beside it runs a hash of the order in which they were added.
//   `finish` scrambles the sum, so that it can come neither twice nor early.
// * A step takes two events, between which others run: it reads its sources at the first and writes
//   its destinations at the second. A cell that one step reads and another writes at the same time
//   is a failure, and so is any wrong result.
// * Every chunk has a size of its own; a cell is read as long as it was written, or that is a
//   failure.
// * Input and output are the user's: cells are those of the user's data, blocks by rank. A rank has
//   what MPI gives it: its own block of an all-gather's input, no output of a reduce where it is
//   not the root. Whatever touches more cannot run.
// * Several slices; two operations or more in a row, with data of their own, each rank in place or
// not. A
//   rank begins an operation as soon as it has itself ended the one before.
//
// Not for speed of data, but for many small runs: the schedule is flattened once. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/schedule.hpp"

namespace tutti::reference {

// splitmix64: a small generator that gives the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Below `bound`, which is small: the bias does not matter here.
  std::uint32_t below(std::size_t bound) {
    return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

struct RunOptions {
  std::uint32_t slots = 2;
  // Does a sender wait for a free slot? If not, one that is not free is a failure; messages are
  // sent when their step begins, and slots are free when the step that reads them ends.
  bool credits = true;
  std::uint32_t operations = 2;
  std::uint64_t seed = 0;    // of the interleaving, and of what is left to it
  std::uint32_t slices = 0;  // 0: the seed's choice, a few for each replica
  // By rank, in every operation; empty: the seed's choice, where input and output need not be
  // apart.
  std::vector<bool> in_place = {};
};

class ReferenceExecutor {
 public:
  explicit ReferenceExecutor(const Schedule& schedule);

  // One random interleaving; what failed, or nothing.
  [[nodiscard]] std::optional<std::string> run(const RunOptions& options);

 private:
  struct Cell {
    std::uint64_t sum = 0;
    std::uint64_t order = 0;     // hash of the order of the additions
    std::uint32_t elements = 0;  // how much of it was written
    std::uint16_t readers = 0;   // steps between their two events
    std::uint16_t writers = 0;
  };
  struct Value {
    std::uint64_t sum = 0;
    std::uint64_t order = 0;
    std::uint32_t elements = 0;
  };
  struct FlatOperand {
    OperandKind kind;
    BufferKind buffer;
    Rank owner;                // of the memory
    std::uint32_t connection;  // of messages
    std::uint32_t nth;         // message of that connection in this step
    std::uint32_t first_position;
  };
  struct FlatWait {
    std::uint32_t lane, step, back;
  };
  struct FlatStep {
    std::vector<FlatOperand> sources, destinations;
    std::vector<FlatWait> waits;
    std::uint32_t count = 0;
    std::uint32_t first_size = 0;  // in sizes_: elements at each position
    bool finish = false;
  };
  struct FlatLane {
    Rank rank = 0;
    std::uint32_t replica = 0;
    std::vector<FlatStep> steps;
  };
  struct Connection {
    std::vector<std::uint32_t> senders, receivers;  // lanes
    std::uint64_t sent = 0, received = 0;
  };
  struct Slot {
    std::uint32_t count = 0;
    std::vector<Value> values;
  };
  struct LaneState {
    std::uint32_t slice = 0;  // of its replica
    std::uint32_t step = 0;
    bool reading = false;  // between the two events of a step
    bool ended = false;    // this operation
    std::vector<Value> values;
    std::vector<std::uint32_t> done;  // slices done, by step
  };
  // What a collective means, as MPI has it; stated here for itself.
  struct Meaning {
    enum class Has : std::uint8_t { kAll, kOwnBlock, kNothing };
    enum class Result : std::uint8_t { kSum, kRootsInput, kOwnersInput, kTransposed };
    Has input = Has::kAll, output = Has::kAll;  // of ranks that are not the root
    Has roots_input = Has::kAll, roots_output = Has::kAll;
    Result result = Result::kSum;
    bool blocks = false;
  };
  struct RankState {
    std::uint32_t operation = 0;
    std::uint32_t lanes_left = 0;
    bool in_place = false;
    std::vector<Cell> input, output;  // [slice * chunks + chunk]; in place, input is unused
    std::vector<Cell> scratch;        // [version * rooms + room]
  };

  // Flattening.
  static std::optional<Meaning> meaning_of(Collective collective);
  [[nodiscard]] bool has(Rank rank, bool output, std::uint32_t chunk) const;
  [[nodiscard]] std::uint32_t size_of(std::uint32_t chunk) const;
  // The chunks of a block.
  [[nodiscard]] std::uint32_t chunks_each() const {
    return schedule_.shape.chunks / static_cast<std::uint32_t>(schedule_.ranks.size());
  }
  // Of the user's data.
  [[nodiscard]] std::uint32_t chunk_of(std::uint32_t chunk, std::uint32_t replica) const;
  [[nodiscard]] Rank owner_of(std::uint32_t chunk) const;
  [[nodiscard]] bool check_blocks() const;
  void flatten();
  bool flatten_step(Rank rank, std::uint32_t lane, const Step& step, std::uint32_t replica);
  bool flatten_operand(Rank rank, std::uint32_t lane, const Operand& operand, std::uint32_t replica,
                       FlatStep& flat, bool destination);
  bool invalid(std::string why);

  // Running.
  void reset(const RunOptions& options);
  void begin_operation(Rank rank);
  bool end_operation(Rank rank);
  [[nodiscard]] std::uint32_t choose();
  [[nodiscard]] std::uint32_t highest_priority() const;
  [[nodiscard]] bool enabled(const FlatStep& step, const LaneState& state) const;
  bool start_step(std::uint32_t lane);
  bool send(std::uint32_t lane, const FlatStep& step);
  bool end_step(std::uint32_t lane);
  bool end_slice(std::uint32_t lane);
  bool read(std::uint32_t lane, const FlatStep& step, std::uint32_t k, Value& value);
  bool touch(std::uint32_t lane, const FlatStep& step, bool begin);
  [[nodiscard]] Cell& cell(std::uint32_t lane, const FlatOperand& operand, std::uint32_t k);
  [[nodiscard]] Value input_value(Rank rank, std::uint32_t operation, std::uint32_t slice,
                                  std::uint32_t chunk) const;
  // What an output chunk must hold.
  [[nodiscard]] std::uint64_t expected(Rank rank, std::uint32_t operation, std::uint32_t slice,
                                       std::uint32_t chunk) const;
  void wake(std::uint32_t lane);
  void sleep(std::uint32_t lane);
  bool fail(std::uint32_t lane, const std::string& what);

  const Schedule& schedule_;
  Meaning meaning_;
  std::string invalid_;  // why the schedule cannot run at all
  std::vector<FlatLane> lanes_;
  std::vector<std::vector<std::uint32_t>> rank_lanes_;
  std::map<std::tuple<Rank, Rank, Tag>, std::uint32_t> numbers_;  // of connections
  std::vector<Connection> connections_;
  std::vector<std::uint32_t> positions_;  // chunks and rooms of the operands
  std::vector<std::uint32_t> sizes_;
  bool has_waits_ = false;
  std::vector<std::uint64_t> orders_;  // seen so far in any run, by replica and chunk; 0: none

  // Of one run.
  Random random_{0};
  std::uint64_t data_seed_ = 0;
  std::vector<bool> in_place_;  // empty: random
  std::uint32_t slots_ = 0;
  bool credits_ = true;
  std::uint32_t operations_ = 2;
  std::uint32_t slices_ = 0;
  std::uint32_t policy_ = 0;
  std::uint32_t current_ = 0;
  std::vector<Slot> slots_of_;  // [connection * slots + message mod slots]
  std::vector<LaneState> states_;
  std::vector<RankState> ranks_;
  std::vector<std::uint64_t> priorities_;
  std::vector<std::uint32_t> awake_, place_;  // lanes that may be able to go on
  std::vector<std::uint64_t> sums_;  // of inputs: [(operation * slices + slice) * chunks + c]
  std::uint32_t ranks_left_ = 0;
  std::string failure_;
};

}  // namespace tutti::reference
