// The interpreter as kernels: one for each fold (folds.hpp), 45 in all; what a launch of one takes.
#pragma once

#include <cstdint>

#include "base/types.hpp"
#include "runtime/device/task.hpp"

namespace tutti::device {

// With at most 128 registers a thread, a block fills a processor's registers: one is resident.
inline constexpr int kInterpreterThreads = 512;
// Ranks of one device are one launch.
inline constexpr std::uint32_t kMaxTasks = 16;

// The kernel's only parameter; a graph keeps a copy.
struct LaunchArguments {
  std::uint32_t blocks_each = 1;  // of every task: block b runs block b mod it of task b / it
  Task tasks[kMaxTasks];
};
static_assert(sizeof(LaunchArguments) <= 32764,
              "what a kernel's parameters may be since CUDA 12.1");

// The kernel's host handle, as cudaLaunchKernel takes it; nullptr for types of another file.
[[nodiscard]] const void* integer_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float8_interpreter(DataType type, ReduceOp op);

}  // namespace tutti::device
