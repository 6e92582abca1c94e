// SPDX-License-Identifier: Apache-2.0
// Regret of `auto`: how much slower the algorithm that the library chose is than the best there is.
//
//   regret [--collectives all_reduce,...] [--procs 2,4,8] [-b 8] [-e 64M] [-f 2] [--every]
//          [--windows] [--fresh] [--csv FILE] [--svg FILE]
//
// For each collective, number of processes and size all candidates run interleaved
// (common/contest.hpp).
// The best is chosen by the medians of odd repetitions and scored on the even ones, so that it is
// not the one with the luckiest samples; `auto` runs twice, and its second against its first is the
// noise floor. Uses only the public API.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "common/bytes_flag.hpp"
#include "common/contest.hpp"
#include "common/flags.hpp"
#include "common/launch.hpp"

namespace tutti::perf {
namespace {

struct Score {
  std::string collective;
  int ranks = 0;
  std::uint64_t bytes = 0;
  double regret = 0, floor = 0, auto_us = 0, best_us = 0;
  std::string chosen, best;
};

std::vector<double> every_second(const std::vector<double>& all, std::size_t first) {
  std::vector<double> half;
  for (std::size_t i = first; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

Score score(const ContestSize& size, std::string_view collective, int ranks) {
  const auto odd = [](const Competitor& one) { return median(every_second(one.times_us, 1)); };
  const auto even = [](const Competitor& one) { return median(every_second(one.times_us, 0)); };
  const std::vector<Competitor>& all = size.competitors;
  const Competitor& best = *std::ranges::min_element(all, {}, odd);
  const double chosen_us = even(all[0]);
  return {.collective = std::string(collective),
          .ranks = ranks,
          .bytes = size.bytes,
          .regret = chosen_us / even(best) - 1,
          .floor = even(all[1]) / chosen_us - 1,
          .auto_us = chosen_us,
          .best_us = even(best),
          .chosen = size.chosen,
          .best = best.name == "auto" ? size.chosen : best.name};
}

void print_head(const ContestOptions& contest) {
  if (contest.fresh_from == kFreshBytes)
    fmt::print("# from 32 KiB, every rank writes what it sends before each call\n");
  fmt::print("{:<14} {:>6} {:>10} {:>10} {:>10} {:>8} {:>8}  {:<38} {}\n", "collective", "ranks",
             "bytes", "auto us", "best us", "regret", "floor", "chosen", "best");
}

void print_score(const Score& s) {
  fmt::print("{:<14} {:>6} {:>10} {:>10.4g} {:>10.4g} {:>+7.1f}% {:>+7.1f}%  {:<38} {}\n",
             s.collective, s.ranks, s.bytes, s.auto_us, s.best_us, 100 * s.regret, 100 * s.floor,
             s.chosen, s.best);
  static_cast<void>(std::fflush(stdout));
}

// Samples of one size, for other programs.
void write_samples(std::FILE* file, const ContestSize& size, const Score& s) {
  for (const Competitor& one : size.competitors)
    for (std::size_t i = 0; i < one.times_us.size(); ++i)
      fmt::print(file, "{},{},{},{},{},{:.4f},{:.4f}\n", s.collective, s.ranks, size.bytes,
                 one.name, i, one.times_us[i], one.priced_us);
}

void print_summary(std::string_view of, const std::vector<Score>& scores) {
  if (scores.empty()) return;
  double sum = 0, floor = 0;
  for (const Score& s : scores) {
    sum += s.regret;
    floor += std::abs(s.floor);
  }
  const auto n = static_cast<double>(scores.size());
  const Score& worst = *std::ranges::max_element(scores, {}, &Score::regret);
  fmt::print(
      "# {}: regret of auto over {} points: mean {:.1f}%, worst {:.1f}% ({}, {} ranks, {} bytes); "
      "noise floor (auto against itself): mean {:.1f}%\n",
      of, scores.size(), 100 * sum / n, 100 * worst.regret, worst.collective, worst.ranks,
      worst.bytes, 100 * floor / n);
}

// For each collective, and for all where there are several.
void print_summaries(const std::vector<Score>& scores, const std::vector<Collective>& collectives) {
  for (const Collective collective : collectives) {
    std::vector<Score> own;
    std::ranges::copy_if(scores, std::back_inserter(own),
                         [&](const Score& s) { return s.collective == name_of(collective); });
    print_summary(name_of(collective), own);
  }
  if (collectives.size() > 1) print_summary("all", scores);
}

// A row of the maps.
std::string row_of(const Score& s) { return fmt::format("{}, {} ranks", s.collective, s.ranks); }
std::vector<std::string> rows_of(const std::vector<Score>& scores) {
  std::vector<std::string> rows;
  for (const Score& s : scores)
    if (rows.empty() || rows.back() != row_of(s)) rows.push_back(row_of(s));
  return rows;
}

// Collectives and ranks down, sizes across.
void print_map(const std::vector<Score>& scores) {
  std::map<std::string, std::string> cells;
  for (const Score& s : scores) {
    const double percent = 100 * s.regret;
    cells[row_of(s)] += percent <= 5 ? " ." : percent <= 20 ? " o" : percent <= 50 ? " X" : " #";
  }
  fmt::print(
      "# map, sizes from left to right: . at most 5%, o at most 20%, X at most 50%, # more\n");
  for (const std::string& row : rows_of(scores)) fmt::print("# {:>24}{}\n", row, cells[row]);
}

struct Options {
  std::vector<Collective> collectives{Collective::kAllReduce};
  std::vector<int> procs{2, 4, 8};
  ContestOptions contest;
  std::string csv, svg;
};

// A cell for each point, red by regret, its number in it.
std::string svg_map(const std::vector<Score>& scores) {
  constexpr int kCell = 44, kLeft = 150, kTop = 50;
  const std::vector<std::string> rows = rows_of(scores);
  std::map<std::uint64_t, int> columns;
  for (const Score& s : scores) columns.emplace(s.bytes, 0);
  int next = 0;
  for (auto& [bytes, column] : columns) column = next++;
  std::string cells;
  for (const Score& s : scores) {
    const auto row = static_cast<int>(std::ranges::find(rows, row_of(s)) - rows.begin());
    const double red = std::clamp(s.regret / 0.5, 0.0, 1.0);
    const int x = kLeft + columns[s.bytes] * kCell, y = kTop + row * kCell;
    cells += fmt::format(
        "<rect x='{}' y='{}' width='{}' height='{}' fill='rgb(255,{},{})'><title>{} bytes, {}: "
        "{} instead of {}</title></rect><text x='{}' y='{}'>{:+.0f}%</text>\n",
        x, y, kCell - 2, kCell - 2, static_cast<int>(245 - 175 * red),
        static_cast<int>(235 - 185 * red), s.bytes, row_of(s), s.chosen, s.best, x + kCell / 2 - 1,
        y + kCell / 2 + 4, 100 * s.regret);
  }
  for (const auto& [bytes, column] : columns)
    cells += fmt::format("<text x='{}' y='{}'>{}</text>\n", kLeft + column * kCell + kCell / 2,
                         kTop - 10,
                         bytes >= 1 << 20   ? fmt::format("{}M", bytes >> 20)
                         : bytes >= 1 << 10 ? fmt::format("{}K", bytes >> 10)
                                            : fmt::to_string(bytes));
  for (std::size_t row = 0; row < rows.size(); ++row)
    cells += fmt::format("<text x='{}' y='{}'>{}</text>\n", kLeft / 2,
                         kTop + static_cast<int>(row) * kCell + kCell / 2 + 4, rows[row]);
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}' font-family='sans-serif' "
      "font-size='11' text-anchor='middle'><text x='{}' y='18'>Regret of auto by size and "
      "ranks</text>\n{}</svg>\n",
      kLeft + next * kCell + 10, kTop + static_cast<int>(rows.size()) * kCell + 10,
      kLeft + next * kCell / 2, cells);
}

// In one process of a job; the first one measures for all to see.
int take_part(Job& job, const Options& options, std::FILE* scores, std::FILE* samples) {
  try {
    const tuttiUniqueId id = job.share([] { return UniqueId::create().value; });
    Communicator comm(UniqueId{id}, job.processes(), job.process());
    const bool prints = job.process() == 0;
    const std::string_view collective = name_of(options.contest.collective);
    const auto done = [&](const ContestSize& size) {
      if (!prints) return;
      const Score s = score(size, collective, job.processes());
      print_score(s);
      fmt::print(scores, "{} {} {} {} {} {} {} {} {}\n", s.collective, s.ranks, s.bytes, s.regret,
                 s.floor, s.auto_us, s.best_us, s.chosen, s.best);
      static_cast<void>(std::fflush(scores));
      if (samples != nullptr) write_samples(samples, size, s);
    };
    Communicator barrier = comm.split(0, comm.rank());
    static_cast<void>(run_contest(comm, barrier, options.contest, done));
    if (samples != nullptr) static_cast<void>(std::fflush(samples));
    barrier.finalize();
    comm.finalize();
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    if (job.claim_failure(error.what())) fmt::print(stderr, "regret: {}\n", error.what());
    return EXIT_FAILURE;
  }
}

std::vector<Score> read_scores(std::FILE* file) {
  std::vector<Score> scores;
  std::rewind(file);
  char collective[64], chosen[256], best[256];
  for (Score s;
       std::fscanf(file, "%63s %d %lu %lf %lf %lf %lf %255s %255s", collective, &s.ranks, &s.bytes,
                   &s.regret, &s.floor, &s.auto_us, &s.best_us, chosen, best) == 9;) {
    s.collective = collective;
    s.chosen = chosen;
    s.best = best;
    scores.push_back(s);
  }
  return scores;
}

bool write_text(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed) fmt::print(stderr, "regret: {} cannot be written\n", path);
  return written && closed;
}

int run(Options options) {
  std::FILE* const scores = std::tmpfile();
  std::FILE* const samples = options.csv.empty() ? nullptr : std::fopen(options.csv.c_str(), "w");
  if (scores == nullptr || (!options.csv.empty() && samples == nullptr)) {
    fmt::print(stderr, "regret: {} cannot be written\n",
               scores == nullptr ? "a temporary file" : options.csv);
    return EXIT_FAILURE;
  }
  if (samples != nullptr) {
    fmt::print(samples, "collective,ranks,bytes,candidate,repetition,time_us,priced_us\n");
    static_cast<void>(std::fflush(samples));
  }
  print_head(options.contest);
  static_cast<void>(std::fflush(stdout));
  for (const Collective collective : options.collectives) {
    options.contest.collective = collective;
    for (const int procs : options.procs) {
      const int status = launch({.program = "regret", .processes = procs},
                                [&](Job& job) { return take_part(job, options, scores, samples); });
      if (status != 0) return status;
    }
  }
  const std::vector<Score> all = read_scores(scores);
  print_map(all);
  print_summaries(all, options.collectives);
  const bool drawn = options.svg.empty() || write_text(options.svg, svg_map(all));
  return drawn ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  Options options;
  CLI::App app(
      "Measures the regret of auto: the chosen algorithm's time over the best one's, minus one.",
      "regret");
  std::vector<std::string> names{"all_reduce"};
  app.add_option("--collectives", names, "e.g. all_gather,alltoall; or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--procs", options.procs, "process counts, e.g. 2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(2, 256));
  const auto bytes = as_bytes();
  app.add_option("-b,--minbytes", options.contest.min_bytes)->transform(bytes)->default_val(8);
  app.add_option("-e,--maxbytes", options.contest.max_bytes)
      ->transform(bytes)
      ->default_val(64 << 20);
  app.add_option("-f,--stepfactor", options.contest.factor)
      ->check(CLI::Range(2, 1024))
      ->default_val(2);
  app.add_option("-n,--repetitions", options.contest.repetitions)
      ->check(CLI::Range(4, 1000))
      ->default_val(20);
  app.add_option("--seconds", options.contest.seconds_a_size,
                 "time limit per size (a minimum of repetitions always runs)")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_flag(
      "--every", options.contest.every_candidate,
      "measure every candidate near the cheapest, not only the cheapest of each algorithm");
  app.add_flag("--windows", options.contest.windows, "buffers in symmetric windows");
  bool fresh = false;
  app.add_flag("--fresh", fresh,
               "from 32 KiB, every rank writes what it sends before each call, which is not "
               "timed");
  app.add_option("--csv", options.csv, "write all samples to this file");
  app.add_option("--svg", options.svg, "draw the map into this file");
  if (const auto status = parse_flags(app, argc, argv)) return *status;
  if (fresh) options.contest.fresh_from = kFreshBytes;
  if (options.contest.min_bytes < sizeof(float)) options.contest.min_bytes = sizeof(float);
  if (const std::string mistake = find_collectives(names, options.contest, options.collectives);
      !mistake.empty()) {
    fmt::print(stderr, "regret: {}\n", mistake);
    return 2;
  }
  tuttiLauncher_t launcher = TUTTI_LAUNCHER_INITIALIZER;
  if (tuttiGetLauncher(&launcher) != tuttiSuccess) {
    fmt::print(stderr, "regret: {}\n", tuttiGetLastError(nullptr));
    return 2;
  }
  if (launcher.nRanks > 1) {
    fmt::print(
        stderr,
        "regret: it forks its own processes and cannot use a launcher's {}; start it without "
        "a launcher, set TUTTI_LAUNCHER=none, or use tutti-validate\n",
        launcher.nRanks);
    return 2;
  }
  return run(options);
}
