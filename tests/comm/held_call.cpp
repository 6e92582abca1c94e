// SPDX-License-Identifier: Apache-2.0
#include "held_call.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace tutti::test {
namespace {

// Plain values: they are there before any constructor has run.
thread_local unsigned calls_left = 0;  // 0: nothing is to happen
thread_local std::function<void()>* on_call = nullptr;

// Of the threads of one name. The thread that takes the last of their calls takes what to do with
// it: acquire there pairs with the release that stores the number.
std::atomic<unsigned> named_calls_left{0};
std::atomic<const char*> named_threads{nullptr};
std::atomic<std::function<void()>*> on_named_call{nullptr};

__attribute__((no_sanitize("thread", "address"))) bool is_named(const char* wanted) {
  char name[16] = {};
  return ::syscall(SYS_prctl, PR_GET_NAME, name) == 0 && std::strcmp(name, wanted) == 0;
}

void meet_and_forget(std::function<void()>* meet) {
  if (meet == nullptr) return;
  (*meet)();
  delete meet;
}

// A sanitizer may ask for the time before it is ready for code that it has changed.
__attribute__((no_sanitize("thread", "address"))) void count() {
  if (calls_left != 0 && --calls_left == 0) meet_and_forget(std::exchange(on_call, nullptr));
  if (named_calls_left.load(std::memory_order_relaxed) == 0) return;
  if (!is_named(named_threads.load(std::memory_order_relaxed))) return;
  unsigned left = named_calls_left.load(std::memory_order_acquire);
  while (left != 0 &&
         !named_calls_left.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel)) {
  }
  if (left == 1) meet_and_forget(on_named_call.exchange(nullptr, std::memory_order_acq_rel));
}

}  // namespace

void hold_at_call(unsigned n, std::function<void()> meet) {
  release_calls();
  on_call = new std::function<void()>(std::move(meet));
  calls_left = n;
}

void hold_at_call_of(const char* thread, unsigned n, std::function<void()> meet) {
  release_calls();
  named_threads.store(thread, std::memory_order_relaxed);
  on_named_call.store(new std::function<void()>(std::move(meet)), std::memory_order_relaxed);
  named_calls_left.store(n, std::memory_order_release);
}

void release_calls() {
  calls_left = 0;
  delete std::exchange(on_call, nullptr);
  named_calls_left.store(0, std::memory_order_relaxed);
  delete on_named_call.exchange(nullptr, std::memory_order_acq_rel);
}

}  // namespace tutti::test

// A sanitizer's own, which follow what descriptors and memory are used for; not there without it.
extern "C" {
ssize_t sanitizer_write(int fd, const void* data, size_t bytes) __asm__("__interceptor_write")
    __attribute__((weak));
int sanitizer_close(int fd) __asm__("__interceptor_close") __attribute__((weak));
int sanitizer_munmap(void* at, size_t bytes) __asm__("__interceptor_munmap") __attribute__((weak));
}

#define TUTTI_FOUND_FIRST __attribute__((visibility("default"), no_sanitize("thread", "address")))

extern "C" {

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A sanitizer's allocator asks for the time under its lock: a thread that is held there holds up
// whoever ends the process.
TUTTI_FOUND_FIRST int clock_gettime(clockid_t clock, timespec* now) noexcept {
  tutti::test::count();
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
}
#endif

TUTTI_FOUND_FIRST int sched_yield() noexcept {
  tutti::test::count();
  return static_cast<int>(::syscall(SYS_sched_yield));
}

TUTTI_FOUND_FIRST int nanosleep(const timespec* time, timespec* left) {
  tutti::test::count();
  return static_cast<int>(::syscall(SYS_nanosleep, time, left));
}

TUTTI_FOUND_FIRST ssize_t write(int fd, const void* data, size_t bytes) {
  tutti::test::count();
  return sanitizer_write != nullptr ? sanitizer_write(fd, data, bytes)
                                    : ::syscall(SYS_write, fd, data, bytes);
}

TUTTI_FOUND_FIRST int close(int fd) {
  tutti::test::count();
  return sanitizer_close != nullptr ? sanitizer_close(fd)
                                    : static_cast<int>(::syscall(SYS_close, fd));
}

TUTTI_FOUND_FIRST int munmap(void* at, size_t bytes) noexcept {
  tutti::test::count();
  return sanitizer_munmap != nullptr ? sanitizer_munmap(at, bytes)
                                     : static_cast<int>(::syscall(SYS_munmap, at, bytes));
}

}  // extern "C"
