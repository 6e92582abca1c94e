// SPDX-License-Identifier: Apache-2.0
// A CUDA block as the interpreter wants one, and the kernels.
#pragma once

#include "device/interpreter.hpp"
#include "device/rank.hpp"
#include "kernels/device/folds.hpp"

namespace tutti::device {

#if defined(__CUDACC__)
class CudaBlock {
 public:
  static constexpr int kLanes = 32;
  static constexpr std::uint32_t kLooks = 64;
  // A grid of the blocks of each task.
  [[nodiscard]] __device__ std::uint32_t block() const { return blockIdx.x; }
  [[nodiscard]] __device__ std::uint32_t blocks() const { return gridDim.x; }
  [[nodiscard]] __device__ std::uint32_t thread() const { return threadIdx.x; }
  [[nodiscard]] __device__ std::uint32_t threads() const { return blockDim.x; }
  [[nodiscard]] __device__ std::uint32_t warp() const { return kLanes; }
  __device__ void sync() { __syncthreads(); }
  __device__ void warp_sync() { __syncwarp(); }
  // A vote alone orders no memory.
  [[nodiscard]] __device__ bool all(bool mine) {
    const bool agreed = __all_sync(0xffffffff, mine) != 0;
    __syncwarp();
    return agreed;
  }
  static_assert(kPacketThreads % kLanes == 0 && kInterpreterThreads % kLanes == 0,
                "whole warps, so whole lines");
  [[nodiscard]] __device__ bool line_all(bool mine) { return __all_sync(line_mask(), mine) != 0; }
  // One instruction stores the line.
  template <class Function>
  __device__ void line_store(Function&& function) {
    __syncwarp(line_mask());
    function();
  }
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
    __shared__ alignas(alignof(Shared)) std::byte bytes[sizeof(Shared)];
    return *reinterpret_cast<Shared*>(bytes);
  }
  [[nodiscard]] static __device__ std::byte* room() {
    __shared__ alignas(64) std::byte bytes[kRoomBytes];
    return bytes;
  }
  [[nodiscard]] static __device__ std::uint32_t room_bytes() { return kRoomBytes; }

  [[nodiscard]] __device__ std::uint64_t load(const Word& word) {
    return word.load(std::memory_order::relaxed);
  }
  // Ranks of one device need no more than its second-level cache.
  [[nodiscard]] __device__ std::uint64_t acquire(const Word& word) {
    if (!shared().task.one_device) return word.load(std::memory_order::acquire);
    std::uint64_t value;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(&word) : "memory");
    return value;
  }
  __device__ void store(Word& word, std::uint64_t value) {
    word.store(value, std::memory_order::relaxed);
  }
  __device__ void fence() {
    if (shared().task.one_device)
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
    else
      asm volatile("fence.acq_rel.sys;" ::: "memory");
  }
  __device__ void publish(Word& word, std::uint64_t value) { store(word, value); }
  __device__ std::uint64_t add(Word& word) { return word.fetch_add(1); }
  template <class Function>
  __device__ void together(Function&& function) {
    function();
  }
  template <class Function>
  __device__ bool attempt(Function&& function) {
    return function();
  }
  template <class Function>
  __device__ void look(Function&& function) {
    while (!function()) {
    }
  }

 private:
  [[nodiscard]] static __device__ unsigned line_mask() { return 0xffU << (threadIdx.x & 24); }

  // Of a block's program and ends, those of 16 ranks with room to spare; what is larger stays in
  // global memory.
  static constexpr std::uint32_t kRoomBytes = 20 << 10;
};

template <bool in_packets>
class InterpreterBlock : public CudaBlock {
 public:
  static constexpr bool kPackets = in_packets;
};

template <class Fold, bool kPackets>
__forceinline__ __device__ void run_interpreter(const Common& common, const LaunchTask& task) {
  // Without state: functions that are called apart get nothing to look up.
  InterpreterBlock<kPackets> block;
  run_task<Fold>(block, common, task);
}

template <class Fold, std::uint32_t kTasks>
__global__ void __launch_bounds__(kPacketThreads, kPacketBlocks)
    packet_interpreter(const __grid_constant__ LaunchArguments<kTasks> arguments) {
  run_interpreter<Fold, true>(arguments.common, arguments.tasks[blockIdx.y]);
}
// One block: for two nvcc would take registers away, and spill.
template <class Fold, std::uint32_t kTasks>
__global__ void __launch_bounds__(kInterpreterThreads, 1)
    interpreter(const __grid_constant__ LaunchArguments<kTasks> arguments) {
  run_interpreter<Fold, false>(arguments.common, arguments.tasks[blockIdx.y]);
}

// The kernels of (type, operation) among those of one file; null where it has none.
template <class Visit>
[[nodiscard]] FoldKernels find_interpreter(Visit&& visit) {
  FoldKernels kernels;
  const auto handle = [](auto* kernel) { return reinterpret_cast<const void*>(kernel); };
  visit([&]<class Fold>() {
    kernels.packets = {handle(&packet_interpreter<Fold, kFewTasks>),
                       handle(&packet_interpreter<Fold, kMaxTasks>), kPacketThreads};
    kernels.others = {handle(&interpreter<Fold, kFewTasks>), handle(&interpreter<Fold, kMaxTasks>),
                      kInterpreterThreads};
  });
  return kernels;
}
#endif

}  // namespace tutti::device
