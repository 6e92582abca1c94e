// SPDX-License-Identifier: Apache-2.0
// What the failure tables have in common: how long anything may take, what a rank leaves for the
// judge, and cells that run in processes of their own, several at once.
#pragma once

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "base/host.hpp"
#include "resources.hpp"

namespace tutti::test {

inline constexpr int kRanks = 3;
// Of operations where a timeout finds the fault in one, of initialization where it does in a join.
// A machine that stands still for so long makes such a cell red that is not. Most of a cell is
// waiting for timeouts; sanitizers take some of the cells, others in each run.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kTimeoutMs = 8000;
inline constexpr std::size_t kCellsAtOnce = 2;
inline constexpr unsigned kOneCellIn = 6;
#else
inline constexpr int kTimeoutMs = 2000;
inline constexpr std::size_t kCellsAtOnce = 4;
inline constexpr unsigned kOneCellIn = 1;
#endif
// The other timeouts: nothing that is found without a timeout may take so long.
inline constexpr int kPatientMs = 50'000;
// For the work around two timeouts, which takes milliseconds where the cores are free.
inline constexpr int kWorkMs = 10'000;

// The longest that a call of a survivor may take. A split or shrink waits for the operation timeout
// to agree and for the initialization timeout to join (tutti.h); no call waits longer. What no
// timeout has to find is found before one of the patient ones ends.
constexpr int bound_ms(bool by_timeout) {
  return by_timeout ? 2 * kTimeoutMs + kWorkMs : kPatientMs;
}

// What one rank leaves for the judge.
struct RankRecord {
  tuttiResult_t code;  // of the first call that failed
  char text[600];
  bool changed;          // a later call told another code
  std::int64_t took_ns;  // of the call that failed, or of the longest one
  Resources before, after;
  std::atomic<bool> done;
};

// What is wrong with how a rank ended; "" if nothing.
inline std::string judge_end(const RankRecord& record, int most_ms) {
  if (!record.done) return "did not return";
  if (record.took_ns / 1'000'000 > most_ms)
    return fmt::format("took {} ms, expected at most {} ms", record.took_ns / 1'000'000, most_ms);
  if (record.before == record.after) return {};
  return fmt::format("leaves descriptors {} threads {} children {} mappings {}",
                     record.after.descriptors - record.before.descriptors,
                     record.after.threads - record.before.threads,
                     record.after.children - record.before.children,
                     record.after.mappings - record.before.mappings);
}

// As errors name a rank of this host.
inline std::string name_of_rank(int rank, int pid) {
  return fmt::format("rank {} (pid {} on {})", rank, pid, host_name());
}

// An object that this process shares with those that it forks afterwards.
template <typename Object>
class Shareable {
 public:
  Shareable()
      : object_(new (::mmap(nullptr, sizeof(Object), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Object{}) {}
  Shareable(const Shareable&) = delete;
  Shareable& operator=(const Shareable&) = delete;
  ~Shareable() { ::munmap(object_, sizeof(Object)); }
  Object& operator*() const { return *object_; }
  Object* operator->() const { return object_; }

 private:
  Object* const object_;
};

// The cells of a table, each in a process of its own, as the parent must not have threads when it
// forks the next. `Outcome` has `char wrong[]`, "" if the cell is green, and `bool done`.
template <typename Cell, typename Outcome>
class CellsAtOnce {
 public:
  using Run = std::function<std::string(const Cell&, unsigned seed, Outcome&)>;  // what is wrong
  using Report = std::function<std::string(const Cell&, const Outcome&)>;        // of a red one

  CellsAtOnce(std::size_t most, Run run, Report report)
      : most_(most), run_(std::move(run)), report_(std::move(report)) {}

  void start(const Cell& cell, unsigned seed) {
    running_.emplace_back(cell);
    std::fflush(stdout);  // or a child that exits prints it too
    running_.back().pid = ::fork();
    if (running_.back().pid == 0) {
      Outcome& outcome = *running_.back().outcome;
      run_(cell, seed, outcome).copy(outcome.wrong, sizeof outcome.wrong - 1);
      outcome.done = true;
      ::_exit(0);
    }
    if (running_.size() == most_) finish_first();
  }
  // What is wrong with all that were started. Asked for once, as a failure that was told earlier
  // would be the later children's too.
  std::string finish() {
    while (!running_.empty()) finish_first();
    return std::move(red_);
  }

 private:
  struct Running {
    explicit Running(const Cell& its_cell) : cell(its_cell) {}
    const Cell cell;
    const Shareable<Outcome> outcome;
    pid_t pid = -1;
  };
  void finish_first() {
    const Running& first = running_.front();
    int status = 0;
    while (::waitpid(first.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!first.outcome->done) std::strcpy(first.outcome->wrong, "the cell did not end");
    red_ += report_(first.cell, *first.outcome);
    running_.pop_front();
  }

  const std::size_t most_;
  const Run run_;
  const Report report_;
  std::deque<Running> running_;
  std::string red_;
};

}  // namespace tutti::test
