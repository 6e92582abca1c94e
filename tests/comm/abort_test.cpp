// SPDX-License-Identifier: Apache-2.0
// Aborts at random points of a communicator's life, among threads and among processes: each
// returns, frees the other ranks by name, and leaves nothing behind; and aborts of a communicator
// while a part of it is joined. ABORT_TEST_JOBS sets how many there are among threads (default
// 200).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "forked_job.hpp"
#include "resources.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::AnyOf;
using testing::ForkedRank;
using ::testing::HasSubstr;

constexpr int kProcesses = 3;

// Reduces and now and then splits until an error comes.
void work_until_error(tuttiComm_t comm, int rank, unsigned seed) {
  std::mt19937 random(seed);  // the same on all ranks
  std::vector<float> data(1 << 16, 1.0f);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess) {
    if (random() % 64 == 0) {
      tuttiComm_t part = nullptr;
      result = tuttiCommSplit(comm, rank, 0, &part, nullptr);
      EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
    } else {
      result = tuttiAllReduce(data.data(), data.data(), 1 + random() % data.size(), tuttiFloat,
                              tuttiSum, comm, nullptr);
    }
  }
  EXPECT_THAT(result, AnyOf(tuttiRemoteError, tuttiInvalidUsage, tuttiInvalidArgument));
}

// Who returns with success knows that all ranks have joined, so that an abort ends no join.
void meet(tuttiComm_t comm) {
  float value = 1;
  static_cast<void>(tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comm, nullptr));
}

// Joins and works. The handle is told once all have joined.
void work(const tuttiUniqueId& id, int rank, std::atomic<tuttiComm_t>& told, unsigned seed) {
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitRank(&comm, 2, id, rank), tuttiSuccess) << tuttiGetLastError(nullptr);
  meet(comm);
  told = comm;
  told.notify_all();
  work_until_error(comm, rank, seed);
}

// Spins for a random while: to come at any point of what another thread does.
void spin(std::mt19937& random) {
  const auto spins = random() % (1u << random() % 20);
  for (std::atomic<unsigned> count{0}; count.fetch_add(1) < spins;) {
  }
}

// One job; one of its ranks is aborted by another thread. Returns how long that took.
std::int64_t abort_one(unsigned seed) {
  tuttiUniqueId id;
  EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
  std::atomic<tuttiComm_t> comms[2] = {};
  std::thread ranks[2];
  for (int rank = 0; rank < 2; ++rank)
    ranks[rank] = std::thread([&, rank] { work(id, rank, comms[rank], seed); });
  std::mt19937 random(seed);
  const auto victim = random() % 2;
  comms[victim].wait(nullptr);
  spin(random);
  const std::int64_t start = now_ns();
  EXPECT_EQ(tuttiCommAbort(comms[victim]), tuttiSuccess);
  const std::int64_t took = now_ns() - start;
  comms[1 - victim].wait(nullptr);
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(tuttiGetLastError(comms[1 - victim]),
              HasSubstr("rank " + std::to_string(victim) + " (pid"));
  EXPECT_EQ(tuttiCommAbort(comms[1 - victim]), tuttiSuccess);
  return took;
}

TEST(Aborts, AtRandomPointsLeaveNothingBehind) {
  const char* const wanted = std::getenv("ABORT_TEST_JOBS");
  const int jobs = wanted != nullptr ? std::atoi(wanted) : 200;
  const unsigned seed = draw_seed();
  std::thread([] {}).join();  // the first brings ThreadSanitizer's own, which stays
  const std::size_t threads = living_threads();
  abort_one(seed);  // what is made once a process is made
  while (living_threads() > threads) ::sched_yield();
  const Resources before = resources();
  std::vector<std::int64_t> took;
  for (int job = 0; job < jobs && !::testing::Test::HasFailure(); ++job)
    took.push_back(abort_one(seed + static_cast<unsigned>(job)));
  const Resources after = settled(before);
  EXPECT_EQ(before.descriptors, after.descriptors);
  EXPECT_EQ(before.threads, after.threads);
  EXPECT_EQ(before.mappings, after.mappings);
  std::ranges::sort(took);
  std::printf("%zu aborts; from abort to return: median %.3f ms, p99 %.3f ms, longest %.3f ms\n",
              took.size(), static_cast<double>(took[took.size() / 2]) / 1e6,
              static_cast<double>(took[took.size() * 99 / 100]) / 1e6,
              static_cast<double>(took.back()) / 1e6);
}

// What the ranks of one job of processes share.
struct Shared {
  std::atomic<int> done;             // ranks whose call has returned
  std::int64_t took_ns[kProcesses];  // of the abort, by rank
};

Shared& share() {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *new (memory) Shared{};
}

// Runs `body` in each of three processes that have joined; none may keep anything.
void run_job_of_processes(const std::function<void(tuttiComm_t, const ForkedRank&)>& body) {
  testing::expect_all_passed(testing::run_forked(
      kProcesses,
      [&](const ForkedRank& self) {
        std::thread([] {}).join();  // the first brings ThreadSanitizer's own
        const Resources before = resources();
        body(join(self), self);
        const Resources after = settled(before);
        EXPECT_EQ(before.descriptors, after.descriptors);
        EXPECT_EQ(before.threads, after.threads);
        EXPECT_EQ(before.mappings, after.mappings);
      },
      with_unique_id()));
}

