// SPDX-License-Identifier: Apache-2.0
// A rank that runs out of memory at its n-th allocation, for every n: in a call or while it leaves,
// the library ends neither the program nor a thread of it, and the call says what is wrong. The
// failure table's rows of memory meet these places by chance.
#include <execinfo.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "forked_job.hpp"

namespace {

// Allocations of any thread that still succeed.
std::atomic<std::int64_t> left{INT64_MAX};

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (left.fetch_sub(1, std::memory_order_relaxed) <= 0) return nullptr;
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(bytes)
             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment = 1) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Found before libstdc++'s, by the library too.
#define FOR_ALL __attribute__((visibility("default"), noinline))
FOR_ALL void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
FOR_ALL void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
FOR_ALL void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
FOR_ALL void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
FOR_ALL void operator delete(void* memory) noexcept { std::free(memory); }
FOR_ALL void operator delete[](void* memory) noexcept { std::free(memory); }
FOR_ALL void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
FOR_ALL void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
FOR_ALL void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
FOR_ALL void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tutti::test {
namespace {

// Who ends the program is to be found: the stack is still that of the throw.
[[noreturn]] void tell_where() {
  std::array<void*, 64> frames{};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), static_cast<int>(frames.size())),
                         STDERR_FILENO);
  std::abort();
}

// Under which memory ends at the n-th allocation, until the guard goes.
struct Scarce {
  explicit Scarce(std::int64_t n) { left = n; }
  Scarce(const Scarce&) = delete;
  Scarce& operator=(const Scarce&) = delete;
  ~Scarce() { left = INT64_MAX; }
};

using Steps = void (*)(tuttiComm_t comm);

// For every small n, and ever fewer of those up to more than the steps allocate; a job of two
// processes each.
void run_out_of_memory(
    Steps victim, Steps other, Steps before = [](tuttiComm_t) {}) {
  constexpr std::int64_t kMost = 600;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::int64_t kAllBelow = 8;  // a job takes a hundred times as long
#else
  constexpr std::int64_t kAllBelow = 40;
#endif
  std::set_terminate(tell_where);
  for (std::int64_t n = 0; n < kMost && !::testing::Test::HasFailure(); n += 1 + n / kAllBelow) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    run_processes(2, [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
      before(comm);
      if (self.rank == 1) return other(std::exchange(comm, nullptr));
      const Scarce scarce(n);
      victim(std::exchange(comm, nullptr));
    });
  }
}

void sum(tuttiComm_t comm) {
  std::int32_t data[8] = {};
  static_cast<void>(tuttiAllReduce(data, data, 8, tuttiInt32, tuttiSum, comm, nullptr));
}

class OutOfMemory : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ::setenv("TUTTI_TRANSPORT", GetParam(), 1); }
  void TearDown() override { ::unsetenv("TUTTI_TRANSPORT"); }
};
INSTANTIATE_TEST_SUITE_P(Ways, OutOfMemory, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(OutOfMemory, WhileItLeaves) {
  run_out_of_memory([](tuttiComm_t comm) { EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess); },
                    [](tuttiComm_t comm) { EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess); });
}

void sum_and_abort(tuttiComm_t comm) {
  sum(comm);
  EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
}

TEST_P(OutOfMemory, InAFirstCallAndTheAbortAfterIt) {
  run_out_of_memory(sum_and_abort, sum_and_abort);
}

TEST_P(OutOfMemory, InACallThatRepeatsAndTheAbortAfterIt) {
  run_out_of_memory(sum_and_abort, sum_and_abort, [](tuttiComm_t comm) {
    for (int i = 0; i < 4; ++i) sum(comm);
  });
}

}  // namespace
}  // namespace tutti::test
