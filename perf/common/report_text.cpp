// SPDX-License-Identifier: Apache-2.0
// The table of nccl-tests 2.19, byte for byte; what Tutti adds stands in comment lines of its own.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "common/report.hpp"

namespace tutti::perf {
namespace {

int blocking_number(const Options& options) { return static_cast<int>(options.blocking); }

std::string counted(int count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string option_lines(const Options& options) {
  std::string text;
  switch (blocking_number(options)) {
    case 1:
      text += "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
      break;
    case 2:
      text += "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
      break;
    case 3:
      text +=
          "# Blocking Enabled: wait and barrier after each outer iteration (-n); "
          "time excludes barrier \n";
      break;
    default:
      break;
  }
  if (options.per_iteration) {
    text += fmt::format("# Per-Iteration Report: {}; i_* uses max over process rows",
                        options.on_gpus() ? "CUDA event timing" : "host clock timing");
    if (options.per_iteration_skip > 0)
      text += fmt::format("; summary skips first {} iterations", options.per_iteration_skip);
    text += " \n";
  }
  if (options.parallel_init)
    text += "# Parallel Init Enabled: threads call into tuttiCommInitRank concurrently \n";
  text += fmt::format(
      "# {} on {} memory = {} x {} x {}; algorithm {}\n", counted(options.ranks(), "rank", "ranks"),
      options.on_gpus() ? "device" : "host", counted(options.processes, "process", "processes"),
      counted(options.threads, "thread", "threads"),
      counted(options.ranks_per_thread, "rank", "ranks"),
      options.algorithm.empty() ? "auto" : options.algorithm);
  return text;
}

}  // namespace

std::string fixed_width(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

IterationStats iteration_stats(std::vector<double> times_us, int skip) {
  IterationStats stats;
  stats.skipped = skip;
  std::vector<double> sorted(times_us.begin() + skip, times_us.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  const auto nearest_rank = [&](std::size_t percent) {
    return sorted[std::min(n - 1, (n * percent + 99) / 100 - 1)];
  };
  stats.min_us = sorted.front();
  stats.max_us = sorted.back();
  stats.p50_us = sorted[n / 2];
  stats.p95_us = nearest_rank(95);
  stats.p99_us = nearest_rank(99);
  const auto count = static_cast<double>(n);
  stats.avg_us = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  double squares = 0;
  for (const double t : sorted) squares += (t - stats.avg_us) * (t - stats.avg_us);
  stats.stdev_us = std::sqrt(squares / count);
  stats.times_us = std::move(times_us);
  return stats;
}

std::string header_text(const std::string& program, const Options& options,
                        const std::vector<DeviceRow>& devices) {
  const bool factor = options.step_factor > 1;
  std::string text = fmt::format(
      "# Tutti {}.{}.{}, output in the format of nccl-tests version {}\n"
      "# Collective test starting: {}\n"
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} "
      "agg iters: {} validation: {} graph: {} unalign: {}\n",
      TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH, kFormatVersion, program, options.threads,
      options.ranks_per_thread, options.min_bytes, options.max_bytes,
      factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
      options.warmup_iterations, options.iterations, options.aggregated, options.checks,
      options.on_gpus() ? options.graph_launches : 0, options.unalign);
  text += option_lines(options);
  text += "#\n# Using devices\n";
  for (const DeviceRow& row : devices)
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [{}] {}\n",
                        row.rank, row.group, row.pid, row.host, row.device, row.bus, row.name);
  return text;
}

std::string table_head_text(const Options& options) {
  const char* time = options.report_cputime ? "cputime" : "time";
  const int stamp_width = options.report_timestamps ? 19 : 0;
  const char* stamp = options.report_timestamps ? "timestamp" : "";
  const char* stamp_unit = options.report_timestamps ? "%Y-%m-%d %H:%M:%S" : "";
  const auto lead = [](const char* size, const char* count, const char* type, const char* op,
                       const char* root) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  };
  const auto half = [&](const char* first, const char* algbw, const char* busbw,
                        const char* wrong) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", first, algbw, busbw, wrong);
  };
  const auto iteration = [&](const char* a, const char* b, const char* c, const char* d) {
    return options.per_iteration ? fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", a, b, c, d)
                                 : std::string();
  };
  const std::string names =
      half(time, "algbw", "busbw", "#wrong") + iteration("i_min", "i_max", "i_p99", "i_cv%");
  const std::string units =
      half("(us)", "(GB/s)", "(GB/s)", "") + iteration("(us)", "(us)", "(us)", "(%)");
  std::string text = "#\n" + lead("", "", "", "", "");
  text += options.per_iteration
              ? "              out-of-place (+ per-iteration)                                "
                "in-place (+ per-iteration)\n"
              : "           out-of-place                       in-place          \n";
  text += fmt::format("{}{}{} {:>{}}\n", lead("size", "count", "type", "redop", "root"), names,
                      names, stamp, stamp_width);
  text += fmt::format("{}{}{} {:>{}}\n", lead("(B)", "(elements)", "", "", ""), units, units,
                      stamp_unit, stamp_width);
  return text;
}