// One rank is aborted by another thread of its process; the others' calls end, and name it.
void abort_among_processes(unsigned seed, Shared& shared) {
  std::mt19937 random(seed);
  const auto victim = static_cast<int>(random() % kProcesses);
  run_job_of_processes([&](tuttiComm_t comm, const ForkedRank& self) {
    std::mt19937 own(seed);
    meet(comm);
    std::thread aborter;
    if (self.rank == victim)
      aborter = std::thread([&] {
        spin(own);
        const std::int64_t start = now_ns();
        EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
        shared.took_ns[self.rank] = now_ns() - start;
      });
    work_until_error(comm, self.rank, seed + 1);
    if (aborter.joinable()) aborter.join();
    if (self.rank == victim) return;
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank " + std::to_string(victim) + " (pid"));
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  });
}

TEST(Aborts, AmongProcessesLeaveNothingBehind) {
  const unsigned seed = draw_seed();
  Shared& shared = share();
  std::int64_t longest_ns = 0;
  constexpr int kJobs = 30;
  for (unsigned job = 0; job < kJobs && !::testing::Test::HasFailure(); ++job) {
    abort_among_processes(seed + job, shared);
    longest_ns = std::max(longest_ns, *std::ranges::max_element(shared.took_ns));
  }
  ::munmap(&shared, sizeof shared);
  std::printf("%d jobs; from abort to return: longest %.3f ms\n", kJobs,
              static_cast<double>(longest_ns) / 1e6);
}

// Log files, one for each process. A process can hold itself up where it opens its own next: so a
// rank comes late to a communicator made of another when all have agreed on it. The open() below
// stands before libc's for the library too. Settings are read once in a process: before all tests.
class LogFiles : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ASSERT_EQ(::setenv("TUTTI_DEBUG_FILE", (folder_ + "/%p").c_str(), 1), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static void hold() { held_ = true; }
  static void release() { held_ = false; }
  // Returns once nobody holds this file.
  static void pass(const char* path) {
    while (held_ && std::string_view(path).starts_with(folder_)) ::sched_yield();
  }

 private:
  static inline std::atomic<bool> held_{false};
  static inline std::string folder_ = "/tmp/abort-test-XXXXXX";
};
const auto* const kLogFiles = ::testing::AddGlobalTestEnvironment(new LogFiles);

tuttiResult_t regroup(bool split, tuttiComm_t comm, tuttiComm_t* part) {
  return split ? tuttiCommSplit(comm, 0, 0, part, nullptr)
               : tuttiCommShrink(comm, nullptr, 0, part, nullptr, TUTTI_SHRINK_DEFAULT);
}

// Rank 2 comes late to the new communicator, and only once rank 0, which waits for it there, has
// been aborted. Rank 1 waits too: it must hear of that without rank 2.
void abort_while_joining(bool split, unsigned seed) {
  Shared& shared = share();
  run_job_of_processes([&](tuttiComm_t comm, const ForkedRank& self) {
    std::mt19937 random(seed);
    const std::size_t mappings = resources().mappings;
    tuttiComm_t part = nullptr;
    std::thread other;
    if (self.rank == 0)
      other = std::thread([&] {
        // Its part of the new communicator is being joined.
        while (resources().mappings == mappings) ::sched_yield();
        spin(random);
        EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
      });
    if (self.rank == 2) {
      LogFiles::hold();
      other = std::thread([&] {
        while (shared.done.load() == 0) ::sched_yield();
        LogFiles::release();
      });
    }
    const tuttiResult_t result = regroup(split, comm, &part);
    const std::string text = tuttiGetLastError(nullptr);
    ++shared.done;
    if (other.joinable()) other.join();
    if (self.rank != 0 && result == tuttiSuccess) {
      // To a shrink, who has left is not there. Or all that this rank waited for was on its way:
      // what it joined is of no use.
      int ranks = 0;
      EXPECT_EQ(tuttiCommCount(part, &ranks), tuttiSuccess);
      float data = 0;
      EXPECT_EQ(tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, part, nullptr),
                ranks < kProcesses && !split ? tuttiSuccess : tuttiRemoteError);
      EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
      return;
    }
    EXPECT_EQ(part, nullptr);
    if (self.rank == 0) {
      EXPECT_THAT(result, AnyOf(tuttiRemoteError, tuttiInvalidUsage));
      EXPECT_THAT(text, HasSubstr("abort"));
    } else {
      EXPECT_EQ(result, tuttiRemoteError) << text;
      // A shrink goes on without who has left, but not with who has had its answer.
      EXPECT_THAT(text, AnyOf(HasSubstr("rank 0 (pid"), HasSubstr("tuttiCommShrink has ended")));
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    }
  });
  ::munmap(&shared, sizeof shared);
}

class AbortsOfAParent : public ::testing::TestWithParam<bool> {};

TEST_P(AbortsOfAParent, EndTheJoiningOfItsPart) {
  const unsigned seed = draw_seed();
  for (unsigned job = 0; job < 10 && !::testing::Test::HasFailure(); ++job)
    abort_while_joining(GetParam(), seed + job);
}

INSTANTIATE_TEST_SUITE_P(SplitAndShrink, AbortsOfAParent, ::testing::Bool());

}  // namespace

// The program's own: found before libc's, also by the library.
void pass_log_file(const char* path) { LogFiles::pass(path); }

}  // namespace tutti::test

extern "C" __attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  tutti::test::pass_log_file(path);
  std::va_list arguments;
  va_start(arguments, flags);
  const bool creates = (flags & (O_CREAT | O_TMPFILE)) != 0;
  const unsigned mode = creates ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
