// SPDX-License-Identifier: Apache-2.0
#include "measured.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/text.hpp"
#include "topology/json_reader.hpp"

namespace tutti::sim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostTableBytes = 16 << 20, kMostRows = 100'000, kMostFiles = 10'000;

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0;;) {
    const std::size_t comma = line.find(',', at);
    cells.push_back(line.substr(at, comma - at));
    if (comma == std::string_view::npos) return cells;
    at = comma + 1;
  }
}

// Positive and finite, or nothing.
double number_in(std::string_view cell) {
  double value = 0;
  const auto [end, failed] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool whole = failed == std::errc{} && end == cell.data() + cell.size();
  return whole && std::isfinite(value) && value > 0 ? value : 0;
}

// Says which cell of a row holds which value.
struct Columns {
  std::size_t size = 0, time = 0, algorithm = 0, count = 0;
  bool named = false;
};

Result<Columns> parse_header(std::string_view line, const std::string& file) {
  const std::vector<std::string_view> cells = split(line);
  Columns columns{.count = cells.size()};
  const auto find = [&](std::string_view name, std::size_t& to) {
    const auto found = std::ranges::find(cells, name);
    to = static_cast<std::size_t>(found - cells.begin());
    return found != cells.end();
  };
  columns.named = find("algorithm", columns.algorithm);
  if (find("size_bytes", columns.size) && find("time_us", columns.time)) return columns;
  return make_error(Code::kInvalidArgument,
                    fmt::format("{}:1: '{}' is not a header with size_bytes and time_us", file,
                                printable(line, 80)));
}

std::vector<Point> sorted(std::vector<Point> points) {
  std::ranges::stable_sort(points, {}, &Point::size_bytes);
  const auto same = [](const Point& a, const Point& b) { return a.size_bytes == b.size_bytes; };
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
  return points;
}

// The files below a folder by their names without folders.
Result<std::map<std::string, fs::path>> files_below(const std::string& folder) {
  std::error_code failed;
  fs::recursive_directory_iterator at(folder, failed), end;
  std::map<std::string, fs::path> files;
  for (; !failed && at != end && files.size() < kMostFiles; at.increment(failed))
    if (at->is_regular_file(failed)) files.emplace(at->path().filename().string(), at->path());
  if (!failed) return files;
  return make_error(Code::kSystemError,
                    fmt::format("{} cannot be read: {}", printable(folder), failed.message()));
}

Result<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && fs::file_size(path) <= kMostTableBytes) text << file.rdbuf();
  if (file && !text.str().empty()) return text.str();
  return make_error(Code::kSystemError,
                    fmt::format("{}: the file is empty, larger than {} bytes, or cannot be read",
                                printable(path.string()), kMostTableBytes));
}

class ManifestReader {
 public:
  ManifestReader(std::string file, std::map<std::string, fs::path> files)
      : file_(std::move(file)), files_(std::move(files)) {}

  Result<Measurements> read(const json& root) {
    TUTTI_TRY_ASSIGN(
        const JsonReader top,
        JsonReader::open(root, {file_, {}}, {"clusters", "studies", "skipped", "licence"}));
    if (!top.has("studies") || !top.get("studies").is_array())
      return top.where().refuse("has no list \"studies\"");
    if (!top.has("clusters") || !top.get("clusters").is_object())
      return top.where().refuse("has no object \"clusters\"");
    clusters_ = &top.get("clusters");
    for (std::size_t i = 0; i < top.get("studies").size(); ++i)
      TUTTI_TRY(read_study(top.get("studies")[i], top.at("studies").at(std::to_string(i))));
    read_skipped(top);
    return std::move(result_);
  }

