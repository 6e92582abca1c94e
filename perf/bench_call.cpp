// SPDX-License-Identifier: Apache-2.0
// Small all-reduces between two threads, for a count of instructions by callgrind.
//
//   valgrind --tool=callgrind --fair-sched=yes --toggle-collect='measured_call*' bench_call
//
// Thread 1 calls first, and thread 0 some milliseconds later by measured_call(): the message is
// already there, so what is counted is a call without its wait. count_instructions.py runs this.
// Status 1: a call failed or a sum is wrong.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "perf/common/flags.hpp"

// Has a name of its own in the profile; callgrind collects inside of it alone.
extern "C" __attribute__((noinline)) tuttiResult_t measured_call(const float* send, float* receive,
                                                                 std::size_t count,
                                                                 tuttiComm_t comm) {
  const tuttiResult_t result =
      tuttiAllReduce(send, receive, count, tuttiFloat, tuttiSum, comm, nullptr);
  asm volatile("");  // no tail call, which would leave this function before the work
  return result;
}

namespace {

constexpr int kRanks = 2;
constexpr auto kPeersStart = std::chrono::milliseconds(2);

struct Shared {
  tuttiUniqueId id{};
  std::size_t count = 2;
  int calls = 200, warmup = 10;
  std::atomic<int> started{0};  // calls of thread 1 that are about to begin
  std::atomic<bool> failed{false};
};

bool is_right(const std::vector<float>& sums) {
  for (const float sum : sums)
    if (sum != 3) return false;
  return true;
}

void run_rank(Shared& shared, int rank) {
  tuttiComm_t comm = nullptr;
  tuttiResult_t result = tuttiCommInitRank(&comm, kRanks, shared.id, rank);
  const std::vector<float> send(shared.count, static_cast<float>(rank + 1));
  std::vector<float> receive(shared.count);
  bool right = true;
  const auto call = [&](auto* function) {
    std::fill(receive.begin(), receive.end(), 0.0F);
    if (result == tuttiSuccess) result = function(send.data(), receive.data(), shared.count, comm);
    right = right && is_right(receive);
  };
  const auto plain = [](const float* from, float* to, std::size_t count, tuttiComm_t on) {
    return tuttiAllReduce(from, to, count, tuttiFloat, tuttiSum, on, nullptr);
  };
  for (int i = 0; i < shared.warmup; ++i) call(+plain);
  for (int i = 1; i <= shared.calls && result == tuttiSuccess; ++i) {
    if (rank == 1) {
      shared.started.store(i, std::memory_order_release);
      call(+plain);
      continue;
    }
    while (shared.started.load(std::memory_order_acquire) < i && !shared.failed)
      std::this_thread::yield();
    std::this_thread::sleep_for(kPeersStart);
    call(&measured_call);
  }
  if (result != tuttiSuccess || !right) {
    shared.failed = true;
    fmt::print(stderr, "bench_call: rank {}: {}\n", rank,
               result == tuttiSuccess ? "a sum is wrong" : tuttiGetLastError(comm));
  }
  if (comm != nullptr) static_cast<void>(tuttiCommDestroy(comm));
}

}  // namespace

int main(int argc, char** argv) {
  Shared shared;
  std::size_t bytes = 8;
  CLI::App app("Small all-reduces between two threads, for callgrind.", "bench_call");
  app.add_option("--calls", shared.calls)->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", shared.warmup)->check(CLI::Range(1, 1'000'000));
  app.add_option("--bytes", bytes, "of floats")->check(CLI::Range(4, 1 << 20));
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  shared.count = bytes / sizeof(float);
  if (tuttiGetUniqueId(&shared.id) != tuttiSuccess) {
    fmt::print(stderr, "bench_call: {}\n", tuttiGetLastError(nullptr));
    return EXIT_FAILURE;
  }
  std::thread peer([&] { run_rank(shared, 1); });
  run_rank(shared, 0);
  peer.join();
  return shared.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
