// SPDX-License-Identifier: Apache-2.0
// From SIGKILL of one rank to every survivor's error, and on to a smaller communicator that works:
// percentiles over many jobs.
//
//   bench_death [RANKS] [JOBS]          (4 ranks, 50 jobs)
//
// Each job forks RANKS processes that run all-reduces without pause; the parent kills the last rank
// once all have completed some, and every survivor notes when its call returned the error, and when
// the first all-reduce among the survivors has, after tuttiCommShrink. Then each aborts what it
// has. Times are of one clock (CLOCK_MONOTONIC is the machine's). Also printed: from fork to first
// result.
// Ends only processes it forked, by pid. Uses only the public API.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "perf/common/flags.hpp"

namespace {

constexpr int kMaxRanks = 256;
constexpr std::size_t kCount = 1024;  // floats in each all-reduce

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Holds the memory that the processes of one job share.
struct Shared {
  tuttiUniqueId id;
  std::atomic<int> id_ready;
  std::atomic<std::int64_t> first_result_ns[kMaxRanks];
  std::atomic<std::int64_t> calls[kMaxRanks];
  std::atomic<std::int64_t> error_ns[kMaxRanks];
  std::atomic<int> named[kMaxRanks];               // the error named the victim
  std::atomic<std::int64_t> shrunk_ns[kMaxRanks];  // the survivors' first result is there
  std::atomic<std::int64_t> abort_ns[kMaxRanks];   // duration
};

[[noreturn]] void run_rank(Shared& shared, int rank, int ranks) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank == 0) {
    if (tuttiGetUniqueId(&shared.id) != tuttiSuccess) ::_exit(1);
    shared.id_ready.store(1, std::memory_order_release);
  }
  while (shared.id_ready.load(std::memory_order_acquire) == 0) ::usleep(100);
  tuttiComm_t comm = nullptr;
  if (tuttiCommInitRank(&comm, ranks, shared.id, rank) != tuttiSuccess) {
    std::fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(nullptr));
    ::_exit(1);
  }
  std::vector<float> data(kCount, 0.0f);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess) {
    result = tuttiAllReduce(data.data(), data.data(), kCount, tuttiFloat, tuttiMax, comm, nullptr);
    if (result != tuttiSuccess) break;
    if (shared.calls[rank].fetch_add(1, std::memory_order_relaxed) == 0)
      shared.first_result_ns[rank].store(now_ns(), std::memory_order_relaxed);
  }
  shared.error_ns[rank].store(now_ns(), std::memory_order_relaxed);
  const std::string victim = "rank " + std::to_string(ranks - 1) + " (pid";
  shared.named[rank] = std::strstr(tuttiGetLastError(comm), victim.c_str()) != nullptr;
  tuttiComm_t rest = nullptr;
  if (tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT) != tuttiSuccess ||
      tuttiAllReduce(data.data(), data.data(), kCount, tuttiFloat, tuttiMax, rest, nullptr) !=
          tuttiSuccess) {
    std::fprintf(stderr, "rank %d: shrink: %s\n", rank, tuttiGetLastError(nullptr));
    ::_exit(1);
  }
  shared.shrunk_ns[rank].store(now_ns(), std::memory_order_relaxed);
  tuttiCommDestroy(rest);
  const std::int64_t start = now_ns();
  tuttiCommAbort(comm);
  shared.abort_ns[rank].store(now_ns() - start, std::memory_order_relaxed);
  ::_exit(0);
}

struct Times {
  std::vector<double> start_ms, error_ms, shrink_ms, abort_ms;
  int unnamed = 0;
};

bool run_job(int ranks, int calls_before, Times& times) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto& shared = *new (memory) Shared{};
  const std::int64_t forked = now_ns();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) run_rank(shared, rank, ranks);
    pids.push_back(pid);
  }
  const auto slowest = [&] {
    std::int64_t least = INT64_MAX;
    for (int rank = 0; rank < ranks; ++rank)
      least = std::min(least, shared.calls[rank].load(std::memory_order_relaxed));
    return least;
  };
  const std::int64_t give_up = forked + 60'000'000'000;
  while (slowest() < calls_before && now_ns() < give_up) ::usleep(200);
  const std::int64_t killed = now_ns();
  ::kill(pids.back(), SIGKILL);
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  std::int64_t last_error = 0, last_start = 0, last_shrunk = 0, longest_abort = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    last_start = std::max(last_start, shared.first_result_ns[rank].load());
    if (rank == ranks - 1) continue;
    last_error = std::max(last_error, shared.error_ns[rank].load());
    last_shrunk = std::max(last_shrunk, shared.shrunk_ns[rank].load());
    longest_abort = std::max(longest_abort, shared.abort_ns[rank].load());
    times.unnamed += shared.named[rank] == 0;
  }
  times.start_ms.push_back(static_cast<double>(last_start - forked) * 1e-6);
  times.error_ms.push_back(static_cast<double>(last_error - killed) * 1e-6);
  times.shrink_ms.push_back(static_cast<double>(last_shrunk - last_error) * 1e-6);
  times.abort_ms.push_back(static_cast<double>(longest_abort) * 1e-6);
  ::munmap(memory, sizeof(Shared));
  return true;
}

void print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  std::printf("%-44s %9.2f %9.2f %9.2f %9.2f\n", what, at(0), at(0.5), at(0.99), at(1));
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 4, jobs = 50;
  CLI::App app("Measures the time from the death of a rank to the error of every survivor.",
               "bench_death");
  app.add_option("ranks", ranks, "processes of a job")
      ->check(CLI::Range(2, kMaxRanks))
      ->capture_default_str();
  app.add_option("jobs", jobs, "number of jobs")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  std::mt19937 random(1);
  Times times;
  for (int job = 0; job < jobs; ++job)
    if (!run_job(ranks, 10 + static_cast<int>(random() % 100), times)) return 1;
  std::printf("# %d ranks, %d jobs, %d survivors were not told the culprit\n", ranks, jobs,
              times.unnamed);
  std::printf("%-44s %9s %9s %9s %9s\n", "# ms", "min", "median", "p99", "max");
  print("fork of the first to last rank's first result", times.start_ms);
  print("SIGKILL to the last survivor's error", times.error_ms);
  print("that to the last survivor's first new result", times.shrink_ms);
  print("abort of the old communicator, the longest", times.abort_ms);
  return times.unnamed == 0 ? 0 : 1;
}
