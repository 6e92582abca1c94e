// SPDX-License-Identifier: Apache-2.0
// One rank of a test on a GPU. Failures are GoogleTest's.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace tutti::test {

#define CUDA_OK(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())

// A queue for each stream, before the driver starts: kernels of graphs that wait for each other
// must not stand behind one another.
inline const int queues_set = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

inline int devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// One rank: a communicator, a stream, and buffers of a page more than they need.
class DeviceRank {
 public:
  static constexpr std::size_t kBytes = 4 << 20;
  void start(int rank, int ranks, tuttiUniqueId id,
             tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER) {
    CUDA_OK(cudaSetDevice(rank % devices()));
    ASSERT_EQ(tuttiCommInitRankConfig(&comm, ranks, id, rank, &config), tuttiSuccess)
        << tuttiGetLastError(comm);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc(&input, kBytes));
    CUDA_OK(cudaMalloc(&output, kBytes));
  }
  void finish() {
    static_cast<void>(cudaStreamSynchronize(stream));
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    static_cast<void>(cudaFree(input));
    static_cast<void>(cudaFree(output));
    static_cast<void>(cudaStreamDestroy(stream));
  }
  void load(const std::vector<std::byte>& bytes) {
    CUDA_OK(cudaMemcpyAsync(input, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaMemsetAsync(output, 0x5a, bytes.size() + 64, stream));
  }
  // The output, and that nothing behind it was written.
  std::vector<std::byte> result(std::size_t bytes) {
    std::vector<std::byte> got(bytes + 64);
    EXPECT_EQ(cudaMemcpyAsync(got.data(), output, got.size(), cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(bytes), got.end(),
                            [](std::byte byte) { return byte == std::byte{0x5a}; }))
        << "wrote past the end";
    got.resize(bytes);
    return got;
  }

  tuttiComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  void* input = nullptr;
  void* output = nullptr;
};

// Skips where there is no GPU.
class OnGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (devices() == 0) GTEST_SKIP() << "there is no GPU";
  }
  // A thread for each rank, with its communicator.
  static void run(int ranks, const std::function<void(int rank, DeviceRank&)>& body,
                  const tuttiConfig_t& config = TUTTI_CONFIG_INITIALIZER) {
    tuttiUniqueId id;
    ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        DeviceRank self;
        self.start(rank, ranks, id, config);
        if (!HasFailure()) body(rank, self);
        self.finish();
      });
  }
};

}  // namespace tutti::test
