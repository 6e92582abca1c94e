// SPDX-License-Identifier: Apache-2.0
// The failure table: what can go wrong with one rank (a row, a test), times when (a cell). One of 3
// processes, rank 1 or 0, meets the fault; three questions are asked of the other two. Did every
// call return in time? Does the error have the right code, now and later, and name the victim, with
// pid, host and call? Is anything left behind: descriptors, threads, children, mappings, files? The
// first and the last are asked of the victim too where it lives on. Faults that hit inside a call
// come at a random moment or at a counted call of the system (held_call.hpp), and, where these came
// too late, at the first one. Every cell is printed and must be green, each time.
// FAILURE_TABLE_SEED sets the seed; with FAILURE_TABLE_EVERY sanitizers take every cell.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "failure_cells.hpp"
#include "failure_harness.hpp"
#include "failure_script.hpp"
#include "forked_job.hpp"
#include "hardship.hpp"
#include "resources.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

// Which rank was stopped while all met is not known: the root says which of those that came have
// not finished, and the victim is among them.
bool is_among_unfinished(std::string_view text, int victim) {
  const std::size_t end = text.find(fmt::format(" of {} joined but did not finish", kRanks));
  if (end == text.npos) return false;
  const std::size_t begin = text.rfind("rank", end);
  return begin != text.npos &&
         text.substr(begin, end - begin).find(std::to_string(victim)) != text.npos;
}

// Does the error say who it was? Once all have joined, with pid and host; and, where the victim
// lives and its peers wait for it, which call.
bool names_victim(std::string_view text, const Cell& cell, int victim_pid) {
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  const Fault fault = cell.fault();
  if (fault == Fault::kDoubled) return has(fmt::format("(pid {} on {})", victim_pid, host_name()));
  if (cell.phase == Phase::kInInit && is_among_unfinished(text, cell.row.victim)) return true;
  if (cell.phase <= Phase::kInInit && has(fmt::format("rank {}", cell.row.victim))) return true;
  if (cell.phase == Phase::kBeforeInit) return false;
  // Who gives up while all join is gone from there: another may take it for the cause.
  const bool together = cell.phase == Phase::kInInit || cell.phase == Phase::kInSplit ||
                        cell.phase == Phase::kInShrink;
  if (together) return has("rank ") && has(fmt::format("on {})", host_name()));
  if (!has(name_of_rank(cell.row.victim, victim_pid))) return false;
  if (cell.phase > Phase::kInReduce) return true;
  if (fault == Fault::kStop && !has("is stopped")) return false;
  if (fault == Fault::kThrow && !has("left the communicator without calling")) return false;
  return cell.dies() || cell.lacks() || has("all_reduce #");
}

// What is wrong with one survivor; "" if nothing.
std::string judge(const Record& record, const Cell& cell, bool hit, int victim_pid) {
  if (std::string wrong = judge_end(record, cell.bound_ms()); !wrong.empty()) return wrong;
  const Expected wanted = expected(cell, hit);
  const bool failed = record.code != tuttiSuccess;
  if (failed && wanted == Expected::kSuccess) return fmt::format("failed: {}", record.text);
  if (!failed && wanted == Expected::kError) return "did not fail";
  if (!failed) return {};
  if (!fits(cell, record.code))
    return fmt::format("code {}: {}", static_cast<int>(record.code), record.text);
  if (record.changed) return fmt::format("told another code later than: {}", record.text);
  if (!names_victim(record.text, cell, victim_pid))
    return fmt::format("names nobody, or not enough: {}", record.text);
  return {};
}

// The same of a victim that lives on: where it lacked something, it says so itself.
std::string judge_victim(const Record& record, const Cell& cell, bool others_failed) {
  if (std::string wrong = judge_end(record, cell.bound_ms()); !wrong.empty()) return wrong;
  if (!cell.lacks()) return {};
  const bool own = others_failed && cell.phase != Phase::kAbort;
  if (record.code == (own ? tuttiSystemError : tuttiSuccess)) return {};
  return fmt::format("code {}: {}", static_cast<int>(record.code), record.text);
}

// What a cell came to, over all its runs.
struct Outcome {
  double took_ms;  // of the slowest call of a survivor
  int runs, hits, errors;
  char wrong[2048];
  bool done;
};

