// SPDX-License-Identifier: Apache-2.0
// Launches the reduce-copy kernel on device memory. Needs no CUDA header; a build without CUDA has
// the same functions, which say so.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "base/types.hpp"
#include "kernels/device/reduce_copy.hpp"

struct CUstream_st;  // *cudaStream_t

namespace tutti::device {

inline constexpr std::uint32_t kMaxKernelOperands = 64;  // sources, and destinations
inline constexpr int kKernelThreads = 512;               // of a block

// Ok where the current device can run kernels; else why not (kNotSupported: built without CUDA, no
// driver, no device). Any thread.
[[nodiscard]] Status kernels_usable();

// Enqueues destinations <- reduce(sources) on `stream` (nullptr: the default one) of the current
// device, in `blocks` blocks; 0: as many as the device runs at once, fewer for little data. The
// arrays in `call` are host memory and may go when this returns; the elements are memory that the
// device reaches. One source without average is a copy, of any type. May be captured into a graph.
// Does not block. Errors: kInvalidArgument (no or too many operands, unknown type or operation),
// kNotSupported, kUnhandledCudaError. Any thread.
[[nodiscard]] Status launch_reduce_copy(DataType type, ReduceOp op, const DeviceReduceCopy& call,
                                        CUstream_st* stream = nullptr, int blocks = 0);

}  // namespace tutti::device
