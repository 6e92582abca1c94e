// SPDX-License-Identifier: Apache-2.0
#include "common/main.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "common/launch.hpp"
#include "common/machine.hpp"
#include "common/pin.hpp"
#include "common/startup.hpp"

namespace tutti::perf {
namespace {

// Returns 0, or the errno of what could not be written.
int write_out(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written ? 0 : errno;
}

void say(const std::string& program, const std::string& text) {
  static_cast<void>(std::fputs(fmt::format("{}: {}\n", program, text).c_str(), stderr));
}

std::string lost_output(int error_number) {
  return fmt::format("standard output cannot be written: {}", std::strerror(error_number));
}

// The table on stdout and the JSON file; lives in rank 0's process.
class Report : public Reporter {
 public:
  Report(const Tool& tool, const Options& options, std::vector<std::string> arguments)
      : tool_(tool), options_(options), arguments_(std::move(arguments)) {}

  void begin(const std::vector<DeviceRow>& devices) {
    if (!options_.json_path.empty()) {
      auto opened = JsonReport::open(options_.json_path);
      if (opened.report) json_ = std::make_unique<JsonReport>(std::move(*opened.report));
      print(opened.report ? fmt::format("# Writing JSON output to {}\n", json_->path())
                          : fmt::format("# {}\n", opened.error));
    }
    if (json_) json_->begin(arguments_, options_, TUTTI_NCCL_VERSION_CODE, devices, local_time());
    print(header_text(tool_.program(), options_, devices));
  }
  void comment(const std::string& lines) { print(lines); }
  void table_head() { print(table_head_text(options_)); }

  void row_started(const Row& row) override {
    print(row_start_text(row));
    in_row_ = true;
  }
  void measured(const Measurement& measurement) override { print(measurement_text(measurement)); }
  void row_finished(const Row& row) override {
    print(row_end_text(options_, local_time()));
    in_row_ = false;
    print(graph_text(row));
    if (options_.show_plan) print(plan_text(row));
    if (json_) json_->add(row, options_);
  }
  void explained(const std::string& text) override { print(comment_text(text)); }
  void skipped(const std::string& what) override {
    static_cast<void>(std::fputs(fmt::format("# skipped {}\n", what).c_str(), stderr));
  }

  // Returns whether the run counts as a success; a lost line is a failure.
  bool finish(Summary summary, const std::string& memory_line) {
    if (in_row_) print("\n");
    if (json_ && !json_->close(summary, local_time()))
      summary.errors.push_back(fmt::format("{} could not be written", json_->path()));
    print(footer_text(tool_.program(), summary, memory_line));
    return summary.ok() && output_error_ == 0;
  }
  [[nodiscard]] int output_error() const { return output_error_; }

 private:
  void print(const std::string& text) {
    const int error = write_out(text);
    if (output_error_ == 0) output_error_ = error;
  }

  const Tool& tool_;
  const Options& options_;
  std::vector<std::string> arguments_;
  std::unique_ptr<JsonReport> json_;
  bool in_row_ = false;
  int output_error_ = 0;  // errno of the first line that could not be written
};

// One process of the job: its threads and what they share.
class Process {
 public:
  Process(const Tool& tool, const Options& options, Job& job,
          const std::vector<std::string>& arguments, Gpus* gpus)
      : tool_(tool), options_(options), job_(job), gpus_(gpus), report_(tool, options, arguments) {
    summary_.completed = false;
    summary_.required_busbw = options.required_busbw;
  }

