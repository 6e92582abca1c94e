// SPDX-License-Identifier: Apache-2.0
// Measures and checks one collective on the ranks of one thread, in step with all others.
//
// Method, as nccl-tests: for each type, operation and size, out-of-place then in-place: a barrier,
// the host clock, `iterations` operations back to back, on GPUs a wait for their streams, the clock
// again; the time is averaged over ranks. With -G the operations are captured as a graph before the
// clock, and it is the graph's launches that are timed. Iterations walk through the buffers, so
// that each uses other memory. Checking follows the timing: a separate operation with guarded
// surroundings, and a sample of what the timed iterations left. Every thread runs the same
// sequence; only rank 0's has a reporter.
//
// One object per thread. Uses only the public API.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/collective.hpp"
#include "common/check.hpp"
#include "common/options.hpp"
#include "common/ranks.hpp"
#include "common/report.hpp"
#include "common/streams.hpp"
#include "common/traffic.hpp"

namespace tutti::perf {

// Holds the arguments of a tool's call.
struct Arguments {
  const void* send;
  void* receive;
  std::size_t count;  // as in the interface
  tuttiDataType_t type;
  tuttiRedOp_t op;
  int root;
  tuttiComm_t comm;
  tuttiStream_t stream;
  int stage = 0;                       // of Tool::stages
  const PeerBlocks* blocks = nullptr;  // of a Tool that is uneven; null in a probe
};

// A tool: a row of facts, of the table of collectives or like its rows, and the function that it
// measures.
struct Tool {
  using Run = tuttiResult_t (*)(const Arguments& arguments);
  using Source = int (*)(int rank, int ranks);
  using Stages = int (*)(int ranks);
  using Complete = std::string (*)(Options& options);

  Tool(Collective collective, Run function) : row(info_of(collective)), run(function) {}
  // Of point to point: each rank receives what rank source(...) sends. In place it is timed, as in
  // nccl-tests, and not checked, since what is sent from a buffer is received into.
  Tool(std::string_view name, Run function, Source from)
      : row{.name = name}, run(function), source(from) {}
  // Of point to point in several stages, each of which needs what the one before received. The
  // thread's ranks go from stage to stage together.
  Tool(const CollectiveInfo& facts, Run function, Stages number)
      : row(facts), run(function), stages(number), op_name(""), moves_own_block(false) {}

  CollectiveInfo row;
  Run run;
  Source source = nullptr;
  Stages stages = nullptr;            // null: one
  Complete complete = nullptr;        // adds to the options; returns what is wrong with them, or ""
  std::string_view op_name = "none";  // in the table, of what does not reduce
  bool moves_own_block = true;        // algbw counts the rank's own block too

  bool uneven = false;  // an all-to-all with blocks of Options::spread, not checked in place

  [[nodiscard]] const CollectiveInfo& info() const { return row; }
  [[nodiscard]] bool checks_in_place() const { return source == nullptr && !uneven; }
  [[nodiscard]] bool calls_collective() const {
    return source == nullptr && stages == nullptr && !uneven;
  }
  [[nodiscard]] std::string program() const { return std::string(info().name) + "_perf"; }
};

// Receives the results of rank 0's thread. Other threads have none.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void row_started(const Row& row) = 0;
  virtual void measured(const Measurement& measurement) = 0;
  virtual void row_finished(const Row& row) = 0;
  virtual void explained(const std::string& text) = 0;  // --explain, of the row before
  virtual void skipped(const std::string& what) = 0;
};

struct BenchPlace {
  int process = 0;
  int processes = 1;
  Reporter* reporter = nullptr;
  Gpus* gpus = nullptr;  // null: host memory
};

class Bench {
 public:
  // Allocates the buffers and, if the options say so, makes them windows (collective). `options`
  // and `ranks` must outlive the object.
  Bench(const Tool& tool, const Options& options, ThreadRanks& ranks, const BenchPlace& place);
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench();
  // All types, operations and sizes, once. Throws Exception when the library reports an error.
  void run();
  // What follows runs by this name, which its rows bear, until the next one. Throws Exception.
  void force(const std::string& algorithm);

  // Sums over all run() so far; meaningful with a reporter.
  [[nodiscard]] std::int64_t wrong() const { return wrong_; }
  [[nodiscard]] double average_busbw() const {
    return measurements_ == 0 ? 0 : busbw_sum_ / static_cast<double>(measurements_);
  }
  [[nodiscard]] std::uint64_t buffer_bytes() const;

