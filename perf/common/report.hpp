// SPDX-License-Identifier: Apache-2.0
// What the perf tools report, as data, and its two forms: the table of nccl-tests 2.19, byte for
// byte, and its JSON file.
//
// Text functions are pure: data in, lines out. JsonReport owns its file. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace tutti::perf {

// The release of nccl-tests whose output is followed.
inline constexpr const char* kFormatVersion = "2.19.6";

struct DeviceRow {
  int rank = 0;
  int group = 0;
  int pid = 0;
  std::string host;
  int device = 0;
  std::string bus;   // "host" for host memory
  std::string name;  // "AMD EPYC 7B13 (host memory)"
};

// Statistics of one timing's iterations, in microseconds; the maximum over ranks of each iteration.
struct IterationStats {
  int skipped = 0;
  double min_us = 0, max_us = 0, avg_us = 0, p50_us = 0, p95_us = 0, p99_us = 0, stdev_us = 0;
  std::vector<double> times_us;
  std::vector<std::vector<double>> per_process_times_us;
  [[nodiscard]] double cv_percent() const { return avg_us > 0 ? stdev_us / avg_us * 100 : 0; }
};
// Computes the statistics of times_us without its first `skip`; percentiles by nearest rank.
// times_us.size() > skip.
[[nodiscard]] IterationStats iteration_stats(std::vector<double> times_us, int skip);

// How the library ran an operation.
struct PlanFacts {
  std::string algorithm, protocol;
  std::uint64_t hash = 0;
  std::uint32_t slices = 0, replicas = 0;
};

// Holds the time of an operation in a graph's launches, by the GPU's clock.
struct GraphFacts {
  double cold_us = 0;             // in the first launch
  std::optional<double> warm_us;  // in the later ones, if there were any
};

// One half of a row: out-of-place or in-place.
struct Measurement {
  double time_us = 0;
  double algbw = 0;  // GB/s, GB = 1e9 bytes
  double busbw = 0;
  std::optional<std::int64_t> wrong;  // empty: not checked
  std::optional<IterationStats> iterations;
  PlanFacts plan;
  std::optional<GraphFacts> graph = std::nullopt;
};

struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::string type, op;
  int root = -1;
  Measurement out_of_place, in_place;
  std::string forced = {};  // where several algorithms are measured: which
};

struct Summary {
  std::int64_t out_of_bounds = 0;
  double average_busbw = 0;
  std::optional<double> required_busbw;  // NCCL_TESTS_MIN_BW
  std::vector<std::string> errors;
  bool completed = true;  // false: ended before everything was measured, so no figure is known
  [[nodiscard]] bool values_ok() const { return completed && out_of_bounds == 0; }
  [[nodiscard]] bool bandwidth_ok() const {
    return !required_busbw || (completed && average_busbw >= *required_busbw * 0.9);
  }
  [[nodiscard]] bool ok() const { return values_ok() && bandwidth_ok() && errors.empty(); }
};

// ---- Text

// Right-aligned in `width` characters with 2, 1 or 0 decimals, else an exponent.
[[nodiscard]] std::string fixed_width(double value, int width);
[[nodiscard]] std::string header_text(const std::string& program, const Options& options,
                                      const std::vector<DeviceRow>& devices);
[[nodiscard]] std::string table_head_text(const Options& options);
// The row in its parts, so that a long run shows what it is at.
[[nodiscard]] std::string row_start_text(const Row& row);
[[nodiscard]] std::string measurement_text(const Measurement& measurement);
// `now`: "2024-01-01 12:00:00", used if timestamps are asked for.
[[nodiscard]] std::string row_end_text(const Options& options, const std::string& now);
// Comment lines with the plans of a row (--plan).
[[nodiscard]] std::string plan_text(const Row& row);
// Comment lines with a row's graphs; empty where it has none.
[[nodiscard]] std::string graph_text(const Row& row);
// Each line of the text as a comment of the table.
[[nodiscard]] std::string comment_text(const std::string& text);
[[nodiscard]] std::string footer_text(const std::string& program, const Summary& summary,
                                      const std::string& memory_line);

// ---- JSON

// Written when closed. The environment is stored only if asked for.
class JsonReport {
 public:
  // Opens `path` exclusively; if it exists, path.0, path.1, ... Returns the open report, or an
  // error text.
  struct Opened;
  [[nodiscard]] static Opened open(const std::string& path);

  void begin(const std::vector<std::string>& arguments, const Options& options, int library_version,
             const std::vector<DeviceRow>& devices, const std::string& now);
  void add(const Row& row, const Options& options);
  // Writes everything; false if the file system refused.
  [[nodiscard]] bool close(const Summary& summary, const std::string& now);

  [[nodiscard]] const std::string& path() const { return path_; }
  JsonReport(JsonReport&&) noexcept;
  ~JsonReport();

 private:
  struct Document;
  JsonReport(std::FILE* file, std::string path);
  std::FILE* file_;
  std::string path_;
  std::unique_ptr<Document> document_;
};

struct JsonReport::Opened {
  std::optional<JsonReport> report;
  std::string error;
};

}  // namespace tutti::perf