 private:
  Status read_study(const json& value, const JsonWhere& where) {
    TUTTI_TRY_ASSIGN(const JsonReader reader,
                     JsonReader::open(value, where, {"name", "profile", "leave_out", "tables"}));
    Study study;
    std::string leave_out = "nothing";
    TUTTI_TRY(reader.read("name", study.name));
    TUTTI_TRY(reader.read("profile", study.profile));
    // A bundle brings its own.
    if (const auto own = files_.find(study.profile); own != files_.end())
      study.profile = fs::absolute(own->second).string();
    TUTTI_TRY(reader.read("leave_out", leave_out));
    static const std::map<std::string, LeaveOut, std::less<>> kNames{
        {"nothing", LeaveOut::kNothing},
        {"nodes", LeaveOut::kNodes},
        {"cluster", LeaveOut::kCluster},
        {"sizes", LeaveOut::kSizes}};
    if (!kNames.contains(leave_out))
      return reader.at("leave_out")
          .refuse(fmt::format("'{}' is not one of nothing, nodes, cluster, sizes", leave_out));
    study.leave_out = kNames.at(leave_out);
    if (!reader.has("tables") || !reader.get("tables").is_array())
      return where.refuse("has no list \"tables\"");
    for (std::size_t i = 0; i < reader.get("tables").size(); ++i)
      TUTTI_TRY(
          read_table(reader.get("tables")[i], reader.at("tables").at(std::to_string(i)), study));
    if (!study.groups.empty()) result_.studies.push_back(std::move(study));
    return {};
  }

  Status read_table(const json& value, const JsonWhere& where, Study& study) {
    TUTTI_TRY_ASSIGN(const JsonReader reader,
                     JsonReader::open(value, where,
                                      {"file", "cluster", "nodes", "collective", "variant",
                                       "algorithm", "protocol", "algorithms"}));
    std::string file, cluster, collective = "all_reduce", variant, algorithm, protocol;
    TUTTI_TRY(reader.read("file", file));
    TUTTI_TRY(reader.read("cluster", cluster));
    TUTTI_TRY(reader.read("collective", collective));
    TUTTI_TRY(reader.read("variant", variant));
    TUTTI_TRY(reader.read("algorithm", algorithm));
    TUTTI_TRY(reader.read("protocol", protocol));
    named_.insert(file);
    const auto found = files_.find(file);
    if (found == files_.end()) {
      result_.skipped.push_back(
          fmt::format("{}: the manifest names this file, which does not exist", file));
      return {};
    }
    if (!clusters_->contains(cluster))
      return reader.at("cluster").refuse(fmt::format("'{}' is not one of the clusters", cluster));
    TUTTI_TRY_ASSIGN(Cluster whole,
                     cluster_of(clusters_->at(cluster), file_, "/clusters/" + cluster));
    std::int32_t nodes = whole.nodes;
    TUTTI_TRY(reader.read("nodes", nodes, Cluster::kMostNodes));
    TUTTI_TRY_ASSIGN(whole, resize(whole, nodes));
    const auto parsed = find_collective(collective);
    if (!parsed) return reader.at("collective").refuse(parsed.error().message);
    TUTTI_TRY_ASSIGN(const std::string text, read_text(found->second));
    TUTTI_TRY_ASSIGN(auto rows, parse_table(text, file));
    Group& group = group_of(study, cluster, variant, whole, *parsed);
    return add_series(reader, {{}, algorithm, protocol, {}}, rows, group);
  }

  // The series of one algorithm, or of each that "algorithms" maps.
  static Status add_series(const JsonReader& reader, Series series,
                           std::map<std::string, std::vector<Point>>& rows, Group& group) {
    if (reader.has("algorithm") == reader.has("algorithms"))
      return reader.where().refuse("needs either \"algorithm\" or \"algorithms\"");
    if (reader.has("algorithm")) {
      if (rows.size() != 1 || rows.begin()->first != "")
        return reader.at("algorithm")
            .refuse("the table has a column of algorithms; map them in \"algorithms\"");
      series.label = series.algorithm + (series.protocol.empty() ? "" : "/" + series.protocol);
      series.points = std::move(rows.begin()->second);
      group.series.push_back(std::move(series));
      return {};
    }
    const json& algorithms = reader.get("algorithms");
    if (!algorithms.is_object())
      return reader.at("algorithms")
          .refuse("is not an object {\"name in the table\": \"name in Tutti\"}");
    for (const auto& [theirs, ours] : algorithms.items()) {
      if (!ours.is_string() || !rows.contains(theirs))
        return reader.at("algorithms").at(theirs).refuse("no row of the table has this name");
      series.label = series.algorithm = ours.get<std::string>();
      series.points = rows.at(theirs);
      group.series.push_back(series);
    }
    return {};
  }

