// SPDX-License-Identifier: Apache-2.0
// The kernels of 8-bit floats; in files of their own so that they compile side by side.
#include "kernels/device/folds.hpp"
#include "kernels/device/reduce_copy_kernel.cuh"

namespace tutti::device {

const void* float8_kernel(DataType type, ReduceOp op) {
  const void* kernel = nullptr;
  visit_float8_fold(type, op, [&]<class Fold>() {
    kernel = reinterpret_cast<const void*>(&reduce_copy_kernel<Fold>);
  });
  return kernel;
}

}  // namespace tutti::device
