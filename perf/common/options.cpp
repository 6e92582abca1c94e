// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "common/bytes_flag.hpp"
#include "common/flags.hpp"

namespace tutti::perf {
namespace {

// Holds the values of the command line before they are checked against each other.
struct Raw {
  std::string min_bytes = "32M", max_bytes = "32M", step_bytes = "1M";
  std::string op = "sum", type = "float", root = "0";
  int blocking = 0, average = 1, parallel_init = 0, report_cputime = 0, report_timestamps = 0;
  int per_iteration = 0, stream_null = 0;
  std::string memory;  // the values of -M or --memory, with commas between them
};

void add_nccl_flags(CLI::App& app, Raw& raw, Options& options) {
  app.add_option("-t,--nthreads", options.threads, "threads per process")->default_val(1);
  app.add_option("-g,--ngpus", options.ranks_per_thread,
                 "ranks per thread, rank r on GPU r modulo the number of GPUs")
      ->default_val(1);
  app.add_option("-b,--minbytes", raw.min_bytes, "smallest size, K/M/G allowed")
      ->default_val("32M");
  app.add_option("-e,--maxbytes", raw.max_bytes, "largest size")->default_val("32M");
  app.add_option("-i,--stepbytes", raw.step_bytes,
                 "what is added to a size for the next; not with -f")
      ->default_val("1M");
  app.add_option("-f,--stepfactor", options.step_factor,
                 "what a size is multiplied by for the next");
  app.add_option("-n,--iters", options.iterations, "timed iterations")->default_val(20);
  app.add_option("-w,--warmup_iters", options.warmup_iterations, "warm-up iterations")
      ->default_val(1);
  app.add_option("-m,--agg_iters", options.aggregated, "operations in one group")->default_val(1);
  app.add_option("-N,--run_cycles", options.run_cycles, "runs of everything; 0: run until stopped")
      ->default_val(1);
  app.add_option("-p,--parallel_init", raw.parallel_init, "0/1: threads initialize in parallel");
  app.add_option("-c,--check", options.checks, "check operations per size; 0: no checks")
      ->default_val(1);
  app.add_option("-o,--op", raw.op, "sum, prod, max, min, avg, mulsum or all")->default_val("sum");
  app.add_option("-d,--datatype", raw.type, "data type as NCCL names it, or all")
      ->default_val("float");
  app.add_option("-r,--root", raw.root, "root rank, or all")->default_val("0");
  app.add_option("-z,--blocking", raw.blocking,
                 "1: barrier after each operation, 2: wait only, 3: barrier outside the timing")
      ->default_val(0);
  app.add_option("-T,--timeout", options.timeout_s, "seconds an operation may wait for a peer");
  app.add_option("-C,--report_cputime", raw.report_cputime, "0/1: report the calls' own time");
  app.add_option("-S,--report_timestamps", raw.report_timestamps, "0/1: add a time to each line");
  app.add_option("-J,--output_file", options.json_path, "also write the results to FILE.json");
  app.add_option("-a,--average", raw.average, "time of ranks: 0 rank 0, 1 avg, 2 min, 3 max")
      ->default_val(1);
  app.add_option(
         "-M,--memory", raw.memory,
         "0/1: report memory use; auto, host or device: where the buffers are (both with two "
         "flags);\nauto: on the GPUs where one can be used and nothing is forked")
      ->join(',');
  app.add_option("-u,--unalign", options.unalign, "start buffers this many elements off a page")
      ->default_val(0);
  app.add_option("-I,--per_iter_timing", raw.per_iteration, "0/1: add columns per iteration");
  app.add_option("-K,--per_iter_skip", options.per_iteration_skip,
                 "leading iterations that those columns leave out");
}

void add_device_flags(CLI::App& app, Raw& raw, Options& options) {
  app.add_option("-y,--stream_null", raw.stream_null, "0/1: on the default stream; needs a GPU");
  app.add_option("-G,--cudagraph", options.graph_launches,
                 "capture a measurement's iterations as a CUDA graph and launch it N times;\n"
                 "needs a GPU");
  app.add_option("-R,--local_register", options.local_register,
                 "1: register the buffers, so that RDMA sends from them without a copy;\n2: "
                 "buffers are symmetric windows, which ranks read without a copy");
  app.add_option("-x,--cta_policy", options.cta_policy, "0/1/2: has no effect");
  app.add_option("-D,--device_implementation", options.device_implementation, "has no effect");
  app.add_option("-V,--device_cta_count", options.device_cta_count, "has no effect");
}

void add_own_flags(CLI::App& app, Options& options) {
  app.add_option("--procs", options.processes,
                 "processes to fork, each with -t threads of -g ranks; not under a launcher, whose "
                 "processes count")
      ->default_val(1);
  app.add_option(
      "--algo", options.algorithm,
      "force an algorithm (tutti-info lists them); several, between commas, are measured\n"
      "one after another, without those that cannot run");
  app.add_option("--ctas", options.ctas,
                 "blocks of its GPU that a rank takes, at most (minCTAs and maxCTAs); needs a GPU");
  app.add_flag("--async", options.asynchronous,
               "on host memory: calls on a stream (tuttiStreamCreate) for each rank; with -C 1 the "
               "time of the calls alone");
  app.add_flag("--pin", options.pin,
               "bind the t-th thread, counted over all processes, to the t-th usable processor,\n"
               "starting again after the last");
  app.add_flag("--plan", options.show_plan, "print the plan of each measured size");
  app.add_flag("--explain", options.explain,
               "print every candidate's price for each measured size, and why it lost");
  app.add_flag("--startup", options.startup,
               "report time from fork to first result, and memory after a 64 MiB operation");
  app.add_flag("--json-env", options.json_environment,
               "store the environment in the JSON file (it may hold secrets)");
  app.add_option("--seed", options.seed, "of the test data")->default_val(1);
}

// nccl-tests' --memory is a number, and Tutti's own a word.
std::string read_memory(const Raw& raw, Options& options) {
  std::istringstream values(raw.memory);
  for (std::string value; std::getline(values, value, ',');) {
    if (value == "auto")
      options.memory = Memory::kAuto;
    else if (value == "host")
      options.memory = Memory::kHost;
    else if (value == "device")
      options.memory = Memory::kDevice;
    else if (value == "0" || value == "1")
      options.report_memory = value == "1";
    else
      return fmt::format("--memory: '{}' is not one of auto, host, device, 0, 1", value);
  }
  return {};
}

std::string no_size(std::string_view text) {
  return fmt::format("'{}' is not a size; give a number, or one like 64K, 16M or 1G", text);
}

std::string read_sizes(const Raw& raw, Options& options) {
  const auto read = [](const std::string& text, const char* flag, std::uint64_t& out) {
    const auto bytes = parse_bytes(text);
    if (bytes) out = *bytes;
    return bytes ? std::string() : fmt::format("{}: {}", flag, no_size(text));
  };
  if (auto error = read(raw.min_bytes, "-b", options.min_bytes); !error.empty()) return error;
  if (auto error = read(raw.max_bytes, "-e", options.max_bytes); !error.empty()) return error;
  if (auto error = read(raw.step_bytes, "-i", options.step_bytes); !error.empty()) return error;
  if (options.max_bytes < options.min_bytes)
    return fmt::format("invalid sizes: -b {} is larger than -e {}", raw.min_bytes, raw.max_bytes);
  if (options.step_factor <= 1 && options.step_bytes == 0 && options.max_bytes > options.min_bytes)
    return "-i must not be 0";
  return {};
}

// "sum, prod, ...", for messages.
template <typename Name>
std::string names(int count, Name name) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}, ", name(i));
  return text + "all";
}