  int run() {
    try {
      // Before the library is initialized, which looks where it runs; threads follow on their own.
      static_cast<void>(allowed_processors());
      if (options_.threads == 1) pin(0);
      before_init_ = memory_use();
      bytes_before_init_ = bytes_in_use();
      id_ = job_.share([this] {
        return options_.launched ? Launcher::unique_id().value : UniqueId::create().value;
      });
      if (job_.process() == 0 && !options_.launched) report_.begin(devices(known_places()));
      start_threads();
    } catch (const std::exception& error) {
      record(first_rank(), error);
    }
    if (tell_error_) say(tool_.program(), error_);
    if (job_.process() != 0) return error_.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
    if (!error_.empty()) {
      const std::string cause = job_.first_failure();
      summary_.errors.push_back(cause.empty() ? error_ : cause);
    }
    const bool good = report_.finish(summary_, memory_line_);
    if (report_.output_error() != 0) tell(lost_output(report_.output_error()));
    if (summary_.completed && !summary_.bandwidth_ok())
      tell(
          fmt::format("the average bus bandwidth, {:g} GB/s, is below 90 % of the {:g} GB/s that "
                      "NCCL_TESTS_MIN_BW asks for",
                      summary_.average_busbw, *summary_.required_busbw));
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  void tell(const std::string& failure) {
    static_cast<void>(job_.claim_failure(failure));
    say(tool_.program(), failure);
  }

  [[nodiscard]] int local_ranks() const { return options_.threads * options_.ranks_per_thread; }
  [[nodiscard]] int first_rank() const { return job_.process() * local_ranks(); }

  void pin(int thread) const {
    if (options_.pin && !bind_to_processor(job_.process() * options_.threads + thread))
      throw std::runtime_error("--pin: the kernel does not bind this thread to a processor");
  }

  std::vector<ProcessPlace> known_places() const {
    std::vector<ProcessPlace> places;
    for (const pid_t pid : job_.pids()) places.push_back({pid, host_name()});
    return places;
  }

  std::vector<DeviceRow> devices(const std::vector<ProcessPlace>& places) const {
    std::vector<DeviceRow> rows;
    for (int rank = 0; gpus_ != nullptr && rank < options_.ranks(); ++rank) {
      const int gpu = gpus_->of_rank(rank);
      const GpuFacts& facts = gpus_->list()[static_cast<std::size_t>(gpu)];
      rows.push_back(
          {rank, group_of(0), places[0].pid, places[0].host, gpu, facts.bus, facts.name});
    }
    if (gpus_ != nullptr) return rows;
    const std::string name = processor_name() + " (host memory)";
    for (int rank = 0; rank < options_.ranks(); ++rank) {
      const int process = rank / local_ranks();
      const ProcessPlace& place = places[static_cast<std::size_t>(process)];
      rows.push_back({rank, group_of(process), place.pid, place.host, rank, "host", name});
    }
    return rows;
  }

  [[nodiscard]] int group_of(int process) const {
    return options_.split ? options_.split->color(process) : 0;
  }

  tuttiConfig_t config() const {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    if (options_.timeout_s > 0) config.opTimeoutMs = options_.timeout_s * 1000;
    if (options_.ctas > 0) config.minCTAs = config.maxCTAs = options_.ctas;
    return config;
  }

  void start_threads() {
    std::vector<Communicator> all;  // without -p the calling thread initializes every rank
    if (!options_.parallel_init)
      all = init_ranks(id_, options_.ranks(), first_rank(), local_ranks(), config(), gpus_);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < options_.threads; ++thread) {
      std::vector<Communicator> mine;
      for (int i = 0; i < options_.ranks_per_thread && !options_.parallel_init; ++i)
        mine.push_back(
            std::move(all[static_cast<std::size_t>(thread * options_.ranks_per_thread + i)]));
      auto body = [this, thread, mine = std::move(mine)]() mutable {
        run_thread(thread, std::move(mine));
      };
      if (options_.threads == 1)
        body();  // in the calling thread: a debugger and a profiler see one thread less
      else
        threads.emplace_back(std::move(body));
    }
    for (std::thread& thread : threads) thread.join();
  }

  void run_thread(int thread, std::vector<Communicator> comms) {
    const int first = first_rank() + thread * options_.ranks_per_thread;
    try {
      if (options_.threads > 1) pin(thread);
      if (options_.parallel_init)
        comms =
            init_ranks(id_, options_.ranks(), first, options_.ranks_per_thread, config(), gpus_);
      ThreadRanks ranks(std::move(comms), first, options_.ranks());
      std::optional<ThreadRanks> group;  // of NCCL_TESTS_SPLIT
      std::unique_ptr<Bench> bench;
      try {
        if (options_.split) group = ranks.split(group_of(job_.process()));
        run_ranks(thread, ranks, group ? *group : ranks, bench);
        bench.reset();
        if (group) group->finish();
        ranks.finish();
      } catch (const std::exception& error) {
        record(first, error);  // before others can meet what comes of it
        // Windows are the communicator's; a GPU's memory is freed when its kernels have ended, and
        // it is the abort that ends those that wait. So do asynchronous calls use it.
        if (gpus_ == nullptr && !options_.asynchronous) bench.reset();
        if (group) group->abort();  // so that no other rank waits for this one
        ranks.abort();
      }
    } catch (const std::exception& error) {
      record(first, error);
    }
  }

