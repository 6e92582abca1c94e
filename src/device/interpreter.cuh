// SPDX-License-Identifier: Apache-2.0
// A CUDA block as the interpreter wants one, and the kernel.
#pragma once

#include "device/interpreter.hpp"
#include "device/rank.hpp"
#include "kernels/device/folds.hpp"

namespace tutti::device {

#if defined(__CUDACC__)
class CudaBlock {
 public:
  static constexpr int kLanes = 32;
  explicit __device__ CudaBlock(std::uint32_t blocks_each) : blocks_(blocks_each) {}
  [[nodiscard]] __device__ std::uint32_t block() const { return blockIdx.x % blocks_; }
  [[nodiscard]] __device__ std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] __device__ std::uint32_t thread() const { return threadIdx.x; }
  [[nodiscard]] __device__ std::uint32_t threads() const { return blockDim.x; }
  __device__ void sync() { __syncthreads(); }
  __device__ void pause() {
    // Not to slow down the blocks that share the way to memory; a message takes longer than this.
    __nanosleep(20);
  }
  [[nodiscard]] __device__ std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  // At a known address, which takes no register. Bytes: what lies in shared memory is not
  // constructed; begin_task writes what is read.
  [[nodiscard]] static __device__ Shared& shared() {
    __shared__ alignas(alignof(Shared)) std::byte room[sizeof(Shared)];
    return *reinterpret_cast<Shared*>(room);
  }

 private:
  const std::uint32_t blocks_;
};

template <class Fold>
__global__ void __launch_bounds__(kInterpreterThreads)
    interpreter(const __grid_constant__ LaunchArguments arguments) {
  CudaBlock block(arguments.blocks_each);
  run_task<Fold>(block, arguments.common, arguments.tasks[blockIdx.x / arguments.blocks_each]);
}

// The kernel of (type, operation) among those of one file; nullptr where it has none.
template <class Visit>
[[nodiscard]] const void* find_interpreter(Visit&& visit) {
  const void* kernel = nullptr;
  visit([&]<class Fold>() { kernel = reinterpret_cast<const void*>(&interpreter<Fold>); });
  return kernel;
}
#endif

}  // namespace tutti::device