  static Group& group_of(Study& study, const std::string& cluster_name, const std::string& variant,
                         const Cluster& cluster, Collective collective) {
    const std::string name =
        fmt::format("{} {} nodes{}{}", cluster_name, cluster.nodes, variant.empty() ? "" : " ",
                    variant) +
        (collective == Collective::kAllReduce ? "" : fmt::format(" {}", name_of(collective)));
    for (Group& group : study.groups)
      if (group.name == name) return group;
    study.groups.push_back({name, cluster_name, cluster, collective, {}});
    return study.groups.back();
  }

  // Files that are there and named nowhere, with the manifest's reason where it gives one.
  void read_skipped(const JsonReader& top) {
    for (const auto& [name, path] : files_) {
      if (path.extension() != ".csv" || named_.contains(name)) continue;
      std::string why = "the manifest does not name it";
      if (top.has("skipped") && top.get("skipped").is_object())
        for (const auto& [prefix, reason] : top.get("skipped").items())
          if (name.starts_with(prefix) && reason.is_string())
            why = printable(reason.get<std::string>());
      result_.skipped.push_back(fmt::format("{}: {}", printable(name), why));
    }
  }

  static Result<Collective> find_collective(const std::string& name) {
    if (const auto known = parse_collective(name)) return *known;
    return make_error(Code::kInvalidArgument,
                      fmt::format("'{}' is not a collective", printable(name, 40)));
  }

  std::string file_;
  std::map<std::string, fs::path> files_;
  const json* clusters_ = nullptr;
  std::set<std::string> named_;
  Measurements result_;
};

}  // namespace

Result<std::map<std::string, std::vector<Point>>> parse_table(const std::string& text,
                                                              const std::string& file) {
  std::map<std::string, std::vector<Point>> rows;
  std::istringstream lines(text);
  std::string line;
  std::size_t number = 0;
  Columns columns;
  while (std::getline(lines, line)) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (number == 1) {
      TUTTI_TRY_ASSIGN(columns, parse_header(line, printable(file)));
      continue;
    }
    if (line.empty()) continue;
    const std::vector<std::string_view> cells = split(line);
    const bool complete = cells.size() == columns.count && number <= kMostRows;
    const Point point =
        complete ? Point{number_in(cells[columns.size]), number_in(cells[columns.time])} : Point{};
    if (point.size_bytes == 0 || point.time_us == 0)
      return make_error(
          Code::kInvalidArgument,
          fmt::format("{}:{}: '{}' is not a row of {} cells with a size and a time above 0",
                      printable(file), number, printable(line, 80), columns.count));
    rows[columns.named ? std::string(cells[columns.algorithm]) : ""].push_back(point);
  }
  if (rows.empty())
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: the table has no rows", printable(file)));
  for (auto& [name, points] : rows) points = sorted(std::move(points));
  return rows;
}

Result<Measurements> read_measurements(const std::string& folder,
                                       const std::string& manifest_text) {
  TUTTI_TRY_ASSIGN(auto files, files_below(folder));
  std::string text = manifest_text, name = "the built-in manifest";
  const fs::path own = fs::path(folder) / "manifest.json";
  if (std::error_code failed; fs::exists(own, failed)) {
    name = own.string();
    TUTTI_TRY_ASSIGN(text, read_json_file(name));
  }
  TUTTI_TRY_ASSIGN(const json root, parse_json(text, name));
  ManifestReader reader(name, std::move(files));
  TUTTI_TRY_ASSIGN(Measurements measurements, reader.read(root));
  if (measurements.studies.empty())
    return make_error(Code::kInvalidArgument,
                      fmt::format("{}: none of the tables that {} names exists; write a "
                                  "manifest.json that describes the tables",
                                  printable(folder), name));
  return measurements;
}

}  // namespace tutti::sim
