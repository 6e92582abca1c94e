// SPDX-License-Identifier: Apache-2.0
// What the translation unit of each instruction set offers to the dispatcher, and nothing more: the
// template source lies in unnamed namespaces, so that code compiled for a wide instruction set can
// never be picked by the linker for another.
#pragma once

#include "kernels/reduce_copy.hpp"

namespace tutti::kernels {

// The kernel for (type, op), nullptr if there is none. kAvg is the kernel of kSum.
using LookupFn = ReduceCopyFn (*)(DataType type, ReduceOp op);

using ConversionLookupFn = FloatConversion (*)(DataType type);

[[nodiscard]] ReduceCopyFn lookup_scalar(DataType type, ReduceOp op);
[[nodiscard]] ReduceCopyFn lookup_avx2(DataType type, ReduceOp op);    // needs avx2, f16c
[[nodiscard]] ReduceCopyFn lookup_avx512(DataType type, ReduceOp op);  // and avx512 f, bw, dq, vl

[[nodiscard]] FloatConversion lookup_scalar(DataType type);
[[nodiscard]] FloatConversion lookup_avx2(DataType type);
[[nodiscard]] FloatConversion lookup_avx512(DataType type);

}  // namespace tutti::kernels
