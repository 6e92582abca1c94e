// SPDX-License-Identifier: Apache-2.0
// Small calls between two threads, for a count of instructions by callgrind: all-reduces, groups of
// a send and a receive, or all-to-alls with counts.
//
//   valgrind --tool=callgrind --fair-sched=yes --toggle-collect='measured_call*' bench_call
//
// Thread 1 calls first, and thread 0 some milliseconds later by measured_call(): the message is
// already there, so what is counted is a call without its wait. count_instructions.py runs this.
// Status 1: a call failed or a result is wrong.
#include <fmt/core.h>
#include <tutti/tutti.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/flags.hpp"

namespace {

constexpr int kRanks = 2;
constexpr auto kPeersStart = std::chrono::milliseconds(2);

// One call of a rank with buffers of `count` floats.
struct SmallCall {
  const float* send;
  float* receive;
  std::size_t count;
  int peer;
  tuttiComm_t comm;
};
using RunCall = tuttiResult_t (*)(const SmallCall& call);

tuttiResult_t all_reduce(const SmallCall& call) {
  return tuttiAllReduce(call.send, call.receive, call.count, tuttiFloat, tuttiSum, call.comm,
                        nullptr);
}

tuttiResult_t sendrecv(const SmallCall& call) {
  if (const tuttiResult_t result = tuttiGroupStart(); result != tuttiSuccess) return result;
  // What a call in the group finds wrong, its end tells too.
  static_cast<void>(tuttiSend(call.send, call.count, tuttiFloat, call.peer, call.comm, nullptr));
  static_cast<void>(tuttiRecv(call.receive, call.count, tuttiFloat, call.peer, call.comm, nullptr));
  return tuttiGroupEnd();
}

// The own blocks are empty.
tuttiResult_t alltoallv(const SmallCall& call) {
  std::size_t counts[kRanks] = {}, places[kRanks] = {};
  counts[call.peer] = call.count;
  return tuttiAlltoAllv(call.send, counts, places, call.receive, counts, places, tuttiFloat,
                        call.comm, nullptr);
}

// What a rank runs, and what it gets in each float, where rank r gives r + 1.
struct Kind {
  RunCall run;
  float of_rank[kRanks];
};
const std::map<std::string, Kind> kKinds{{"all_reduce", {&all_reduce, {3, 3}}},
                                         {"alltoallv", {&alltoallv, {2, 1}}},
                                         {"sendrecv", {&sendrecv, {2, 1}}}};

}  // namespace

// Has a name of its own in the profile; callgrind collects inside of it alone.
extern "C" __attribute__((noinline)) tuttiResult_t measured_call(RunCall run,
                                                                 const SmallCall& call) {
  const tuttiResult_t result = run(call);
  asm volatile("");  // no tail call, which would leave this function before the work
  return result;
}

namespace {

struct Shared {
  tuttiUniqueId id{};
  Kind kind{};
  std::size_t count = 2;
  int calls = 200, warmup = 10;
  std::atomic<int> started{0};  // calls of thread 1 that are about to begin
  std::atomic<bool> failed{false};
};

void run_rank(Shared& shared, int rank) {
  tuttiComm_t comm = nullptr;
  tuttiResult_t result = tuttiCommInitRank(&comm, kRanks, shared.id, rank);
  const std::vector<float> send(shared.count, static_cast<float>(rank + 1));
  std::vector<float> receive(shared.count);
  const float expected = shared.kind.of_rank[rank];
  bool right = true;
  const auto call = [&](bool measured) {
    std::fill(receive.begin(), receive.end(), 0.0F);
    const SmallCall one{send.data(), receive.data(), shared.count, 1 - rank, comm};
    if (result == tuttiSuccess)
      result = measured ? measured_call(shared.kind.run, one) : shared.kind.run(one);
    right = right && std::ranges::count(receive, expected) == std::ssize(receive);
  };
  for (int i = 0; i < shared.warmup; ++i) call(false);
  for (int i = 1; i <= shared.calls && result == tuttiSuccess; ++i) {
    if (rank == 1) {
      shared.started.store(i, std::memory_order_release);
      call(false);
      continue;
    }
    while (shared.started.load(std::memory_order_acquire) < i && !shared.failed)
      std::this_thread::yield();
    std::this_thread::sleep_for(kPeersStart);
    call(true);
  }
  if (result != tuttiSuccess || !right) {
    shared.failed = true;
    fmt::print(stderr, "bench_call: rank {}: {}\n", rank,
               result == tuttiSuccess ? "a result is wrong" : tuttiGetLastError(comm));
  }
  if (comm != nullptr) static_cast<void>(tuttiCommDestroy(comm));
}

}  // namespace

int main(int argc, char** argv) {
  Shared shared;
  std::size_t bytes = 8;
  std::string kind = "all_reduce";
  CLI::App app("Small calls between two threads, for callgrind.", "bench_call");
  app.add_option("--call", kind, "what each rank calls")->check(CLI::IsMember(kKinds));
  app.add_option("--calls", shared.calls)->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", shared.warmup)->check(CLI::Range(1, 1'000'000));
  app.add_option("--bytes", bytes, "of floats")->check(CLI::Range(4, 1 << 20));
  if (const auto status = tutti::perf::parse_flags(app, argc, argv)) return *status;
  shared.count = bytes / sizeof(float);
  shared.kind = kKinds.at(kind);
  if (tuttiGetUniqueId(&shared.id) != tuttiSuccess) {
    fmt::print(stderr, "bench_call: {}\n", tuttiGetLastError(nullptr));
    return EXIT_FAILURE;
  }
  std::thread peer([&] { run_rank(shared, 1); });
  run_rank(shared, 0);
  peer.join();
  return shared.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
