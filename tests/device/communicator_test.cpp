// SPDX-License-Identifier: Apache-2.0
// Communicators on device memory through the C API; needs a GPU, else every test says why it skips.
// Every algorithm, type and operation among threads that share GPUs, exactly; groups of one thread;
// graphs; several streams; calls that do not match. Aborts and absent ranks: hazards_test.cpp.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "gpu_rank.hpp"
#include "kernels/device/small_float.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

// A small whole number as an element of a type.
std::vector<std::byte> encode(tuttiDataType_t type, int value) {
  const auto bytes = [](auto element) {
    std::vector<std::byte> to(sizeof element);
    std::memcpy(to.data(), &element, sizeof element);
    return to;
  };
  const auto small = static_cast<float>(value);
  switch (type) {
    case tuttiInt8:
    case tuttiUint8:
      return bytes(static_cast<std::uint8_t>(value));
    case tuttiInt32:
    case tuttiUint32:
      return bytes(static_cast<std::uint32_t>(value));
    case tuttiInt64:
    case tuttiUint64:
      return bytes(static_cast<std::uint64_t>(value));
    case tuttiFloat16:
      return bytes(static_cast<std::uint16_t>(device::Half::narrow({small, 0})));
    case tuttiBfloat16:
      return bytes(static_cast<std::uint16_t>(device::Bfloat16::narrow({small, 0})));
    case tuttiFloat32:
      return bytes(small);
    case tuttiFloat64:
      return bytes(static_cast<double>(value));
    case tuttiFloat8e4m3:
      return bytes(static_cast<std::uint8_t>(device::E4m3::narrow({small, 0, 0, 0})));
    default:
      return bytes(static_cast<std::uint8_t>(device::E5m2::narrow({small, 0, 0, 0})));
  }
}

// A number from the place of an element, without a period: chunks begin at multiples of powers of
// two, and one in another's place is to be seen.
std::uint32_t mix(std::size_t i) {
  auto bits = static_cast<std::uint32_t>(i) * 0x9e3779b1U;
  bits = (bits ^ bits >> 15) * 0x85ebca6bU;
  return bits ^ bits >> 13;
}

// Inputs whose result is a small whole number, as is all on the way to it in any order of the
// ranks, that every type holds; which ranks have a part in it differs from element to element.
int input_of(tuttiRedOp_t op, int rank, int ranks, std::size_t i) {
  const std::uint32_t place = mix(i);
  const auto all = static_cast<std::uint32_t>(ranks);
  const std::uint32_t turn = (place + static_cast<std::uint32_t>(rank)) % all;
  if (op == tuttiAvg) return turn == 0 ? ranks * static_cast<int>(1 + (place >> 8) % 2) : 0;
  if (op == tuttiSum) return turn < 1 + (place >> 8) % 4 ? 1 : 0;
  if (op == tuttiProd) return turn < (place >> 8) % 3 ? 2 : 1;
  return static_cast<int>(mix(i * all + static_cast<std::size_t>(rank)) % 9);
}
int result_of(tuttiRedOp_t op, int ranks, std::size_t i) {
  int result = input_of(op, 0, ranks, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int more = input_of(op, rank, ranks, i);
    result = op == tuttiProd  ? result * more
             : op == tuttiMax ? std::max(result, more)
             : op == tuttiMin ? std::min(result, more)
                              : result + more;
  }
  return op == tuttiAvg ? result / ranks : result;
}

std::vector<std::byte> repeat(tuttiDataType_t type, std::size_t count,
                              const std::function<int(std::size_t)>& value) {
  std::vector<std::vector<std::byte>> known;
  for (int v = 0; v <= 32; ++v) known.push_back(encode(type, v));
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& element = known[static_cast<std::size_t>(value(i))];
    all.insert(all.end(), element.begin(), element.end());
  }
  return all;
}

class DeviceCommunicatorGpu : public OnGpus {
 protected:
  // One all-reduce of a rank, checked.
  static void reduce(DeviceRank& self, int rank, int ranks, tuttiDataType_t type, tuttiRedOp_t op,
                     std::size_t count, const std::string& what) {
    const auto want = repeat(type, count, [&](std::size_t i) { return result_of(op, ranks, i); });
    self.load(repeat(type, count, [&](std::size_t i) { return input_of(op, rank, ranks, i); }));
    ASSERT_EQ(tuttiAllReduce(self.input, self.output, count, type, op, self.comm, self.stream),
              tuttiSuccess)
        << what << ": " << tuttiGetLastError(self.comm);
    EXPECT_EQ(self.result(want.size()), want) << what << ", rank " << rank;
    tuttiResult_t state = tuttiSuccess;
    EXPECT_EQ(tuttiCommGetAsyncError(self.comm, &state), tuttiSuccess);
    EXPECT_EQ(state, tuttiSuccess) << tuttiGetLastError(self.comm);
  }
};

