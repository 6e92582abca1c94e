// SPDX-License-Identifier: Apache-2.0
// What a program may do to a GPU while ranks communicate on it. Each case must end: with the right
// sums, or with an error that says what happened. tests/gpu/run runs them under several settings of
// the driver.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gpu_rank.hpp"
#include "hold_gpu.hpp"

namespace tutti::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int kTimeoutMs = 2000;
constexpr int kLongMs = 20'000;  // where something else must end before
constexpr std::size_t kCount = 100'000;

// Errors of calls that wait for peers.
tuttiResult_t state_of(const DeviceRank& self) {
  tuttiResult_t state = tuttiSuccess;
  EXPECT_EQ(tuttiCommGetAsyncError(self.comm, &state), tuttiSuccess);
  return state;
}

class HazardsGpu : public OnGpus {
 protected:
  // With a time limit, and inputs of ones.
  static void run(int ranks, const std::function<void(int rank, DeviceRank&)>& body,
                  int timeout_ms = kTimeoutMs) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.opTimeoutMs = timeout_ms;
    OnGpus::run(
        ranks,
        [&](int rank, DeviceRank& self) {
          self.load(ones());
          body(rank, self);
        },
        config);
  }
  static std::vector<std::byte> ones(std::int32_t value = 1) {
    const std::vector<std::int32_t> numbers(kCount, value);
    std::vector<std::byte> bytes(kCount * sizeof value);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  static tuttiResult_t call(DeviceRank& self) {
    return tuttiAllReduce(self.input, self.output, kCount, tuttiInt32, tuttiSum, self.comm,
                          self.stream);
  }
  // One operation, and its sum.
  static void expect_sum(DeviceRank& self, int ranks) {
    self.load(ones());  // and what was summed before is gone
    EXPECT_EQ(call(self), tuttiSuccess) << tuttiGetLastError(self.comm);
    EXPECT_EQ(self.result(kCount * sizeof(std::int32_t)), ones(ranks));
    EXPECT_EQ(state_of(self), tuttiSuccess) << tuttiGetLastError(self.comm);
  }
};

// A rank's graph of one operation.
class OwnGraph {
 public:
  template <class Call>
  OwnGraph(DeviceRank& self, Call&& call) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(self), tuttiSuccess) << tuttiGetLastError(self.comm);
    EXPECT_EQ(cudaStreamEndCapture(self.stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&replay_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphUpload(replay_, self.stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
    static_cast<void>(cudaGraphDestroy(graph));
  }
  OwnGraph(const OwnGraph&) = delete;
  OwnGraph& operator=(const OwnGraph&) = delete;
  ~OwnGraph() { static_cast<void>(cudaGraphExecDestroy(replay_)); }
  void launch(DeviceRank& self) const {
    EXPECT_EQ(cudaGraphLaunch(replay_, self.stream), cudaSuccess);
  }

 private:
  cudaGraphExec_t replay_ = nullptr;
};

// Ranks with graphs of their own need a queue each, or the library refuses the capture.
bool has_a_queue_for_each(int ranks) {
  const char* const set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return set == nullptr || std::atoi(set) >= ranks;
}

TEST_F(HazardsGpu, AKernelHoldsEveryMultiprocessor) {
  cudaStream_t beside = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking), cudaSuccess);
  run(4, [&](int rank, DeviceRank& self) {
    for (int round = 0; round < 5; ++round) {
      if (rank == 0) {
        EXPECT_EQ(hold_all_multiprocessors(20, beside), cudaSuccess);
      }
      expect_sum(self, 4);
    }
  });
  EXPECT_EQ(cudaStreamSynchronize(beside), cudaSuccess);
  static_cast<void>(cudaStreamDestroy(beside));
}

TEST_F(HazardsGpu, ARankThatDoesNotCallIsNamed) {
  run(3, [&](int rank, DeviceRank& self) {
    if (rank == 2) return;
    EXPECT_NE(call(self), tuttiSuccess);
    EXPECT_THAT(tuttiGetLastError(self.comm), HasSubstr("rank 2"));
  });
}

// Its kernel spins until the timeout of the operation.
TEST_F(HazardsGpu, ARankThatDoesNotLaunchItsGraphIsNoticedByTheOthersKernel) {
  if (!has_a_queue_for_each(2)) GTEST_SKIP() << "one hardware queue";
  std::barrier<> together(2);
  run(2, [&](int rank, DeviceRank& self) {
    expect_sum(self, 2);
    const OwnGraph graph(self, call);
    together.arrive_and_wait();
    if (rank == 1) {
      together.arrive_and_wait();
      return;
    }
    graph.launch(self);
    EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
    EXPECT_EQ(state_of(self), tuttiTimeout);
    EXPECT_THAT(tuttiGetLastError(self.comm), HasSubstr("rank 1"));
    together.arrive_and_wait();
  });
}

