// SPDX-License-Identifier: Apache-2.0
// Sends, receives and the calls that are made of others, on GPUs through the C API; without a GPU
// every test says why it skips.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu_rank.hpp"

namespace tutti::test {
namespace {

using Values = std::vector<std::int32_t>;

class DeviceTransfersGpu : public OnGpus {
 protected:
  static void load(DeviceRank& self, const Values& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    self.load(bytes);
  }
  static Values result(DeviceRank& self, std::size_t count) {
    const std::vector<std::byte> bytes = self.result(count * sizeof(std::int32_t));
    Values values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

std::int32_t value(int from, int to, std::size_t i) {
  return 1'000'000 * from + 100'000 * to + static_cast<std::int32_t>(i);
}

// Each to the next, many in a row without a wait in between.
TEST_F(DeviceTransfersGpu, ARingOfSendsAndReceives) {
  for (const int ranks : {1, 2, 4, 8})
    run(ranks, [&](int rank, DeviceRank& self) {
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      for (const std::size_t count : {1, 1000, 1'000'000}) {
        Values mine(count), wanted(count);
        for (std::size_t i = 0; i < count; ++i) {
          mine[i] = value(rank, next, i);
          wanted[i] = value(before, rank, i);
        }
        load(self, mine);
        for (int again = 0; again < 20; ++again) {
          ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
          EXPECT_EQ(tuttiSend(self.input, count, tuttiInt32, next, self.comm, self.stream),
                    tuttiSuccess);
          EXPECT_EQ(tuttiRecv(self.output, count, tuttiInt32, before, self.comm, self.stream),
                    tuttiSuccess);
          ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(self.comm);
        }
        EXPECT_EQ(result(self, count), wanted) << ranks << " ranks, " << count << " elements";
      }
    });
}

// Blocks of 100 elements for each step between ranks, none to the rank before.
TEST_F(DeviceTransfersGpu, BlocksOfDifferentSizes) {
  constexpr int kRanks = 4;
  run(kRanks, [](int rank, DeviceRank& self) {
    const auto count = [](int from, int to) {
      return std::size_t{100} * static_cast<std::size_t>((to - from + kRanks + 1) % kRanks);
    };
    std::vector<std::size_t> sent(kRanks), received(kRanks), out_at(kRanks), in_at(kRanks);
    Values mine, wanted, gathered;
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      out_at[p] = mine.size();
      in_at[p] = wanted.size();
      sent[p] = count(rank, peer);
      received[p] = count(peer, rank);
      for (std::size_t i = 0; i < sent[p]; ++i) mine.push_back(value(rank, peer, i));
      for (std::size_t i = 0; i < received[p]; ++i) wanted.push_back(value(peer, rank, i));
    }
    load(self, mine);
    ASSERT_EQ(tuttiAlltoAllv(self.input, sent.data(), out_at.data(), self.output, received.data(),
                             in_at.data(), tuttiInt32, self.comm, self.stream),
              tuttiSuccess)
        << tuttiGetLastError(self.comm);
    EXPECT_EQ(result(self, wanted.size()), wanted);

    std::vector<std::size_t> blocks(kRanks), at(kRanks);
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      at[p] = gathered.size();
      blocks[p] = count(peer, 0);
      for (std::size_t i = 0; i < blocks[p]; ++i) gathered.push_back(value(peer, 0, i));
    }
    const auto own = static_cast<std::size_t>(rank);
    load(self, Values(gathered.begin() + static_cast<std::ptrdiff_t>(at[own]),
                      gathered.begin() + static_cast<std::ptrdiff_t>(at[own] + blocks[own])));
    ASSERT_EQ(tuttiAllGatherv(self.input, blocks[own], self.output, blocks.data(), at.data(),
                              tuttiInt32, self.comm, self.stream),
              tuttiSuccess)
        << tuttiGetLastError(self.comm);
    CUDA_OK(cudaStreamSynchronize(self.stream));
    Values got(gathered.size());
    CUDA_OK(
        cudaMemcpy(got.data(), self.output, got.size() * sizeof got[0], cudaMemcpyDeviceToHost));
    EXPECT_EQ(got, gathered);

    load(self, gathered);
    ASSERT_EQ(tuttiReduceScatterv(self.input, blocks.data(), at.data(), self.output, blocks[own],
                                  tuttiInt32, tuttiSum, self.comm, self.stream),
              tuttiSuccess)
        << tuttiGetLastError(self.comm);
    Values sums(gathered.begin() + static_cast<std::ptrdiff_t>(at[own]),
                gathered.begin() + static_cast<std::ptrdiff_t>(at[own] + blocks[own]));
    for (std::int32_t& sum : sums) sum *= kRanks;
    EXPECT_EQ(result(self, blocks[own]), sums);
  });
}

// One thread captures both ranks' streams into one graph, which copies anew at each replay.
TEST_F(DeviceTransfersGpu, AGraphOfBothEndsReplays) {
  constexpr std::size_t kCount = 5000;
  const std::vector<int> list{0, devices() > 1 ? 1 : 0};
  std::vector<tuttiComm_t> comms(2);
  ASSERT_EQ(tuttiCommInitAll(comms.data(), 2, list.data()), tuttiSuccess)
      << tuttiGetLastError(nullptr);
  std::int32_t* data[2] = {};
  cudaStream_t streams[2] = {};
  for (std::size_t r = 0; r < 2; ++r) {
    CUDA_OK(cudaSetDevice(list[r]));
    CUDA_OK(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&data[r]), kCount * sizeof(std::int32_t)));
  }
  cudaEvent_t forked = nullptr, joined = nullptr;
  CUDA_OK(cudaSetDevice(list[0]));
  CUDA_OK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CUDA_OK(cudaSetDevice(list[1]));
  CUDA_OK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CUDA_OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
  CUDA_OK(cudaEventRecord(forked, streams[0]));
  CUDA_OK(cudaStreamWaitEvent(streams[1], forked, 0));
  EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiSend(data[0], kCount, tuttiInt32, 1, comms[0], streams[0]), tuttiSuccess);
  EXPECT_EQ(tuttiRecv(data[1], kCount, tuttiInt32, 0, comms[1], streams[1]), tuttiSuccess);
  EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  CUDA_OK(cudaEventRecord(joined, streams[1]));
  CUDA_OK(cudaStreamWaitEvent(streams[0], joined, 0));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  CUDA_OK(cudaStreamEndCapture(streams[0], &graph));
  CUDA_OK(cudaGraphInstantiate(&replay, graph, 0));
  for (const std::int32_t number : {3, 4}) {
    const Values sent(kCount, number);
    Values received(kCount);
    CUDA_OK(cudaMemcpy(data[0], sent.data(), kCount * sizeof number, cudaMemcpyHostToDevice));
    CUDA_OK(cudaGraphLaunch(replay, streams[0]));
    CUDA_OK(cudaStreamSynchronize(streams[0]));
    CUDA_OK(cudaMemcpy(received.data(), data[1], kCount * sizeof number, cudaMemcpyDeviceToHost));
    EXPECT_EQ(received, sent);
  }
  static_cast<void>(cudaGraphExecDestroy(replay));
  static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaEventDestroy(forked));
  static_cast<void>(cudaEventDestroy(joined));
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    static_cast<void>(cudaFree(data[r]));
    static_cast<void>(cudaStreamDestroy(streams[r]));
  }
}

}  // namespace
}  // namespace tutti::test