  // `all` are the thread's ranks of the job, `ranks` those of its group; the same without groups.
  void run_ranks(int thread, ThreadRanks& all, ThreadRanks& ranks, std::unique_ptr<Bench>& bench) {
    const std::vector<std::string> names = options_.algorithms();
    if (names.size() == 1 && !names[0].empty())
      for (int i = 0; i < ranks.count(); ++i) ranks.comm(i).set_algorithm(names[0].c_str());
    const bool speaks = all.first_rank() == 0;
    if (options_.launched) {  // the ranks tell each other what no parent could
      const auto places = gather_places(all, job_.process(), job_.processes(), host_name());
      if (speaks) report_.begin(devices(places));
    }
    if (options_.startup) {
      const StartupPlace place{job_.start_ns(),
                               before_init_,
                               thread == 0,
                               startup_buffer_bytes() * static_cast<std::uint64_t>(local_ranks()),
                               ranks.all_ranks() / local_ranks(),
                               options_.launched ? "each process's start" : "the first fork"};
      const std::string lines = measure_startup(ranks, place);
      if (speaks) report_.comment(lines);
    }
    const auto after_init = bytes_in_use();
    if (speaks) report_.table_head();
    bench = std::make_unique<Bench>(
        tool_, options_, ranks,
        BenchPlace{ranks.first_rank() / local_ranks(), ranks.all_ranks() / local_ranks(),
                   speaks ? &report_ : nullptr, gpus_});
    for (int cycle = 0; options_.run_cycles == 0 || cycle < options_.run_cycles; ++cycle)
      if (names.size() == 1)
        bench->run();
      else
        for (const std::string& name : names) run_by(name, *bench, speaks);
    // It covers all groups: the first thread of each group reports.
    std::vector<double> wrong(static_cast<std::size_t>(all.count()), 0);
    if (ranks.first_rank() == 0) wrong[0] = static_cast<double>(bench->wrong());
    wrong = all.reduce(std::move(wrong), 1, tuttiSum);
    if (!speaks) return;
    summary_.out_of_bounds = static_cast<std::int64_t>(wrong[0]);
    summary_.average_busbw = bench->average_busbw();
    summary_.completed = true;
    if (options_.report_memory) memory_line_ = memory_line(after_init, bench->buffer_bytes());
  }

  // All ranks find alike that a name cannot run, and go on with the next.
  void run_by(const std::string& name, Bench& bench, bool speaks) {
    if (speaks) report_.comment(fmt::format("# algorithm {}\n", name));
    try {
      bench.force(name);
      bench.run();
    } catch (const Exception& error) {
      if (error.code() != tuttiNotSupported) throw;
      if (speaks) report_.skipped(fmt::format("{}: {}", name, error.what()));
    }
  }

  // Returns the memory that -M reports: on GPUs the use by anyone, else that of this process.
  std::optional<double> bytes_in_use() const {
    if (!options_.report_memory) return std::nullopt;
    if (gpus_ != nullptr) return static_cast<double>(gpus_->used_bytes());
    const auto use = memory_use();
    if (!use) return std::nullopt;
    return static_cast<double>(use->anonymous_bytes + use->shared_part_bytes);
  }

  // Describes rank 0's process, as nccl-tests' -M does. Other threads' buffers count like this
  // one's.
  std::string memory_line(std::optional<double> after_init, std::uint64_t buffer_bytes) const {
    const auto now = bytes_in_use();
    if (!bytes_before_init_ || !after_init || !now) return {};
    const double user = static_cast<double>(buffer_bytes) * options_.threads / 0x1p20;
    // To the printed digit, and never a negative zero.
    const auto rounded = [](double value) { return std::round(value * 10) / 10 + 0.0; };
    const double init = rounded((*after_init - *bytes_before_init_) / 0x1p20);
    const double collective = rounded((*now - *after_init) / 0x1p20 - user);
    return fmt::format(
        "# {:<20} : Initialization {:.1f} MB | User-Allocated {:.1f} MB | "
        "Collective {:.1f} MB | Total  {:.1f} MB\n",
        gpus_ != nullptr ? "GPU memory usage" : "Host memory usage", init, user, collective,
        init + user + collective);
  }

  // Keeps the first error of this process. It is told if it is the job's first, or another cause;
  // not if it is the same again or comes of another process's failure.
  void record(int rank, const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (!error_.empty()) return;
    error_ = fmt::format("rank {}: {}", rank, error.what());
    if (job_.claim_failure(error_)) {
      tell_error_ = true;
      return;
    }
    const auto* const failed = dynamic_cast<const Exception*>(&error);
    const bool consequence = dynamic_cast<const OtherEnded*>(&error) != nullptr ||
                             (failed != nullptr && failed->code() == tuttiRemoteError);
    const bool known = job_.first_failure().find(error.what()) != std::string::npos;
    tell_error_ = !consequence && !known;
  }

