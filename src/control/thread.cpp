// SPDX-License-Identifier: Apache-2.0
#include "control/thread.hpp"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/process_fd.hpp"

namespace tutti::control {
namespace {

// Running threads of the library alone, and below them the process generation in which they were
// counted: a forked child has none of its parent's.
std::atomic<std::uint64_t> counted{0};
constexpr int kGenerationBits = 40;
constexpr std::uint64_t kGeneration = (std::uint64_t{1} << kGenerationBits) - 1;

std::uint64_t running_threads(std::uint64_t value) {
  return (value & kGeneration) == (fork_generation() & kGeneration) ? value >> kGenerationBits : 0;
}

void count_threads(std::uint64_t more) {
  // Relaxed: a number alone, ordered by nothing.
  std::uint64_t before = counted.load(std::memory_order_relaxed), after = 0;
  do {
    after = (running_threads(before) + more) << kGenerationBits | (fork_generation() & kGeneration);
  } while (!counted.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

// Counts a thread only while it certainly exists.
struct CountedBody {
  std::function<void()> body;
  std::uint64_t counts;
  void operator()() const {
    count_threads(counts);
    body();
    count_threads(std::uint64_t{0} - counts);
  }
};

}  // namespace

Result<std::thread> spawn_thread(const char* name, std::function<void()> body, Runs runs) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> result;
  try {
    result = std::thread(CountedBody{std::move(body), runs == Runs::kLibraryAlone ? 1U : 0U});
    ::pthread_setname_np(result->native_handle(), name);
  } catch (const std::system_error& refused) {
    result = make_error(Code::kSystemError,
                        fmt::format("cannot start thread {}: {}; raise 'ulimit -u' or the control "
                                    "group's pids.max",
                                    name, refused.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

bool is_only_thread_of_program() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  if (error) return false;
  const auto threads = static_cast<std::uint64_t>(std::distance(begin(tasks), end(tasks)));
  return threads == running_threads(counted.load(std::memory_order_relaxed)) + 1;
}

}  // namespace tutti::control
