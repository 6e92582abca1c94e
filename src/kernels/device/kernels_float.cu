// SPDX-License-Identifier: Apache-2.0
// The kernels of floats of 16 to 64 bits; in files of their own so that they compile side by side.
#include "kernels/device/folds.hpp"
#include "kernels/device/reduce_copy_kernel.cuh"

namespace tutti::device {

const void* float_kernel(DataType type, ReduceOp op) {
  const void* kernel = nullptr;
  visit_float_fold(type, op, [&]<class Fold>() {
    kernel = reinterpret_cast<const void*>(&reduce_copy_kernel<Fold>);
  });
  return kernel;
}

}  // namespace tutti::device
