// SPDX-License-Identifier: Apache-2.0
// The table of failures by collective: what can go wrong with one rank (a test), times every
// collective that a program can call, on a stream or not (a cell). Of 3 processes rank 1 meets the
// fault. Of the others it is asked: did every call return in time, did each that could not do
// without rank 1 fail, and at the latest the all-reduce after it? Has the error the right code, now
// and later, and does it name rank 1, with pid and host, or both sides of what does not match? Does
// the same collective give the right result, for every root, on the communicator that a shrink
// makes, and on the same stream? Is anything left behind? Faults that hit inside a call come at a
// random call of the system by the thread that carries it out (held_call.hpp), and, where that came
// too late, at the first one, before the others have called. Every cell is printed and must be
// green, each time. COLLECTIVE_FAILURES_SEED sets the seed; with COLLECTIVE_FAILURES_EVERY
// sanitizers take every cell. The failure table (failure_table_test.cpp) has more faults and
// phases, of the all-reduce.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "collective_failures_cells.hpp"
#include "collective_failures_script.hpp"
#include "failure_harness.hpp"
#include "forked_job.hpp"
#include "resources.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

// Does the error of calls that do not match say what either side called?
bool names_both_sides(std::string_view text, const Cell& cell, int victim_pid) {
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  if (!has("rank 0 (pid ") && !has("rank 2 (pid ")) return false;
  if (!has(name_of_rank(kVictim, victim_pid))) return false;
  const Arguments right = cell.arguments(), wrong = cell.wrong_arguments();
  if (info_of(cell.form).transfers) return has("send of ") && has("recv of ");
  switch (cell.fault) {
    case Fault::kCount:
      return has(fmt::format("count {} ", CollectiveCall(right, 0, kRanks).called_count())) &&
             has(fmt::format("count {} ", CollectiveCall(wrong, 0, kRanks).called_count()));
    case Fault::kType:
      return has(" int32 ") && has(" float ");
    case Fault::kOp:
      return has(" sum ") && has(" max ");
    case Fault::kRoot:
      return has(fmt::format(" root {} ", right.root)) && has(fmt::format(" root {} ", wrong.root));
    default:
      return has(info_of(right.form).name) && has(info_of(wrong.form).name);
  }
}

// What is wrong with the errors of one rank that has to see some; "" if nothing.
std::string judge_error(const Record& record, const Cell& cell, int victim_pid) {
  if (record.code == tuttiSuccess) return cell.harmless() ? "" : "was told of nothing";
  const std::string_view text = record.text;
  if (record.code != cell.info().code)
    return fmt::format("code {}: {}", static_cast<int>(record.code), text);
  if (record.changed) return fmt::format("told another code later than: {}", text);
  const bool names = text.find(name_of_rank(kVictim, victim_pid)) != text.npos &&
                     text.find(cell.info().text) != text.npos;
  if (!names || (cell.mismatches() && !names_both_sides(text, cell, victim_pid)))
    return fmt::format("names nobody, or not enough: {}", text);
  return {};
}

std::string judge_survivor(const Record& record, const Cell& cell, int rank, int victim_pid) {
  if (std::string wrong = judge_end(record, bound_ms(cell.by_timeout())); !wrong.empty())
    return wrong + fmt::format(" ({})", record.slowest != nullptr ? record.slowest : "");
  if (record.before_failed && cell.expected_before() == Expected::kSuccess)
    return fmt::format("failed before the fault: {}", record.text);
  const Expected wanted = cell.expected(rank);
  if (record.failed && wanted == Expected::kSuccess) return fmt::format("failed: {}", record.text);
  if (!record.failed && !record.before_failed && wanted == Expected::kError) return "did not fail";
  // Who destroys does not ask whether anybody is missing.
  if (!record.failed && cell.fault == Fault::kKillAndDestroy) return {};
  return judge_error(record, cell, victim_pid);
}

std::string judge_victim(const Record& record, const Cell& cell, int victim_pid) {
  if (cell.mismatches()) return judge_survivor(record, cell, kVictim, victim_pid);
  return judge_end(record, bound_ms(cell.by_timeout()));
}

// What a cell came to, over all its runs.
struct Outcome {
  double took_ms;                  // the slowest call
  int runs, hits, at_call, later;  // survivors that were told by the call itself, or the next one
  char wrong[2048];
  bool done;
};

