// SPDX-License-Identifier: Apache-2.0
// A job of ranks that are threads of this process, driven through the public C API.
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"

namespace tutti::test {

struct JobOptions {
  int op_timeout_ms = 60'000;
};

// Runs `body(rank, comm)` on `ranks` threads, each with its communicator; destroys them afterwards
// unless the body took the handle (set it to null).
inline void run_job(int ranks, const JobOptions& options,
                    const std::function<void(int, tuttiComm_t&)>& body) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
  std::barrier joined(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.opTimeoutMs = options.op_timeout_ms;
      tuttiComm_t comm = nullptr;
      const tuttiResult_t result = tuttiCommInitRankConfig(&comm, ranks, id, rank, &config);
      EXPECT_EQ(result, tuttiSuccess) << "rank " << rank << ": " << tuttiGetLastError(nullptr);
      joined.arrive_and_wait();
      if (result != tuttiSuccess) return;
      body(rank, comm);
      EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

// The int32 all-reduce of rank + index, checked on this rank. Empty if right, else what is wrong.
inline std::string check_sum(tuttiComm_t comm, int rank, int ranks, std::size_t count,
                             bool in_place, int salt = 0) {
  std::vector<std::int32_t> in(count), out(count, -1);
  for (std::size_t i = 0; i < count; ++i)
    in[i] = rank * 1000 + salt + static_cast<std::int32_t>(i % 997);
  std::int32_t* const target = in_place ? in.data() : out.data();
  const tuttiResult_t result =
      tuttiAllReduce(in.data(), target, count, tuttiInt32, tuttiSum, comm, nullptr);
  if (result != tuttiSuccess) return tuttiGetLastError(comm);
  const std::int32_t base = 1000 * (ranks * (ranks - 1) / 2) + ranks * salt;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t want = base + ranks * static_cast<std::int32_t>(i % 997);
    if (target[i] != want)
      return "rank " + std::to_string(rank) + " index " + std::to_string(i) + " got " +
             std::to_string(target[i]) + " want " + std::to_string(want);
  }
  return {};
}

// Sums until a call fails; what it said.
inline std::string sum_until_told(tuttiComm_t comm, int rank, int ranks) {
  std::string told;
  while (told.empty()) told = check_sum(comm, rank, ranks, 100'000, false);
  return told;
}

// Where every packet between hosts is at least so late: of two ranks of two hosts neither ends its
// n-th call sooner than that after the other has begun it, so calls in a row wait for it each.
inline void expect_calls_to_wait(tuttiComm_t comm, int rank, int ranks, int delay_ms) {
  constexpr int kCalls = 20;
  const std::int64_t begin_ns = now_ns();
  for (int call = 0; call < kCalls; ++call) ASSERT_EQ(check_sum(comm, rank, ranks, 1, false), "");
  EXPECT_GE(now_ns() - begin_ns, (kCalls - 1) * delay_ms * 1'000'000LL);
}

inline void abort(tuttiComm_t& comm) {
  EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  comm = nullptr;
}

}  // namespace tutti::test
