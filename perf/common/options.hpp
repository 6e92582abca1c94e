// SPDX-License-Identifier: Apache-2.0
// The command line of the perf tools: the flags of nccl-tests 2.19, short and long, and Tutti's
// own.
//
// Parsing is pure: arguments in, options or an error text out. choose_memory() decides afterwards
// where the buffers lie, once it is known whether there is a GPU; `notes` names the flags that a
// run on that memory cannot honour. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/number.hpp"
#include "common/split.hpp"

namespace tutti::perf {

enum class Average { kRank0 = 0, kAverage = 1, kMinimum = 2, kMaximum = 3 };
enum class Memory { kAuto, kHost, kDevice };  // kAuto: the GPUs', where there are some
enum class Blocking { kOff = 0, kBarrierEach = 1, kWaitEach = 2, kBarrierOuter = 3 };

// Bounds of what one command may start, so that a typing error does not take the machine down.
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kMaxRanks = 4096;

struct Options {
  int threads = 1;           // -t
  int ranks_per_thread = 1;  // -g: a thread's ranks, nccl-tests' GPUs of a thread
  int processes = 1;         // --procs, or what a launcher started
  bool launched = false;     // by a launcher: nothing is forked
  std::uint64_t min_bytes = std::uint64_t{32} << 20;    // -b
  std::uint64_t max_bytes = std::uint64_t{32} << 20;    // -e
  std::uint64_t step_bytes = std::uint64_t{1} << 20;    // -i
  std::uint64_t step_factor = 1;                        // -f; 1: steps of step_bytes
  int iterations = 20;                                  // -n
  int warmup_iterations = 1;                            // -w
  int aggregated = 1;                                   // -m
  int run_cycles = 1;                                   // -N; 0: until stopped
  bool parallel_init = false;                           // -p
  int checks = 1;                                       // -c: check operations per size; 0: none
  std::vector<Op> ops = {Op::kSum};                     // -o
  bool all_ops = false;                                 // -o all: skip what the library lacks
  std::vector<tuttiDataType_t> types = {tuttiFloat32};  // -d
  bool all_types = false;                               // -d all
  int root = 0;                                         // -r; -1: all
  Blocking blocking = Blocking::kOff;                   // -z
  int timeout_s = 0;                                    // -T; 0: the library's own
  bool report_cputime = false;                          // -C
  bool report_timestamps = false;                       // -S
  std::string json_path;                                // -J
  Average average = Average::kAverage;                  // -a
  bool report_memory = false;                           // -M
  int unalign = 0;             // -u: elements by which buffers start off a page
  bool per_iteration = false;  // -I
  int per_iteration_skip = 0;  // -K
  // --algo, else TUTTI_ALGO; empty: the library chooses. Several, between commas, one after
  // another.
  std::string algorithm;
  [[nodiscard]] std::vector<std::string> algorithms() const;  // one or more
  bool asynchronous = false;             // --async: calls on streams, on host memory too
  bool pin = false;                      // --pin: each thread on a processor of its own
  bool startup = false;                  // --startup
  bool show_plan = false;                // --plan
  bool explain = false;                  // --explain
  bool json_environment = false;         // --json-env
  std::uint64_t seed = 1;                // --seed
  double spread = 1;                     // NCCL_TESTS_ALLTOALLV_SPREAD, of alltoallv_perf
  std::optional<double> required_busbw;  // NCCL_TESTS_MIN_BW, GB/s
  std::optional<Split> split;            // NCCL_TESTS_SPLIT: groups of processes, side by side
  Memory memory = Memory::kAuto;         // --memory; after choose_memory never kAuto
  bool default_stream = false;           // -y: operations go on the default stream
  int graph_launches = 0;                // -G: replays of the graph of a measurement; 0: no graph
  int ctas = 0;                          // --ctas: blocks of its GPU a rank takes; 0: the default
  int local_register = 0;                // -R
  int cta_policy = 0;                    // -x
  int device_implementation = 0;         // -D
  int device_cta_count = 16;             // -V
  bool registered = false;               // -R 1 on host memory: buffers are registered
  bool windows = false;                  // -R 2 on host memory: buffers are symmetric windows
  std::vector<std::string> notes;        // one line each, for stderr

  [[nodiscard]] int ranks() const { return processes * threads * ranks_per_thread; }
  [[nodiscard]] bool on_gpus() const { return memory == Memory::kDevice; }
  // Device memory goes with one process; a GPU is not looked for in vain, nor before a fork.
  [[nodiscard]] bool may_use_gpus() const { return memory != Memory::kHost && processes == 1; }
};

struct ParseOutcome {
  std::optional<Options> options;  // empty: print `text` and exit with `status`
  std::string text;
  int status = 0;
};

// The processes that a launcher started together; one: no launcher that counts.
struct LaunchedProcesses {
  std::string launcher = "none";
  int processes = 1;
};

// `arguments` without the program's name. --procs goes with one process only.
[[nodiscard]] ParseOutcome parse_options(const std::string& program,
                                         std::vector<std::string> arguments,
                                         const LaunchedProcesses& launched = {});

// Settles `memory`, and adds the notes and the rules that follow from it. `absence`: why no GPU can
// be used, empty if one can. Returns what is wrong, or nothing.
[[nodiscard]] std::string choose_memory(Options& options, const std::string& absence);

// Adds the variables of the environment to the arguments; returns what is wrong with them, or
// nothing. `getenv_like` as getenv.
[[nodiscard]] std::string apply_environment(
    Options& options, const std::function<const char*(const char*)>& getenv_like);

// A size: a number, decimals allowed, with an optional suffix K, M or G (powers of 1024, any case,
// "KB" and "KiB" mean the same). nullopt if it is none or exceeds 2^53.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);

// The sizes of a run in bytes, in order: from min_bytes by step_factor or step_bytes.
[[nodiscard]] std::vector<std::uint64_t> sizes_of(const Options& options);

}  // namespace tutti::perf