std::string read_names(const Raw& raw, Options& options) {
  options.all_ops = same_name(raw.op, "all");
  if (options.all_ops) {
    options.ops.clear();
    for (int i = 0; i < kOpCount; ++i) options.ops.push_back(static_cast<Op>(i));
  } else if (const auto op = parse_op(raw.op)) {
    options.ops = {*op};
  } else {
    return fmt::format("-o: unknown operation '{}'; choose one of {}", raw.op,
                       names(kOpCount, [](int i) { return op_name(static_cast<Op>(i)); }));
  }
  options.all_types = same_name(raw.type, "all");
  if (options.all_types) {
    options.types.clear();
    for (int i = 0; i < tuttiNumTypes; ++i)
      options.types.push_back(static_cast<tuttiDataType_t>(i));
  } else if (const auto type = parse_type(raw.type)) {
    options.types = {*type};
  } else {
    return fmt::format(
        "-d: unknown data type '{}'; choose one of {}", raw.type,
        names(tuttiNumTypes, [](int i) { return type_name(static_cast<tuttiDataType_t>(i)); }));
  }
  if (same_name(raw.root, "all")) {
    options.root = -1;
    return {};
  }
  const char* end = raw.root.data() + raw.root.size();
  if (std::from_chars(raw.root.data(), end, options.root).ptr != end)
    return fmt::format("-r: '{}' is neither a rank nor 'all'", raw.root);
  return {};
}

struct Bound {
  const char* flag;
  std::int64_t value, least, most;
};

