// SPDX-License-Identifier: Apache-2.0
// What a build without CUDA has in place of the kernels.
#include "kernels/device/reduce_copy_kernel.hpp"

namespace tutti::device {
namespace {

Status no_cuda() {
  return make_error(Code::kNotSupported,
                    "built without CUDA: configure with TUTTI_CUDA=ON where nvcc 12.3 or newer is");
}

}  // namespace

Status kernels_usable() { return no_cuda(); }

Status launch_reduce_copy(DataType, ReduceOp, const DeviceReduceCopy&, CUstream_st*, int) {
  return no_cuda();
}

}  // namespace tutti::device
