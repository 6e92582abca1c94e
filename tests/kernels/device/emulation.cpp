// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device/emulation.hpp"

#include "kernels/device/folds.hpp"

namespace tutti::device {

bool emulate(DataType type, ReduceOp op, const HostThreads& threads, const DeviceReduceCopy& call) {
  if (call.source_count == 1 && call.average_over <= 1) {
    copy(threads, call, static_cast<std::uint32_t>(element_bytes(type)));
    return true;
  }
  return visit_fold(type, op, [&]<class Fold>() { reduce_copy<Fold>(threads, call); });
}

}  // namespace tutti::device