  const Tool& tool_;
  const Options& options_;
  Job& job_;
  Gpus* gpus_;     // null: host memory
  Report report_;  // used by rank 0's thread alone once threads run
  std::optional<MemoryUse> before_init_;
  std::optional<double> bytes_before_init_;  // -M
  tuttiUniqueId id_{};
  std::mutex mutex_;
  std::string error_;        // guarded by mutex_
  bool tell_error_ = false;  // guarded by mutex_
  Summary summary_;          // written by rank 0's thread, read after it was joined
  std::string memory_line_;
};

// Returns the bytes that all ranks' buffers may take together; nothing if unknown.
std::optional<std::uint64_t> bytes_for_a_rank(const Options& options, Gpus* gpus) {
  const auto ranks = static_cast<std::uint64_t>(options.ranks());
  if (gpus == nullptr) {
    const auto available = available_memory_bytes();
    if (!available) return std::nullopt;
    return *available / 10 * 9 / ranks;
  }
  const std::uint64_t gpu_count = gpus->list().size();
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (std::uint64_t gpu = 0; gpu < std::min(gpu_count, ranks); ++gpu) {
    const std::uint64_t ranks_of_gpu = (ranks - gpu + gpu_count - 1) / gpu_count;
    most = std::min(most, gpus->free_bytes(static_cast<int>(gpu)) / 10 * 9 / ranks_of_gpu);
  }
  return most;
}

// Two buffers a rank must fit beside what else runs, as nccl-tests does with a device's memory.
void limit_to_memory(Options& options, Gpus* gpus) {
  const auto for_a_rank = bytes_for_a_rank(options, gpus);
  if (!for_a_rank) return;
  const std::uint64_t most = *for_a_rank / 2;
  if (options.max_bytes <= most) return;
  options.notes.push_back(
      fmt::format("-e {} does not fit in memory; reduced to {} bytes", options.max_bytes, most));
  options.max_bytes = most;
  options.min_bytes = std::min(options.min_bytes, most);
}

// Help, or what is wrong with the arguments; of launched processes the first one says it.
int end_without_run(const Tool& tool, const ParseOutcome& outcome, bool speaks) {
  if (!speaks) return outcome.status;
  if (outcome.status != 0) {
    static_cast<void>(std::fputs(outcome.text.c_str(), stderr));
    return outcome.status;
  }
  const int error = write_out(outcome.text);
  if (error != 0) say(tool.program(), lost_output(error));
  return error == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

// Returns what a tool cannot do of what the options ask for, or nothing.
std::string complete_options(const Tool& tool, Options& options) {
  if (tool.stages != nullptr && options.aggregated > 1)
    return fmt::format(
        "-m: the stages of a {} need each other, and a group would run them together",
        tool.info().name);
  return tool.complete != nullptr ? tool.complete(options) : std::string();
}

// --procs forks ranks of its own, so it also works where the launcher's variables are damaged.
bool forks(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word.starts_with("--procs"); });
}

}  // namespace

int run_tool(const Tool& tool, int argc, char** argv) {
  constexpr int kUsageError = 2;
  const std::vector<std::string> arguments(argv, argv + argc);
  Launcher launcher;
  if (const tuttiResult_t found = tuttiGetLauncher(&launcher.value); found != tuttiSuccess) {
    if (!forks(arguments)) {
      say(tool.program(), tuttiGetLastError(nullptr));
      return kUsageError;
    }
    launcher.value.nRanks = 1;
  }
  const bool speaks = launcher.rank() == 0;
  ParseOutcome outcome = parse_options(tool.program(), {arguments.begin() + 1, arguments.end()},
                                       {launcher.value.name, launcher.nranks()});
  if (!outcome.options) return end_without_run(tool, outcome, speaks);
  Options& options = *outcome.options;
  if (const std::string wrong = apply_environment(options, std::getenv); !wrong.empty()) {
    say(tool.program(), wrong);
    return kUsageError;
  }
  if (const std::string wrong = complete_options(tool, options); !wrong.empty()) {
    if (speaks) say(tool.program(), wrong);
    return kUsageError;
  }
  const FoundGpus found = options.may_use_gpus() ? find_gpus() : FoundGpus{};
  if (const std::string wrong = choose_memory(options, found.absence); !wrong.empty()) {
    if (speaks) say(tool.program(), wrong);
    return kUsageError;
  }
  Gpus* const gpus = options.on_gpus() ? found.gpus.get() : nullptr;
  limit_to_memory(options, gpus);
  for (const std::string& note : options.notes)
    if (speaks) static_cast<void>(std::fputs(fmt::format("# note: {}\n", note).c_str(), stderr));

  LaunchOptions launching;
  launching.program = tool.program();
  launching.processes = options.processes;
  launching.ranks_per_process = options.threads * options.ranks_per_thread;
  if (options.launched) launching.launched_process = launcher.rank();
  return launch(launching,
                [&](Job& job) { return Process(tool, options, job, arguments, gpus).run(); });
}

}  // namespace tutti::perf
