// SPDX-License-Identifier: Apache-2.0
// From fork to the first result of many processes, and what that costs all of them together.
//
//   bench_start [RANKS] [JOBS]          (64 ranks, 5 jobs)
//
// Each job forks RANKS processes that join, run an all-reduce of 8 bytes, and leave. Per job: when
// the last rank had joined, had its first result, and had ended, counted from the first fork, and
// the processor time of all processes together until the same three. Medians are over the jobs.
// Times are of one clock (CLOCK_MONOTONIC is the machine's). Uses only the public API.
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "perf/common/flags.hpp"

namespace {

constexpr int kMaxRanks = 4096;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t nanoseconds(const timeval& time) {
  return (std::int64_t{time.tv_sec} * 1'000'000 + time.tv_usec) * 1'000;
}

enum Phase { kJoined, kFirstResult, kEnded, kPhases };
constexpr std::array kNames{"the last rank has joined", "the last rank has its first result",
                            "the last process has ended"};

// What a rank, and then a job, notes of a phase.
struct Stamp {
  std::int64_t at_ns = 0;    // of the clock, then since the first fork
  std::int64_t user_ns = 0;  // processor time of the process, then of all
  std::int64_t system_ns = 0;
};

// Holds the memory that the processes of one job share.
struct Shared {
  tuttiUniqueId id;
  sem_t id_ready;                    // posted once for each rank that waits
  Stamp stamps[kMaxRanks][kPhases];  // read once the processes have ended
};

Stamp stamp_of(const rusage& usage) {
  return {now_ns(), nanoseconds(usage.ru_utime), nanoseconds(usage.ru_stime)};
}

Stamp stamp_now() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return stamp_of(usage);
}

[[noreturn]] void fail(int rank, const char* what) {
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, what, tuttiGetLastError(nullptr));
  ::_exit(1);
}

[[noreturn]] void run_rank(Shared& shared, int rank, int ranks) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (rank == 0) {
    if (tuttiGetUniqueId(&shared.id) != tuttiSuccess) fail(rank, "id");
    for (int other = 1; other < ranks; ++other) ::sem_post(&shared.id_ready);
  } else {
    while (::sem_wait(&shared.id_ready) != 0) {
    }
  }
  tuttiComm_t comm = nullptr;
  if (tuttiCommInitRank(&comm, ranks, shared.id, rank) != tuttiSuccess) fail(rank, "join");
  shared.stamps[rank][kJoined] = stamp_now();
  std::array<float, 2> data{1.0f, 2.0f};
  if (tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiSum, comm, nullptr) !=
          tuttiSuccess ||
      data[0] != static_cast<float>(ranks))
    fail(rank, "all-reduce");
  shared.stamps[rank][kFirstResult] = stamp_now();
  if (tuttiCommDestroy(comm) != tuttiSuccess) fail(rank, "destroy");
  ::_exit(0);
}

using Stamps = std::array<Stamp, kPhases>;

// False: a process failed.
bool run_job(int ranks, std::vector<Stamps>& jobs) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto& shared = *new (memory) Shared{};
  ::sem_init(&shared.id_ready, 1, 0);
  const std::int64_t forked_ns = now_ns();
  for (int rank = 0; rank < ranks; ++rank)
    if (::fork() == 0) run_rank(shared, rank, ranks);
  Stamps job{};
  const auto add = [&](Phase phase, const Stamp& one) {
    Stamp& all = job[phase];
    all.at_ns = std::max(all.at_ns, one.at_ns - forked_ns);
    all.user_ns += one.user_ns;
    all.system_ns += one.system_ns;
  };
  bool good = true;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    rusage usage{};
    good = ::wait4(-1, &status, 0, &usage) > 0 && status == 0 && good;
    add(kEnded, stamp_of(usage));
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (const Phase phase : {kJoined, kFirstResult}) add(phase, shared.stamps[rank][phase]);
  ::munmap(memory, sizeof(Shared));
  jobs.push_back(job);
  return good;
}

void print(Phase phase, const std::vector<Stamps>& jobs) {
  const auto show = [&](auto value) {
    std::vector<double> all;
    for (const Stamps& job : jobs) all.push_back(static_cast<double>(value(job[phase])) * 1e-6);
    std::sort(all.begin(), all.end());
    std::printf(" %9.1f %9.1f %9.1f", all.front(), all[all.size() / 2], all.back());
  };
  std::printf("%-36s", kNames[phase]);
  show([](const Stamp& stamp) { return stamp.at_ns; });
  show([](const Stamp& stamp) { return stamp.user_ns + stamp.system_ns; });
  show([](const Stamp& stamp) { return stamp.system_ns; });
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 64, jobs = 5;
  CLI::App app("Measures the start of a job of many processes.", "bench_start");
  app.add_option("ranks", ranks, "processes of a job")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("jobs", jobs, "number of jobs")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  std::vector<Stamps> measured;
  for (int job = 0; job < jobs; ++job)
    if (!run_job(ranks, measured)) return 1;
  std::printf("# %d ranks, %d jobs\n%-36s %29s %29s %29s\n", ranks, jobs, "#",
              "ms since the first fork", "processor ms of all", "of these in the kernel");
  std::printf("%-36s", "# until");
  for (int i = 0; i < 3; ++i) std::printf(" %9s %9s %9s", "min", "median", "max");
  std::printf("\n");
  for (const Phase phase : {kJoined, kFirstResult, kEnded}) print(phase, measured);
  return 0;
}