 private:
  struct RankBuffers {
    GuardedBuffer send, receive;
    GuardedBuffer probe;  // one element, to learn whether the library has an operation
    std::unique_ptr<Fingerprint> fingerprint;
    std::vector<tuttiWindow_t> windows;
    std::vector<void*> registrations;
  };
  // One size: how iterations walk through the buffers, each of which has room for the whole data of
  // -e. A region holds the data of one operation; a rank's own block lies in it where it lies in
  // the data.
  struct Walk {
    std::uint64_t count = 0;              // as in the interface
    std::size_t bytes = 0;                // of the whole data
    std::uint64_t regions = 1;            // iteration t uses region t mod regions
    std::vector<PeerBlocks> blocks = {};  // of each of the thread's ranks, where they are uneven
    // By walk_of(): what each of the thread's ranks passes in the first region, out of place and in
    // place, but for its blocks.
    std::vector<Arguments> apart = {}, in_place = {};
    [[nodiscard]] std::size_t offset(std::uint64_t iteration) const {
      return bytes * (iteration % regions);
    }
  };
  // The same offsets from iteration 0 on, without a division, which a small call would feel.
  class Steps {
   public:
    explicit Steps(const Walk& walk) : walk_(walk) {}
    [[nodiscard]] std::size_t next() {
      const std::size_t offset = walk_.bytes * region_;
      if (++region_ == walk_.regions) region_ = 0;
      return offset;
    }

   private:
    const Walk& walk_;
    std::uint64_t region_ = 0;
  };

  // Holds the times of one operation, in seconds.
  struct Timing {
    double seconds = 0, cpu_seconds = 0;  // cpu: until the last call returned
    std::vector<double> iterations;       // -I: of each iteration
    std::optional<GraphFacts> graph;
  };

  void allocate();
  void make_windows();
  void register_buffers();
  void run_sizes();
  bool prepare(tuttiDataType_t type, Op op);
  // Describes the part of a region that a rank's send or receive buffer holds: [begin, end) in
  // bytes; empty where it has none.
  struct Part {
    std::size_t begin = 0, end = 0;
  };
  [[nodiscard]] Part part_of(const BufferRule& rule, const Walk& walk, int rank) const;
  void check_part(const Walk& walk, std::size_t region, int i, Findings& findings);
  void check_blocks(const Walk& walk, std::size_t region, int i, Findings& findings);
  void check_kept(const Walk& walk, std::size_t region, int i, Findings& findings);
  void warm_up();
  Measurement measure(const Walk& walk, bool in_place);
  Timing time_iterations(const Walk& walk, bool in_place);
  Timing time_graph(const Walk& walk, bool in_place);
  template <class Run>
  void run_stages(bool group, Run&& run);
  void issue_iteration(const Walk& walk, Steps& steps, bool in_place);
  void issue(const Walk& walk, std::size_t offset, bool in_place, bool group);
  void run_once(const Walk& walk, std::size_t offset, bool in_place);
  void reset_receive(std::size_t begin, std::size_t end, bool in_place);
  std::vector<Findings> check_timed(const Walk& walk, bool in_place);
  void check_separately(const Walk& walk, int check, bool in_place, std::vector<Findings>& found);
  void describe(const Walk& walk, bool in_place, const std::vector<Findings>& found) const;
  double combine_times(double seconds);
  IterationStats combine_iterations(const std::vector<double>& times);
  [[nodiscard]] Walk walk_of(std::uint64_t bytes);
  [[nodiscard]] std::vector<Arguments> arguments_of(const Walk& walk, bool in_place);
  [[nodiscard]] std::uint64_t timed_operations() const;  // of one measurement, or of its graph
  [[nodiscard]] bool graphs() const {
    return place_.gpus != nullptr && options_.graph_launches > 0;
  }
  [[nodiscard]] PlanFacts plan_facts();
  [[nodiscard]] RankBuffers& buffers(int i) { return buffers_[static_cast<std::size_t>(i)]; }

  const Tool& tool_;
  const Options& options_;
  ThreadRanks& ranks_;
  BenchPlace place_;
  Streams streams_;
  std::vector<RankBuffers> buffers_;
  DataSpec spec_;
  std::string forced_;  // the rows' name
  int root_ = 0;
  std::size_t element_ = 4;
  std::int64_t wrong_ = 0;
  double busbw_sum_ = 0;
  std::int64_t measurements_ = 0;
};

}  // namespace tutti::perf
