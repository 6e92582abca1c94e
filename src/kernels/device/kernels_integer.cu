// SPDX-License-Identifier: Apache-2.0
// The kernels of integers, and the copy; in files of their own so that they compile side by side.
#include "kernels/device/folds.hpp"
#include "kernels/device/reduce_copy_kernel.cuh"

namespace tutti::device {
namespace {

__global__ void __launch_bounds__(kKernelThreads)
    copy_bytes_kernel(const __grid_constant__ KernelArguments arguments) {
  copy(grid_threads(), call_of(arguments), arguments.element_bytes);
}

}  // namespace

const void* copy_kernel() { return reinterpret_cast<const void*>(&copy_bytes_kernel); }

const void* integer_kernel(DataType type, ReduceOp op) {
  const void* kernel = nullptr;
  visit_integer_fold(type, op, [&]<class Fold>() {
    kernel = reinterpret_cast<const void*>(&reduce_copy_kernel<Fold>);
  });
  return kernel;
}

}  // namespace tutti::device