std::string row_start_text(const Row& row) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, row.type, row.op,
                     row.root);
}

std::string measurement_text(const Measurement& m) {
  std::string text = fmt::format("  {}  {}  {}", fixed_width(m.time_us, 7), fixed_width(m.algbw, 6),
                                 fixed_width(m.busbw, 6));
  text += m.wrong ? fmt::format("  {:6g}", static_cast<double>(*m.wrong)) : "    N/A";
  if (m.iterations)
    text += fmt::format("  {}  {}  {}  {}", fixed_width(m.iterations->min_us, 7),
                        fixed_width(m.iterations->max_us, 7), fixed_width(m.iterations->p99_us, 7),
                        fixed_width(m.iterations->cv_percent(), 7));
  return text;
}

std::string row_end_text(const Options& options, const std::string& now) {
  if (!options.report_timestamps || options.per_iteration) return "\n";
  return fmt::format("{:>21}\n", now);
}

std::string plan_text(const Row& row) {
  const auto one = [](const char* name, const PlanFacts& plan) {
    return fmt::format("#   plan {}: {} {}, slices {}, replicas {}, hash {:016x}\n", name,
                       plan.algorithm, plan.protocol, plan.slices, plan.replicas, plan.hash);
  };
  const bool same = row.out_of_place.plan.hash == row.in_place.plan.hash;
  return same ? one("both", row.in_place.plan)
              : one("out-of-place", row.out_of_place.plan) + one("in-place", row.in_place.plan);
}

std::string comment_text(const std::string& text) {
  std::string comments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) comments += "#   " + line + "\n";
  return comments;
}

std::string graph_text(const Row& row) {
  const auto one = [](const char* name, const Measurement& m) {
    if (!m.graph) return std::string();
    const std::string warm =
        m.graph->warm_us ? fmt::format(", later ones {:.2f} us", *m.graph->warm_us) : "";
    return fmt::format("#   graph {}: first launch {:.2f} us an operation{} (GPU's clock)\n", name,
                       m.graph->cold_us, warm);
  };
  return one("out-of-place", row.out_of_place) + one("in-place    ", row.in_place);
}

std::string footer_text(const std::string& program, const Summary& summary,
                        const std::string& memory_line) {
  // No figure of a run that ended early may look like a good one.
  const auto known = [&](auto figure) {
    return summary.completed ? fmt::format("{}", figure) : std::string("N/A");
  };
  std::string text =
      fmt::format("# {:<20} : {} {}\n", "Out of bounds values", known(summary.out_of_bounds),
                  summary.values_ok() ? "OK" : "FAILED");
  const char* verdict = !summary.required_busbw ? "" : summary.bandwidth_ok() ? "OK" : "FAILED";
  text += fmt::format("# {:<20} : {} {}\n", "Avg bus bandwidth",
                      known(fmt::format("{:g}", summary.average_busbw)), verdict);
  if (!memory_line.empty()) text += memory_line;
  text += fmt::format("#\n# Collective test concluded: {}\n", program);
  for (const std::string& error : summary.errors) text += fmt::format("# error: {}\n", error);
  return text + "#\n";
}

}  // namespace tutti::perf
