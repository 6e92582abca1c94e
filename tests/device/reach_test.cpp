// SPDX-License-Identifier: Apache-2.0
// Buffers of pools and of mappings, which other devices reach only if the program gave them access.
// Needs a GPU, and two for what concerns peers; else every test says why it skips.
#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <utility>

#include "gpu_rank.hpp"

namespace tutti::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kCount = 100'000;
constexpr std::size_t kBytes = 2 << 20;  // a whole mapping, on all devices

// libcuda is not linked: the runtime has loaded it.
template <class Function>
Function driver(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}
#define DRIVER(function) driver<decltype(&function)>(#function)
#define DRIVER_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// Memory of a device, which has access to it; others have it once it is granted.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  virtual ~Buffer() = default;
  virtual void grant(int device) = 0;
  void* data = nullptr;
};

class PoolBuffer : public Buffer {
 public:
  explicit PoolBuffer(int device) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    EXPECT_EQ(cudaMemPoolCreate(&pool_, &properties), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMallocFromPoolAsync(&data, kBytes, pool_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  ~PoolBuffer() override {
    static_cast<void>(cudaFreeAsync(data, stream_));
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaMemPoolDestroy(pool_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  void grant(int device) override {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    EXPECT_EQ(cudaMemPoolSetAccess(pool_, &access, 1), cudaSuccess);
  }

 private:
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

class MappedBuffer : public Buffer {
 public:
  explicit MappedBuffer(int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    DRIVER_OK(DRIVER(cuMemCreate)(&memory_, kBytes, &properties, 0));
    DRIVER_OK(DRIVER(cuMemAddressReserve)(&begin_, kBytes, 0, 0, 0));
    DRIVER_OK(DRIVER(cuMemMap)(begin_, kBytes, 0, memory_, 0));
    grant(device);
    data = reinterpret_cast<void*>(begin_);
  }
  ~MappedBuffer() override {
    DRIVER_OK(DRIVER(cuMemUnmap)(begin_, kBytes));
    DRIVER_OK(DRIVER(cuMemAddressFree)(begin_, kBytes));
    DRIVER_OK(DRIVER(cuMemRelease)(memory_));
  }
  void grant(int device) override {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRIVER_OK(DRIVER(cuMemSetAccess)(begin_, kBytes, &access, 1));
  }

 private:
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr begin_ = 0;
};

struct Kind {
  const char* name;
  std::unique_ptr<Buffer> (*make)(int device);
  const char* words;  // of an error
};
void PrintTo(const Kind& kind, std::ostream* to) { *to << kind.name; }

template <class Made>
std::unique_ptr<Buffer> make(int device) {
  return std::make_unique<Made>(device);
}

class ReachGpu : public OnGpus, public testing::WithParamInterface<Kind> {
 protected:
  // Of two ranks, each with an input that lies on the device of rank + `shift`.
  static void run(int shift, const std::function<void(DeviceRank&, Buffer&, int device)>& body) {
    OnGpus::run(2, [&](int rank, DeviceRank& self) {
      const std::unique_ptr<Buffer> buffer =
          GetParam().make((rank + shift) % std::min(devices(), 2));
      const int device = rank % devices();
      CUDA_OK(cudaSetDevice(device));
      void* const before = std::exchange(self.input, buffer->data);
      body(self, *buffer, device);
      static_cast<void>(cudaStreamSynchronize(self.stream));
      self.input = before;
    });
  }
  static tuttiResult_t call(DeviceRank& self) {
    return tuttiAllReduce(self.input, self.output, kCount, tuttiInt32, tuttiSum, self.comm,
                          self.stream);
  }
  static std::vector<std::byte> all(std::int32_t value) {
    const std::vector<std::int32_t> numbers(kCount, value);
    std::vector<std::byte> bytes(kCount * sizeof value);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }
  static void expect_sum(DeviceRank& self) {
    self.load(all(1));
    ASSERT_EQ(call(self), tuttiSuccess) << tuttiGetLastError(self.comm);
    EXPECT_EQ(self.result(kCount * sizeof(std::int32_t)), all(2));
  }
};

TEST_P(ReachGpu, TheRanksOwnDeviceReachesIt) {
  run(0, [](DeviceRank& self, Buffer&, int) {
    for (const char* const name : {"auto", "one_shot@ll128", "ring@slots"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name), tuttiSuccess);
      expect_sum(self);
    }
  });
}

// A refused call is none: both ranks refuse, and call again.
TEST_P(ReachGpu, ADirectPlanNeedsAccessForThePeersDevice) {
  if (devices() < 2) GTEST_SKIP() << "ranks of one GPU share what it reaches; needs two GPUs";
  run(0, [](DeviceRank& self, Buffer& buffer, int device) {
    for (const char* const name : {"two_shot:access=remote", "two_shot:access=store"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name), tuttiSuccess);
      EXPECT_EQ(call(self), tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(self.comm), HasSubstr(GetParam().words));
    }
    buffer.grant(1 - device);
    for (const char* const name : {"two_shot:access=remote", "two_shot:access=store"}) {
      ASSERT_EQ(tuttiCommSetAlgorithm(self.comm, name), tuttiSuccess);
      expect_sum(self);
    }
  });
}

TEST_P(ReachGpu, AnotherDevicesMemoryWorksOnceItIsGranted) {
  if (devices() < 2) GTEST_SKIP() << "needs two GPUs";
  run(1, [](DeviceRank& self, Buffer& buffer, int device) {
    EXPECT_EQ(call(self), tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(self.comm), HasSubstr(GetParam().words));
    buffer.grant(device);
    expect_sum(self);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ReachGpu,
    testing::Values(Kind{"Pool", make<PoolBuffer>, "sendbuff is memory of a pool of device"},
                    Kind{"Mapping", make<MappedBuffer>, "sendbuff is memory mapped on device"}),
    [](const auto& chosen) { return chosen.param.name; });

}  // namespace
}  // namespace tutti::test