std::string run_once(const Cell& cell, unsigned seed, Point point, Outcome& outcome) {
  const Folder sockets;
  ::setenv("XDG_RUNTIME_DIR", sockets.path().c_str(), 1);
  const Shareable<Shared> memory;
  Shared& shared = *memory;
  testing::ForkOptions options = with_unique_id();
  options.timeout_ms = 5 * kPatientMs;  // ends a rank that hangs: longer than all calls together
  const auto results = testing::run_forked(
      kRanks,
      [&](const ForkedRank& self) {
        Script(self, shared, cell, seed, point).run();
        if (self.rank == kVictim || !cell.stops()) return;
        // A stopped rank does not end by itself.
        while (!shared.of[kRanks - kVictim - self.rank].done.load()) ::sched_yield();
        if (shared.victim_pid > 0) ::kill(shared.victim_pid, SIGKILL);
      },
      options);
  ++outcome.runs;
  outcome.hits += shared.hit;
  std::string wrong;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Record& record = shared.of[rank];
    const auto& result = results[static_cast<std::size_t>(rank)];
    const bool ends = cell.dies() || cell.stops();
    outcome.took_ms = std::max(outcome.took_ms, static_cast<double>(record.took_ns) / 1e6);
    std::string why;
    if (rank != kVictim) {
      why = judge_survivor(record, cell, rank, shared.victim_pid);
      outcome.at_call += record.failed;
      outcome.later += !record.failed && record.code != tuttiSuccess;
    } else if (!ends) {
      why = judge_victim(record, cell, shared.victim_pid);
    }
    if (!result.passed && (rank != kVictim || !ends))
      why += fmt::format(" {}signal {} {}", result.timed_out ? "too late, " : "", result.signal,
                         result.report);
    if (!why.empty()) wrong += fmt::format("rank {}: {}; ", rank, why);
  }
  if (const std::size_t left = entries(sockets.path()); left != 0)
    wrong += fmt::format("{} folders of sockets are left; ", left);
  return wrong;
}

// Until a fault that is to hit inside a call has.
std::string run_cell(const Cell& cell, unsigned seed, Outcome& outcome) {
  for (int run = 0; run < kMostRuns; ++run) {
    const Point point = run + 1 == kMostRuns ? Point::kCertain : Point::kRandom;
    const std::string wrong = run_once(cell, seed + static_cast<unsigned>(run), point, outcome);
    if (!wrong.empty() || !cell.inside() || outcome.hits > 0) return wrong;
  }
  return "the fault never hit inside the call";
}

// One line of a cell; what is wrong with it.
std::string report(const Cell& cell, const Outcome& outcome) {
  const std::string_view wrong = outcome.wrong;
  std::string line = fmt::format("{:<39} {:>5.0f} ms  told at once {}, by the next call {}",
                                 cell.name(), outcome.took_ms, outcome.at_call, outcome.later);
  if (cell.inside()) line += fmt::format("  hit in {} of {}", outcome.hits, outcome.runs);
  if (!wrong.empty()) line += "  RED";
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return wrong.empty() ? "" : fmt::format("{}: {}\n", cell.name(), wrong);
}

std::vector<Fault> all_faults() {
  std::vector<Fault> faults;
  for (int fault = 0; fault < kFaultCount; ++fault) faults.push_back(static_cast<Fault>(fault));
  return faults;
}

class CollectiveFailures : public ::testing::TestWithParam<Fault> {};

TEST_P(CollectiveFailures, EveryCellIsGreen) {
  ::setenv("TUTTI_DEBUG", "off", 1);  // of the ranks that are missed here
  const unsigned seed = draw_seed("COLLECTIVE_FAILURES_SEED");
  const bool every = std::getenv("COLLECTIVE_FAILURES_EVERY") != nullptr;
  std::printf("timeouts of %d ms; the longest call, and how many ranks an error told when\n",
              kTimeoutMs);
  const std::vector<Cell> all = cells_of(GetParam(), seed);
  CellsAtOnce<Cell, Outcome> cells(all[0].by_timeout() ? kWaitingCellsAtOnce : kCellsAtOnce,
                                   run_cell, report);
  for (unsigned i = 0; i < all.size(); ++i)
    if (every || (seed + i) % kOneCellIn == 0) cells.start(all[i], seed + kMostRuns * i);
  const std::string red = cells.finish();
  EXPECT_TRUE(red.empty()) << red;
}

INSTANTIATE_TEST_SUITE_P(Faults, CollectiveFailures, ::testing::ValuesIn(all_faults()),
                         [](const auto& test) {
                           return kFaults[static_cast<std::size_t>(test.param)].name;
                         });

}  // namespace
}  // namespace tutti::test
