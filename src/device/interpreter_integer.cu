// SPDX-License-Identifier: Apache-2.0
// The interpreter of one kind of types; in files of their own so that they compile side by side.
#include "device/interpreter.cuh"

namespace tutti::device {

FoldKernels integer_interpreter(DataType type, ReduceOp op) {
  return find_interpreter([&](auto&& found) { visit_integer_fold(type, op, found); });
}

}  // namespace tutti::device