std::vector<std::string> all_names() {
  std::vector<std::string> names{"auto"};
  for (const Algorithm* const algorithm : all_algorithms())
    for (const char* const protocol : {"@flagged", "@cells", "@ll8", "@ll16", "@ll128", "@slots"})
      names.push_back(std::string(algorithm->name) + protocol);
  for (const Algorithm* const algorithm : test::direct_forms(Collective::kAllReduce))
    names.emplace_back(algorithm->name);
  return names;
}

TEST_F(DeviceCommunicatorGpu, EveryAlgorithmSumsAmongThreads) {
  for (const int ranks : {1, 2, 3, 4, 8, 16})
    run(ranks, [&](int rank, DeviceRank& self) {
      for (const std::string& name : all_names()) {
        ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name.c_str()), tuttiSuccess);
        for (const std::size_t count : {1, 1000, 100'003, 1'000'000})
          reduce(self, rank, ranks, tuttiInt32, tuttiSum, count,
                 fmt::format("{}, {} ranks, {} elements", name, ranks, count));
      }
    });
}

// What compute-sanitizer has time for.
TEST_F(DeviceCommunicatorGpu, SmallOperations) {
  run(3, [&](int rank, DeviceRank& self) {
    for (const std::string& name : all_names()) {
      ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name.c_str()), tuttiSuccess);
      reduce(self, rank, 3, tuttiBfloat16, tuttiSum, 1000, name);
    }
  });
}

class DeviceCommunicatorGpuOf : public DeviceCommunicatorGpu,
                                public testing::WithParamInterface<int> {};

TEST_P(DeviceCommunicatorGpuOf, EveryAlgorithmTypeAndOperation) {
  const int ranks = GetParam();
  run(ranks, [&](int rank, DeviceRank& self) {
    for (const std::string& name : all_names()) {
      ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name.c_str()), tuttiSuccess);
      for (int type = 0; type < tuttiNumTypes; ++type)
        for (int op = 0; op < tuttiNumOps; ++op)
          reduce(self, rank, ranks, static_cast<tuttiDataType_t>(type),
                 static_cast<tuttiRedOp_t>(op), 1237, fmt::format("{} {} {}", name, type, op));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCommunicatorGpuOf, testing::Values(2, 4, 8, 16));

// Ranks of one thread in a group, several operations each, in place.
TEST_F(DeviceCommunicatorGpu, OneThreadInAGroup) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 5000;
  std::vector<int> list;
  for (int rank = 0; rank < kRanks; ++rank) list.push_back(rank % devices());
  std::vector<tuttiComm_t> comms(kRanks);
  ASSERT_EQ(tuttiCommInitAll(comms.data(), kRanks, list.data()), tuttiSuccess)
      << tuttiGetLastError(nullptr);
  std::vector<float*> data(kRanks);
  std::vector<cudaStream_t> streams(kRanks);
  const std::vector<float> ones(kCount, 1);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    CUDA_OK(cudaSetDevice(list[r]));
    CUDA_OK(cudaStreamCreate(&streams[r]));
    CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&data[r]), kCount * sizeof(float)));
    CUDA_OK(cudaMemcpy(data[r], ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
    int device = -2;
    EXPECT_EQ(tuttiCommCuDevice(comms[r], &device), tuttiSuccess);
    EXPECT_EQ(device, list[r]);
  }
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int again = 0; again < 3; ++again)
    for (std::size_t r = 0; r < kRanks; ++r)
      ASSERT_EQ(
          tuttiAllReduce(data[r], data[r], kCount, tuttiFloat, tuttiSum, comms[r], streams[r]),
          tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
  for (std::size_t r = 0; r < kRanks; ++r) {
    std::vector<float> got(kCount);
    CUDA_OK(cudaStreamSynchronize(streams[r]));
    CUDA_OK(cudaMemcpy(got.data(), data[r], kCount * sizeof(float), cudaMemcpyDeviceToHost));
    EXPECT_EQ(got, std::vector<float>(kCount, 64));  // 4 * 4 * 4
    EXPECT_EQ(tuttiCommDestroy(comms[r]), tuttiSuccess);
    static_cast<void>(cudaFree(data[r]));
    static_cast<void>(cudaStreamDestroy(streams[r]));
  }
}

