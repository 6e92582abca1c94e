// SPDX-License-Identifier: Apache-2.0
#include "control/thread.hpp"

#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace tutti::control {
namespace {

std::atomic<int> running_threads{0};  // of the library alone

// Counts a thread only while it certainly exists.
struct CountedBody {
  std::function<void()> body;
  int counts;
  void operator()() const {
    running_threads += counts;
    body();
    running_threads -= counts;
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
    result = std::thread(CountedBody{std::move(body), runs == Runs::kLibraryAlone ? 1 : 0});
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
  return std::distance(begin(tasks), end(tasks)) == running_threads + 1;
}

}  // namespace tutti::control
