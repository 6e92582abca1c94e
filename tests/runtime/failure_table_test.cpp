// The failure table: what can go wrong with one rank (a row, a test), times when (a cell). One of 3
// processes, rank 1 or 0, meets the fault; three questions are asked of the other two. Did every
// call return in time? Does the error have the right code, now and later, and name the victim, with
// pid, host and call? Is anything left behind: descriptors, threads, children, mappings, files? The
// first and the last are asked of the victim too where it lives on. Faults that hit inside a call
// come at random points and are repeated until one did. Every cell is printed and must be green.
// One that is red once in three is called unsteady, with what was wrong; with FAILURE_TABLE_STRICT
// it is red too. FAILURE_TABLE_SEED sets the seed; with FAILURE_TABLE_EVERY sanitizers take every
// cell.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>

#include "base/host.hpp"
#include "failure_cells.hpp"
#include "failure_script.hpp"
#include "forked_job.hpp"
#include "hardship.hpp"
#include "resources.hpp"

namespace tutti::test {
namespace {

constexpr std::int64_t kBoundNs = 60'000'000'000;  // shared machines, sanitizers

// What is wrong with how a rank ended; "" if nothing.
std::string judge_end(const Record& record) {
  if (!record.done) return "did not return";
  if (record.took_ns > kBoundNs) return fmt::format("took {} ms", record.took_ns / 1'000'000);
  if (record.before == record.after) return {};
  return fmt::format("leaves descriptors {} threads {} children {} mappings {}",
                     record.after.descriptors - record.before.descriptors,
                     record.after.threads - record.before.threads,
                     record.after.children - record.before.children,
                     record.after.mappings - record.before.mappings);
}

// Does the error say who it was? Once all have joined, with pid and host; and, where the victim
// lives and its peers wait for it, which call.
bool names_victim(std::string_view text, const Cell& cell, int victim_pid) {
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  const Fault fault = cell.fault();
  if (fault == Fault::kDoubled) return has(fmt::format("(pid {} on {})", victim_pid, host_name()));
  // Who was stopped while all met is not known: the root says who came.
  if (cell.phase == Phase::kInInit && has("ranks 0, 1, 2 of 3 came but did not finish"))
    return true;
  if (cell.phase <= Phase::kInInit && has(fmt::format("rank {}", cell.row.victim))) return true;
  if (cell.phase == Phase::kBeforeInit) return false;
  // Who gives up while all join is gone from there: another may take it for the cause.
  const bool together = cell.phase == Phase::kInInit || cell.phase == Phase::kInSplit ||
                        cell.phase == Phase::kInShrink;
  if (together) return has("rank ") && has(fmt::format("on {})", host_name()));
  if (!has(fmt::format("rank {} (pid {} on {})", cell.row.victim, victim_pid, host_name())))
    return false;
  if (cell.phase > Phase::kInReduce) return true;
  if (fault == Fault::kStop && !has("is stopped")) return false;
  if (fault == Fault::kThrow && !has("left the communicator in order, without")) return false;
  return cell.dies() || cell.lacks() || has("all_reduce #");
}

// What is wrong with one survivor; "" if nothing.
std::string judge(const Record& record, const Cell& cell, bool hit, int victim_pid) {
  if (std::string wrong = judge_end(record); !wrong.empty()) return wrong;
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
  if (std::string wrong = judge_end(record); !wrong.empty()) return wrong;
  if (!cell.lacks()) return {};
  const bool own = others_failed && cell.phase != Phase::kAbort;
  if (record.code == (own ? tuttiSystemError : tuttiSuccess)) return {};
  return fmt::format("code {}: {}", static_cast<int>(record.code), record.text);
}

// What a cell came to, over all its runs.
struct Outcome {
  double took_ms;  // of the slowest call of a survivor
  int runs, hits, errors;
  char unsteady[2048];  // what was wrong the first time, where it was not again
  char wrong[2048];
  bool done;
};

void keep(const std::string& text, char (&field)[2048]) { text.copy(field, sizeof field - 1); }

// "" or what is wrong.
std::string run_once(const Cell& cell, unsigned seed, Outcome& outcome) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared{};
  shared.victim_in = Phase::kNone;
  const int victim = cell.row.victim;
  const auto results = testing::run_forked(
      kRanks,
      [&](const ForkedRank& self) {
        Script(self, shared, cell, seed).run();
        // A stopped rank does not end by itself.
        if (self.rank != victim && cell.fault() == Fault::kStop) {
          const int other = kRanks - victim - self.rank;
          while (!shared.of[other].done.load()) ::sched_yield();
          if (shared.victim_pid > 0) ::kill(shared.victim_pid, SIGKILL);
        }
      },
      with_unique_id());
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
  ::munmap(memory, sizeof(Shared));
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
    std::string wrong = run_once(cell, seed + static_cast<unsigned>(run), outcome);
    wrong += judge_files(cell, outcome.errors > 0, sockets, flights);
    if (!wrong.empty() || !cell.inside()) return wrong;
    if (outcome.hits > 0 && (outcome.errors > 0 || cell.need_not_tell())) return {};
  }
  if (!kMustHit) return {};
  return fmt::format("of {} runs {} hit inside the call, {} survivors saw an error", outcome.runs,
                     outcome.hits, outcome.errors);
}