// A graph of each rank with several operations, replayed; ordinary calls in between.
TEST_F(DeviceCommunicatorGpu, GraphsReplay) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 2000;
  std::barrier<> together(kRanks);
  run(kRanks, [&](int rank, DeviceRank& self) {
    const struct Leave {  // also where a check fails: the others go on without this rank
      std::barrier<>& together;
      ~Leave() { together.arrive_and_drop(); }
    } at_the_end{together};
    ASSERT_EQ(queues_set, 0);
    const auto call = [&] {
      return tuttiAllReduce(self.input, self.input, kCount, tuttiInt32, tuttiMax, self.comm,
                            self.stream);
    };
    ASSERT_EQ(call(), tuttiSuccess);  // allocates
    CUDA_OK(cudaStreamSynchronize(self.stream));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    CUDA_OK(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 5; ++i) EXPECT_EQ(call(), tuttiSuccess) << tuttiGetLastError(self.comm);
    CUDA_OK(cudaStreamEndCapture(self.stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&replay, graph, 0));
    // What may wait for kernels that run comes before any rank's kernel waits for another's.
    CUDA_OK(cudaGraphUpload(replay, self.stream));
    CUDA_OK(cudaStreamSynchronize(self.stream));
    together.arrive_and_wait();
    for (int i = 1; i < 10; ++i) {
      std::vector<std::int32_t> mine(kCount, 100 * i + rank), got(kCount);
      CUDA_OK(cudaMemcpyAsync(self.input, mine.data(), kCount * 4, cudaMemcpyHostToDevice,
                              self.stream));
      if (i % 3 == 0) {
        ASSERT_EQ(call(), tuttiSuccess);
      } else {
        CUDA_OK(cudaGraphLaunch(replay, self.stream));
      }
      together.arrive_and_wait();  // a copy to pageable memory blocks, perhaps also other launches
      CUDA_OK(
          cudaMemcpyAsync(got.data(), self.input, kCount * 4, cudaMemcpyDeviceToHost, self.stream));
      CUDA_OK(cudaStreamSynchronize(self.stream));
      EXPECT_EQ(got, std::vector<std::int32_t>(kCount, 100 * i + kRanks - 1)) << "replay " << i;
    }
    together.arrive_and_wait();
    static_cast<void>(cudaGraphExecDestroy(replay));
    static_cast<void>(cudaGraphDestroy(graph));
  });
}

TEST_F(DeviceCommunicatorGpu, WhatIsNoDevicesCallIsRefused) {
  tuttiComm_t comm = nullptr;
  const int nowhere = 1000;
  EXPECT_EQ(tuttiCommInitAll(&comm, 1, &nowhere), tuttiInvalidArgument);
  run(1, [](int, DeviceRank& self) {
    std::vector<float> host(8);
    for (const auto& [from, to] : {std::pair<void*, void*>{host.data(), self.output},
                                   std::pair<void*, void*>{self.input, host.data()}})
      EXPECT_EQ(tuttiAllReduce(from, to, 8, tuttiFloat, tuttiSum, self.comm, self.stream),
                tuttiInvalidArgument);
    EXPECT_EQ(
        tuttiAllReduce(host.data(), host.data(), 8, tuttiFloat, tuttiSum, self.comm, self.stream),
        tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(self.comm),
                HasSubstr("calls with host memory take such a stream, or NULL"));
  });
}

TEST_F(DeviceCommunicatorGpu, CallsThatDoNotMatchAreRefused) {
  run(2, [&](int rank, DeviceRank& self) {
    const tuttiResult_t code = tuttiAllReduce(self.input, self.output, rank == 0 ? 100 : 200,
                                              tuttiInt32, tuttiSum, self.comm, self.stream);
    tuttiResult_t state = code;
    static_cast<void>(cudaStreamSynchronize(self.stream));
    if (code == tuttiSuccess) {
      EXPECT_EQ(tuttiCommGetAsyncError(self.comm, &state), tuttiSuccess);
    }
    EXPECT_TRUE(state == tuttiInvalidUsage || state == tuttiRemoteError)
        << tuttiGetErrorString(state);
  });
}

// Two communicators and two streams of the same ranks at the same time.
TEST_F(DeviceCommunicatorGpu, CommunicatorsRunBesideEachOther) {
  tuttiUniqueId other;
  ASSERT_EQ(tuttiGetUniqueId(&other), tuttiSuccess);
  run(2, [&](int rank, DeviceRank& self) {
    DeviceRank second;
    second.start(rank, 2, other);
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(tuttiAllReduce(self.input, self.output, 100'000, tuttiFloat, tuttiSum, self.comm,
                               self.stream),
                tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(second.input, second.output, 100'000, tuttiFloat, tuttiSum,
                               second.comm, second.stream),
                tuttiSuccess);
    }
    reduce(self, rank, 2, tuttiInt32, tuttiSum, 5000, "first");
    reduce(second, rank, 2, tuttiInt32, tuttiSum, 5000, "second");
    second.finish();
  });
}

}  // namespace
}  // namespace tutti::test