std::string check_bounds(const Raw& raw, const Options& options) {
  constexpr std::int64_t kMany = 1'000'000'000;
  const std::int64_t ranks =
      std::int64_t{options.processes} * options.threads * options.ranks_per_thread;
  const Bound bounds[] = {
      {"-t", options.threads, 1, kMaxRanks},
      {"-g", options.ranks_per_thread, 1, kMaxRanks},
      {options.launched ? "processes of the launcher" : "--procs", options.processes, 1,
       kMaxProcesses},
      {"ranks in all (processes times -t times -g)", ranks, 1, kMaxRanks},
      {"-n", options.iterations, 1, kMany},
      {"-w", options.warmup_iterations, 0, kMany},
      {"-m", options.aggregated, 1, 1 << 20},
      {"-N", options.run_cycles, 0, kMany},
      {"-c", options.checks, 0, kMany},
      {"-r", options.root, -1, ranks - 1},
      {"-z", raw.blocking, 0, 3},
      {"-y", raw.stream_null, 0, 1},
      {"-G", options.graph_launches, 0, 1'000'000},
      {"-R", options.local_register, 0, 2},
      {"--ctas", options.ctas, 0, 1024},
      {"-T", options.timeout_s, 0, 1'000'000},
      {"-a", raw.average, 0, 3},
      {"-u", options.unalign, 0, 1 << 20},
      {"-K", options.per_iteration_skip, 0, options.iterations - 1},
      {"-f", static_cast<std::int64_t>(options.step_factor), 1, kMany},
  };
  for (const Bound& bound : bounds)
    if (bound.value < bound.least || bound.value > bound.most)
      return fmt::format("{}: {} is not in {}..{}", bound.flag, bound.value, bound.least,
                         bound.most);
  const std::string& path = options.json_path;
  if (!path.empty() && !path.ends_with(".json"))
    return fmt::format("-J: '{}' does not end in .json, which is the only format", path);
  return {};
}

std::string finish(const Raw& raw, Options& options) {
  const std::function<std::string()> steps[] = {
      [&] { return read_sizes(raw, options); },
      [&] { return read_names(raw, options); },
      [&] { return check_bounds(raw, options); },
      [&] { return read_memory(raw, options); },
  };
  for (const auto& step : steps)
    if (auto error = step(); !error.empty()) return error;
  options.blocking = static_cast<Blocking>(raw.blocking);
  options.average = static_cast<Average>(raw.average);
  options.parallel_init = raw.parallel_init != 0;
  options.report_cputime = raw.report_cputime != 0;
  options.report_timestamps = raw.report_timestamps != 0;
  options.per_iteration = raw.per_iteration != 0;
  options.default_stream = raw.stream_null != 0;
  return {};
}

void add_notes(Options& options) {
  const auto note = [&](bool given, std::string_view flag, std::string_view why) {
    if (given) options.notes.push_back(fmt::format("{} has no effect: {}", flag, why));
  };
  const bool host = !options.on_gpus();
  constexpr std::string_view kHost = "ranks are on host memory";
  constexpr std::string_view kNotYet = "this version does not have this feature";
  note(host && options.default_stream, "-y", kHost);
  note(host && options.graph_launches > 0, "-G", kHost);
  note(host && options.ctas > 0, "--ctas", kHost);
  note(!host && options.asynchronous, "--async", "calls on GPUs are always on streams");
  note(!host && options.local_register == 1, "-R 1", kNotYet);
  note(!host && options.local_register == 2, "-R 2", "windows are in host memory only");
  note(options.cta_policy != 0, "-x", host ? kHost : kNotYet);
  note(options.device_implementation != 0, "-D", host ? kHost : kNotYet);
  note(options.device_cta_count != 16, "-V", host ? kHost : kNotYet);
}

// Returns a line about an option that a graph cannot serve; nothing if there is none.
std::string check_graph(const Options& options) {
  if (!options.on_gpus() || options.graph_launches == 0) return {};
  if (options.default_stream) return "-G: the default stream (-y 1) cannot be captured";
  if (options.blocking != Blocking::kOff) return "-G: a graph cannot wait between operations (-z)";
  if (options.per_iteration) return "-G: the iterations of a graph cannot be timed one by one (-I)";
  return {};
}

}  // namespace

std::vector<std::string> Options::algorithms() const {
  std::vector<std::string> names;
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(algorithm.find(',', begin), algorithm.size());
    names.push_back(algorithm.substr(begin, end - begin));
    begin = end + 1;
  } while (begin <= algorithm.size());
  return names;
}

