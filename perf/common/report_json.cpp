// SPDX-License-Identifier: Apache-2.0
// The JSON file of nccl-tests 2.19 (its version 3: booleans and roots are strings there), plus the
// fields tutti_version, processes, memory, algorithm and, for each measurement, a plan and what its
// graph's launches took.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/report.hpp"

extern char** environ;

namespace tutti::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFileVersion = 3;
constexpr int kMostNames = 1000;

const char* text_of(bool value) { return value ? "true" : "false"; }

Json iterations_json(const IterationStats& stats) {
  Json json{{"skipped_iterations", stats.skipped},
            {"min_us", stats.min_us},
            {"max_us", stats.max_us},
            {"avg_us", stats.avg_us},
            {"p50_us", stats.p50_us},
            {"p95_us", stats.p95_us},
            {"p99_us", stats.p99_us},
            {"stdev_us", stats.stdev_us},
            {"cv_pct", stats.cv_percent()},
            {"times_us", stats.times_us}};
  if (stats.per_process_times_us.size() > 1)
    json["per_process_max_times_us"] = stats.per_process_times_us;
  return json;
}

Json measurement_json(const Measurement& m, const Options& options) {
  Json json;
  json[options.report_cputime ? "cpu_time" : "time"] = m.time_us;
  json["alg_bw"] = m.algbw;
  json["bus_bw"] = m.busbw;
  json["nwrong"] = m.wrong ? Json(static_cast<double>(*m.wrong)) : Json();
  json["plan"] = {{"algorithm", m.plan.algorithm},
                  {"protocol", m.plan.protocol},
                  {"slices", m.plan.slices},
                  {"replicas", m.plan.replicas},
                  {"hash", fmt::format("{:016x}", m.plan.hash)}};
  if (m.graph) {
    json["graph"] = {{"first_launch_us", m.graph->cold_us}};
    if (m.graph->warm_us) json["graph"]["later_launches_us"] = *m.graph->warm_us;
  }
  return json;
}

Json config_json(const Options& options, const std::vector<DeviceRow>& devices) {
  Json json{{"nthreads", options.threads},
            {"ngpus", options.ranks_per_thread},
            {"minimum_bytes", options.min_bytes},
            {"maximum_bytes", options.max_bytes}};
  if (options.step_factor > 1)
    json["step_factor"] = options.step_factor;
  else
    json["step_bytes"] = options.step_bytes;
  json["warmup_iters"] = options.warmup_iterations;
  json["iterations"] = options.iterations;
  json["aggregated_iterations"] = options.aggregated;
  json["validation"] = options.checks;
  json["graph"] = options.on_gpus() ? options.graph_launches : 0;
  json["memory"] = options.on_gpus() ? "device" : "host";
  json["blocking_collectives"] = text_of(options.blocking != Blocking::kOff);
  json["per_iter_timing"] = text_of(options.per_iteration);
  json["per_iter_skip"] = options.per_iteration_skip;
  json["parallel_init"] = text_of(options.parallel_init);
  json["processes"] = options.processes;
  json["algorithm"] = options.algorithm.empty() ? "auto" : options.algorithm;
  json["devices"] = Json::array();
  for (const DeviceRow& row : devices)
    json["devices"].push_back({{"rank", row.rank},
                               {"group", row.group},
                               {"pid", row.pid},
                               {"hostname", row.host},
                               {"device", row.device},
                               {"device_hex", row.bus},
                               {"device_info", row.name}});
  return json;
}

}  // namespace

struct JsonReport::Document {
  Json json;
};

JsonReport::JsonReport(std::FILE* file, std::string path)
    : file_(file), path_(std::move(path)), document_(std::make_unique<Document>()) {}
JsonReport::JsonReport(JsonReport&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)),
      path_(std::move(other.path_)),
      document_(std::move(other.document_)) {}
JsonReport::~JsonReport() {
  if (file_ != nullptr) std::fclose(file_);
}

JsonReport::Opened JsonReport::open(const std::string& path) {
  std::string attempt = path;
  for (int suffix = 0; suffix <= kMostNames; ++suffix) {
    const int fd = ::open(attempt.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return {JsonReport(::fdopen(fd, "w"), attempt), {}};
    if (errno != EEXIST) {
      return {std::nullopt, fmt::format("skipping json output; {} is not accessible: {}", attempt,
                                        std::strerror(errno))};
    }
    attempt = fmt::format("{}.{}", path, suffix);
  }
  return {std::nullopt,
          fmt::format("skipping json output; {} and {} others exist", path, kMostNames)};
}

void JsonReport::begin(const std::vector<std::string>& arguments, const Options& options,
                       int library_version, const std::vector<DeviceRow>& devices,
                       const std::string& now) {
  Json& json = document_->json;
  json["version"] = kFileVersion;
  json["start_time"] = now;
  json["args"] = arguments;
  json["env"] = Json::array();
  if (options.json_environment)
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
      json["env"].push_back(*entry);
  json["nccl_version"] = library_version;
  json["tutti_version"] = TUTTI_VERSION_CODE;
  json["config"] = config_json(options, devices);
  json["results"] = Json::array();
}

void JsonReport::add(const Row& row, const Options& options) {
  Json json{{"size", row.bytes},
            {"count", row.count},
            {"type", row.type},
            {"redop", row.op},
            {"root", fmt::format("{:6}", row.root)}};
  if (!row.forced.empty()) json["algorithm"] = row.forced;
  json["out_of_place"] = measurement_json(row.out_of_place, options);
  if (row.out_of_place.iterations)
    json["out_of_place_per_iter"] = iterations_json(*row.out_of_place.iterations);
  json["in_place"] = measurement_json(row.in_place, options);
  if (row.in_place.iterations)
    json["in_place_per_iter"] = iterations_json(*row.in_place.iterations);
  json["actual_iterations"] = options.iterations;
  json["experiment_name"] = "";
  document_->json["results"].push_back(std::move(json));
}

bool JsonReport::close(const Summary& summary, const std::string& now) {
  Json& json = document_->json;
  json["out_of_bounds"] = {{"count", summary.out_of_bounds},
                           {"okay", text_of(summary.values_ok())}};
  json["average_bus_bandwidth"] = {
      {"bandwidth", summary.average_busbw},
      {"okay", summary.required_busbw ? text_of(summary.bandwidth_ok()) : "unchecked"}};
  json["errors"] = summary.errors;
  json["end_time"] = now;
  // Bytes that are not UTF-8 (arguments, environment) are replaced, not refused.
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::FILE* file = std::exchange(file_, nullptr);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return (std::fclose(file) == 0) && written;
}

}  // namespace tutti::perf
