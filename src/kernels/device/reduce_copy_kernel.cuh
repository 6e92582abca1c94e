// SPDX-License-Identifier: Apache-2.0
// The reduce-copy alone as a kernel: all threads of the grid share one call. For benchmarks and
// tests; a collective runs the same loop inside its interpreter.
#pragma once

#include <cstdint>

#include "kernels/device/reduce_copy.hpp"
#include "kernels/device/reduce_copy_kernel.hpp"

namespace tutti::device {

// The operands as a kernel's parameter: 1 KiB and a little, of the 4 KiB that there may be.
struct KernelArguments {
  const void* sources[kMaxKernelOperands];
  void* destinations[kMaxKernelOperands];
  std::uint64_t elements;
  std::uint32_t source_count;
  std::uint32_t destination_count;
  std::uint32_t average_over;
  std::uint32_t element_bytes;
};

#if defined(__CUDACC__)
__device__ __forceinline__ BlockThreads grid_threads() {
  return {blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x};
}
__device__ __forceinline__ DeviceReduceCopy call_of(const KernelArguments& arguments) {
  return {arguments.sources,           arguments.destinations, arguments.source_count,
          arguments.destination_count, arguments.elements,     arguments.average_over};
}

template <class Fold>
__global__ void __launch_bounds__(kKernelThreads)
    reduce_copy_kernel(const __grid_constant__ KernelArguments arguments) {
  reduce_copy<Fold>(grid_threads(), call_of(arguments));
}
#endif

// The kernel's host handle, as cudaLaunchKernel takes it; nullptr for types of another file.
[[nodiscard]] const void* integer_kernel(DataType type, ReduceOp op);
[[nodiscard]] const void* float_kernel(DataType type, ReduceOp op);
[[nodiscard]] const void* float8_kernel(DataType type, ReduceOp op);
[[nodiscard]] const void* copy_kernel();

}  // namespace tutti::device