// "" or what is wrong.
std::string run_once(const Cell& cell, unsigned seed, bool for_certain, Outcome& outcome) {
  const Shareable<Shared> memory;
  Shared& shared = *memory;
  shared.victim_in = Phase::kNone;
  const int victim = cell.row.victim;
  testing::ForkOptions options = with_unique_id();
  options.timeout_ms = 5 * kPatientMs;  // ends a rank that hangs: longer than all calls together
  const auto results = testing::run_forked(
      kRanks,
      [&](const ForkedRank& self) {
        Script(self, shared, cell, seed, for_certain).run();
        // A stopped rank does not end by itself.
        if (self.rank != victim && cell.fault() == Fault::kStop) {
          const int other = kRanks - victim - self.rank;
          while (!shared.of[other].done.load()) ::sched_yield();
          if (shared.victim_pid > 0) ::kill(shared.victim_pid, SIGKILL);
        }
      },
      options);
  const bool hit = shared.victim_in == cell.phase;
  ++outcome.runs;
  outcome.hits += hit;
  std::string wrong;
  bool others_failed = false;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Record& record = shared.of[rank];
    const auto& result = results[static_cast<std::size_t>(rank)];
    std::string why;
    if (rank != victim) {
      outcome.took_ms = std::max(outcome.took_ms, static_cast<double>(record.took_ns) / 1e6);
      outcome.errors += record.code != tuttiSuccess;
      others_failed |= record.code != tuttiSuccess;
      why = judge(record, cell, hit, shared.victim_pid);
    }
    if (!result.passed && (rank != victim || cell.lives()))
      why += fmt::format(" {}signal {} {}", result.timed_out ? "too late, " : "", result.signal,
                         result.report);
    if (!why.empty()) wrong += fmt::format("rank {}: {}; ", rank, why);
  }
  if (cell.lives())
    if (const std::string why = judge_victim(shared.of[victim], cell, others_failed); !why.empty())
      wrong += fmt::format("the victim: {}; ", why);
  return wrong;
}

// What is wrong with the files that the ranks of a run left; "" if nothing. A flight recorder's
// file is all that may be left, where a rank has not left in order.
std::string judge_files(const Cell& cell, bool failed, const Folder& sockets,
                        const Folder& flights) {
  const std::size_t folders = entries(sockets.path()), files = entries(flights.path());
  const bool killed = cell.fault() == Fault::kKill &&
                      (cell.phase == Phase::kConnect || cell.phase == Phase::kReduce);
  if (folders != 0) return fmt::format("{} folders of sockets are left; ", folders);
  if (cell.row.backing == Backing::kFlight && killed && files != 1)
    return fmt::format("{} flight files where a rank was killed; ", files);
  // All left in order, and nothing was wrong.
  const bool revoked = cell.phase == Phase::kShrink || cell.phase == Phase::kInShrink;
  if (!failed && !revoked && cell.lives() && files != 0)
    return fmt::format("{} flight files are left; ", files);
  return {};
}

// Until a fault that is to hit inside a call has, and a survivor has told of it. Where a rank
// leaves the others need not, nor in a shrink that goes on without the dead.
std::string run_cell(const Cell& cell, unsigned seed, Outcome& outcome) {
  if (cell.row.backing == Backing::kFile && !refuse_memfd())
    return fmt::format("memfd_create cannot be refused: {}", std::strerror(errno));
  for (int run = 0; run < kMostRuns; ++run) {
    const Folder sockets, flights;
    ::setenv("XDG_RUNTIME_DIR", sockets.path().c_str(), 1);
    if (cell.row.backing == Backing::kFlight)
      ::setenv("TUTTI_FLIGHT_DIR", flights.path().c_str(), 1);
    std::string wrong =
        run_once(cell, seed + static_cast<unsigned>(run), run + 1 == kMostRuns, outcome);
    wrong += judge_files(cell, outcome.errors > 0, sockets, flights);
    if (!wrong.empty() || !cell.inside()) return wrong;
    if (outcome.hits > 0 && (outcome.errors > 0 || cell.need_not_tell())) return {};
  }
  return fmt::format("of {} runs {} hit inside the call, {} survivors saw an error", outcome.runs,
                     outcome.hits, outcome.errors);
}

// One line of a cell; what is wrong with it.
std::string report(const Cell& cell, const Outcome& outcome) {
  const char* const phase = kPhaseNames[static_cast<std::size_t>(cell.phase)];
  const std::string_view wrong = outcome.wrong;
  std::string line = fmt::format("{:<14} {:>5.0f} ms", phase, outcome.took_ms);
  if (cell.inside())
    line += fmt::format("  hit in {} of {}, {} errors", outcome.hits, outcome.runs, outcome.errors);
  if (!wrong.empty()) line += "  RED";
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return wrong.empty() ? "" : fmt::format("{} {}: {}\n", cell.row.name, phase, wrong);
}

class FailureTable : public ::testing::TestWithParam<Row> {};

TEST_P(FailureTable, EveryCellIsGreen) {
  ::setenv("TUTTI_DEBUG", "off", 1);  // of what the machine refuses here
  unsigned seed = draw_seed("FAILURE_TABLE_SEED");
  std::printf(
      "timeouts of %d ms; the longest call of a survivor, runs whose fault hit inside the call, "
      "errors of survivors\n",
      kTimeoutMs);
  const bool every = std::getenv("FAILURE_TABLE_EVERY") != nullptr;
  CellsAtOnce<Cell, Outcome> cells(kCellsAtOnce, run_cell, report);
  for (int phase = 0; phase < static_cast<int>(Phase::kNone); ++phase) {
    const Cell cell{GetParam(), static_cast<Phase>(phase)};
    if (expected(cell, true) == Expected::kNone) continue;
    seed += kMostRuns;
    if (!every && seed / kMostRuns % kOneCellIn != 0) continue;
    cells.start(cell, seed);
  }
  const std::string red = cells.finish();
  EXPECT_TRUE(red.empty()) << red;
}

INSTANTIATE_TEST_SUITE_P(Rows, FailureTable, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace tutti::test