// Both may wait for the kernel that runs, and it for the other rank's graph: then it ends by its
// timeout.
TEST_F(HazardsGpu, AnAllocationAndANewKernelBesideAGraphThatWaits) {
  if (!has_a_queue_for_each(2)) GTEST_SKIP() << "one hardware queue";
  std::barrier<> together(2);
  run(2, [&](int rank, DeviceRank& self) {
    expect_sum(self, 2);
    const OwnGraph graph(self, call);
    self.load(ones());
    EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
    together.arrive_and_wait();
    if (rank == 0) graph.launch(self);
    together.arrive_and_wait();
    if (rank == 1) {
      void* word = nullptr;
      EXPECT_EQ(cudaMalloc(&word, 4), cudaSuccess);
      EXPECT_EQ(write_word(static_cast<unsigned*>(word), 7, self.stream), cudaSuccess);
      graph.launch(self);
      EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
      static_cast<void>(cudaFree(word));
    }
    EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
    const tuttiResult_t state = state_of(self);
    EXPECT_THAT(state, AnyOf(tuttiSuccess, tuttiTimeout, tuttiRemoteError))
        << tuttiGetLastError(self.comm);
    if (state == tuttiSuccess) {
      EXPECT_EQ(self.result(kCount * sizeof(std::int32_t)), ones(2));
    }
  });
}

// Three ranks, of which the last aborts while the others' work waits for it. Their launches are
// counted; the abort comes when they stand still: all are queued, or the next one blocks, because
// the queue is full or launches block. Ranks know of the abort, and not of a timeout, and the
// devices are as good as before.
class AbortsGpu : public HazardsGpu {
 protected:
  static constexpr int kRanks = 3;
  static constexpr int kQueued = 3000;  // more than a queue holds

  template <class Body>
  static void abort_while(const Body& body) {
    std::atomic<int> launched{0};
    std::barrier<> together(kRanks);
    HazardsGpu::run(
        kRanks,
        [&](int rank, DeviceRank& self) {
          expect_sum(self, kRanks);
          body(rank, self, launched, together);
          if (rank + 1 == kRanks) return;
          EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
          EXPECT_EQ(state_of(self), tuttiRemoteError) << tuttiGetLastError(self.comm);
        },
        kLongMs);
    HazardsGpu::run(kRanks, [](int, DeviceRank& self) { expect_sum(self, kRanks); });
  }
  static void abort_at_a_standstill(DeviceRank& self, const std::atomic<int>& launched) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kStill{100};
    int seen = launched;
    for (auto since = Clock::now(); Clock::now() - since < kStill; std::this_thread::yield())
      if (const int now = launched; now != seen) {
        seen = now;
        since = Clock::now();
      }
    EXPECT_EQ(tuttiCommAbort(self.comm), tuttiSuccess);
    self.comm = nullptr;
  }
  // The last rank's graph is never launched. `before` is what each of the others does first.
  template <class Before>
  static void abort_while_graphs_wait(const Before& before) {
    abort_while([&](int rank, DeviceRank& self, auto& launched, auto& together) {
      const OwnGraph graph(self, call);
      together.arrive_and_wait();
      if (rank + 1 == kRanks) {
        abort_at_a_standstill(self, launched);
      } else {
        before(rank, self);
        for (int i = 0; i < kQueued; ++i, ++launched) graph.launch(self);
        EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
      }
    });
  }
};

// Ranks of one GPU wait on the host, those of several in kernels.
TEST_F(AbortsGpu, WhileCallsWait) {
  abort_while([](int rank, DeviceRank& self, auto& launched, auto&) {
    if (rank + 1 == kRanks) return abort_at_a_standstill(self, launched);
    for (int i = 0; i < kQueued && call(self) == tuttiSuccess; ++i) ++launched;
  });
}

TEST_F(AbortsGpu, WhileGraphsFillTheQueue) {
  if (!has_a_queue_for_each(kRanks)) GTEST_SKIP() << "one hardware queue";
  abort_while_graphs_wait([](int, DeviceRank&) {});
}

// The kernels behind it begin after the abort.
TEST_F(AbortsGpu, WhileAKernelHoldsEveryMultiprocessor) {
  if (!has_a_queue_for_each(kRanks)) GTEST_SKIP() << "one hardware queue";
  constexpr int kHeldMs = 500;
  abort_while_graphs_wait([](int rank, DeviceRank& self) {
    if (rank < devices()) {
      EXPECT_EQ(hold_all_multiprocessors(kHeldMs, self.stream), cudaSuccess);
    }
  });
}

TEST_F(HazardsGpu, BuffersThatTheDeviceDoesNotReachAreRefusedOrWork) {
  run(2, [&](int, DeviceRank& self) {
    void* managed = nullptr;
    ASSERT_EQ(cudaMallocManaged(&managed, kCount * sizeof(std::int32_t)), cudaSuccess);
    void* const before = std::exchange(self.input, managed);
    std::ranges::copy(ones(), static_cast<std::byte*>(managed));
    const tuttiResult_t result = call(self);
    if (result == tuttiSuccess) {
      EXPECT_EQ(self.result(kCount * sizeof(std::int32_t)), ones(2));
    } else {
      EXPECT_EQ(result, tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(self.comm), HasSubstr("managed"));
    }
    self.input = before;
    static_cast<void>(cudaFree(managed));
  });
}

}  // namespace
}  // namespace tutti::test