// A cell in a process of its own: the parent must not have threads when it forks the next.
class RunningCell {
 public:
  RunningCell(const Cell& cell, unsigned seed) : cell_(cell) {
    void* const memory =
        ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    outcome_ = new (memory) Outcome{};
    std::fflush(stdout);  // or a child that exits prints it too
    pid_ = ::fork();
    if (pid_ != 0) return;
    judge_twice(seed);
    outcome_->done = true;
    ::_exit(0);
  }
  RunningCell(const RunningCell&) = delete;
  RunningCell& operator=(const RunningCell&) = delete;
  ~RunningCell() { ::munmap(outcome_, sizeof(Outcome)); }

  // Once.
  const Outcome& await() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (!outcome_->done) std::strcpy(outcome_->wrong, "the cell did not end");
    return *outcome_;
  }
  [[nodiscard]] const Cell& cell() const { return cell_; }

 private:
  // Red is what is red again in one of two more: a shared machine that stands still for longer than
  // the timeouts makes a cell red once. What was wrong then is told all the same.
  void judge_twice(unsigned seed) {
    const std::string first = run_cell(cell_, seed, *outcome_);
    if (first.empty()) return;
    for (int again = 0; again < (strict() ? 0 : 2); ++again) {
      *outcome_ = {};
      seed += kMostRuns;
      if (const std::string wrong = run_cell(cell_, seed, *outcome_); !wrong.empty())
        return keep(wrong + " | before: " + first, outcome_->wrong);
    }
    keep(first, strict() ? outcome_->wrong : outcome_->unsteady);
  }

  static bool strict() { return std::getenv("FAILURE_TABLE_STRICT") != nullptr; }

  const Cell cell_;
  Outcome* outcome_;
  pid_t pid_;
};

// One line of a cell; what is wrong with it.
std::string report(const Cell& cell, const Outcome& outcome) {
  const char* const phase = kPhaseNames[static_cast<std::size_t>(cell.phase)];
  const std::string_view wrong = outcome.wrong, unsteady = outcome.unsteady;
  std::string line = fmt::format("{:<14} {:>5.0f} ms", phase, outcome.took_ms);
  if (cell.inside())
    line += fmt::format("  hit in {} of {}, {} errors", outcome.hits, outcome.runs, outcome.errors);
  if (!unsteady.empty()) line += fmt::format("  unsteady: {}", unsteady);
  if (!wrong.empty()) line += "  RED";
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return wrong.empty() ? "" : fmt::format("{} {}: {}\n", cell.row.name, phase, wrong);
}

class FailureTable : public ::testing::TestWithParam<Row> {};

TEST_P(FailureTable, EveryCellIsGreen) {
  ::setenv("TUTTI_DEBUG", "off", 1);  // of what the machine refuses here
  const char* const wanted = std::getenv("FAILURE_TABLE_SEED");
  unsigned seed = wanted != nullptr ? static_cast<unsigned>(std::strtoul(wanted, nullptr, 10))
                                    : std::random_device{}();
  std::printf(
      "seed %u, timeouts of %d ms; the longest call of a survivor, runs whose fault hit inside the "
      "call, errors of survivors\n",
      seed, kTimeoutMs);
  const bool every = std::getenv("FAILURE_TABLE_EVERY") != nullptr;
  std::string red;  // a failure told earlier would be the later children's too
  std::deque<RunningCell> running;
  const auto finish_first = [&] {
    red += report(running.front().cell(), running.front().await());
    running.pop_front();
  };
  for (int phase = 0; phase < static_cast<int>(Phase::kNone); ++phase) {
    const Cell cell{GetParam(), static_cast<Phase>(phase)};
    if (expected(cell, true) == Expected::kNone) continue;
    seed += kMostRuns;
    if (!every && seed / kMostRuns % kOneCellIn != 0) continue;
    running.emplace_back(cell, seed);
    if (running.size() == kCellsAtOnce) finish_first();
  }
  while (!running.empty()) finish_first();
  EXPECT_TRUE(red.empty()) << red;
}

INSTANTIATE_TEST_SUITE_P(Rows, FailureTable, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace tutti::test