std::string choose_memory(Options& options, const std::string& absence) {
  const bool device = options.memory == Memory::kDevice;
  if (device && options.processes > 1)
    return "--memory device: ranks on GPUs must be threads of one process; use -t or -g, not "
           "--procs or a launcher";
  if (device && !absence.empty()) return "--memory device: " + absence;
  options.memory = options.may_use_gpus() && absence.empty() ? Memory::kDevice : Memory::kHost;
  options.registered = !options.on_gpus() && options.local_register == 1;
  options.windows = !options.on_gpus() && options.local_register == 2;
  add_notes(options);
  if (!options.on_gpus() && options.asynchronous && options.per_iteration)
    return "--async: the iterations cannot be timed one by one (-I)";
  return check_graph(options);
}

ParseOutcome parse_options(const std::string& program, std::vector<std::string> arguments,
                           const LaunchedProcesses& launched) {
  constexpr int kUsageError = 2;
  Raw raw;
  Options options;
  CLI::App app(
      "Measures and checks a collective among threads and processes of this machine.\n"
      "Flags, columns and units are those of nccl-tests.",
      program);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as getopt
  add_nccl_flags(app, raw, options);
  add_device_flags(app, raw, options);
  add_own_flags(app, options);
  add_version_flag(app);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, app.help(), 0};
  } catch (const CLI::CallForVersion& version) {
    return {std::nullopt, fmt::format("{}\n", version.what()), 0};
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, fmt::format("{0}: {1} (see {0} --help)\n", program, error.what()),
            kUsageError};
  }
  if (launched.processes > 1) {
    if (app.count("--procs") > 0)
      return {std::nullopt,
              fmt::format("{}: --procs: {} has already started {} processes of this program; leave "
                          "--procs out, or set TUTTI_LAUNCHER=none to run each process alone\n",
                          program, launched.launcher, launched.processes),
              kUsageError};
    options.processes = launched.processes;
    options.launched = true;
  }
  if (const auto error = finish(raw, options); !error.empty())
    return {std::nullopt, fmt::format("{}: {}\n", program, error), kUsageError};
  return {std::move(options), {}, 0};
}

std::string apply_environment(Options& options,
                              const std::function<const char*(const char*)>& getenv_like) {
  if (const char* const mask = getenv_like("NCCL_TESTS_SPLIT_MASK"); mask != nullptr) {
    options.split = parse_split_mask(mask);
    if (!options.split)
      return fmt::format("NCCL_TESTS_SPLIT_MASK='{}' is not a hexadecimal number; example: 7",
                         mask);
  } else if (const char* const split = getenv_like("NCCL_TESTS_SPLIT"); split != nullptr) {
    options.split = parse_split(split);
    if (!options.split)
      return fmt::format(
          "NCCL_TESTS_SPLIT='{}' is not AND, OR, MOD or DIV and a number; example: MOD 2", split);
  }
  const char* const set = getenv_like("NCCL_TESTS_MIN_BW");
  if (const std::string_view all = set != nullptr ? set : ""; !all.empty()) {
    double busbw = 0;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), busbw);
    if (error != std::errc() || end != all.data() + all.size() || !std::isfinite(busbw) ||
        busbw < 0)
      return fmt::format("NCCL_TESTS_MIN_BW='{}' is not a bandwidth in GB/s; example: 12.5", all);
    options.required_busbw = busbw;
  }
  const char* const algorithm = getenv_like("TUTTI_ALGO");
  if (options.algorithm.empty() && algorithm != nullptr) options.algorithm = algorithm;
  return {};
}

CLI::Validator as_bytes() {
  return {[](std::string& text) {
            const auto bytes = parse_bytes(text);
            if (!bytes) return no_size(text);
            text = std::to_string(*bytes);
            return std::string();
          },
          "BYTES"};
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || number < 0) return std::nullopt;
  std::string suffix;
  for (char c : std::string_view(rest, static_cast<std::size_t>(end - rest)))
    suffix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (suffix.ends_with("IB") && suffix.size() == 3)
    suffix.resize(1);
  else if (suffix.ends_with("B") && suffix.size() == 2)
    suffix.resize(1);
  if (suffix == "K")
    number *= 0x1p10;
  else if (suffix == "M")
    number *= 0x1p20;
  else if (suffix == "G")
    number *= 0x1p30;
  else if (!suffix.empty())
    return std::nullopt;
  if (!(number <= 0x1p53)) return std::nullopt;
  return static_cast<std::uint64_t>(number);
}

std::vector<std::uint64_t> sizes_of(const Options& options) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    sizes.push_back(bytes);
    // A factor leaves 0 at 0: one size, not an endless run.
    const std::uint64_t next =
        options.step_factor > 1 ? bytes * options.step_factor : bytes + options.step_bytes;
    if (next <= bytes) break;
    bytes = next;
  }
  return sizes;
}

}  // namespace tutti::perf
