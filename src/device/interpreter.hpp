// SPDX-License-Identifier: Apache-2.0
// The interpreter as kernels: one for each fold (folds.hpp), 45 in all; what a launch of one takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "device/task.hpp"

namespace tutti::device {

// With up to 160 registers a thread, a block fills a processor's registers: one is resident. With
// 512 threads of 128 registers the interpreter spilled; 384 that copy 8 x 16 bytes each have enough
// on their way to keep a processor's share of the memory busy.
inline constexpr int kInterpreterThreads = 384;
// Ranks of one device are one launch; each has a block, and no GPU so far runs more at once.
inline constexpr std::uint32_t kMaxTasks = 160;

// The kernel's only parameter; a graph keeps a copy.
struct LaunchArguments {
  Common common;
  LaunchTask tasks[kMaxTasks];
};
static_assert(sizeof(LaunchArguments) <= 4096, "what every driver takes as a kernel's parameters");

// Builds the arguments of at most kMaxTasks tasks, each with its copy in device memory.
[[nodiscard]] inline LaunchArguments launch_arguments(const Common& common,
                                                      std::span<const LaunchTask> tasks) {
  LaunchArguments arguments{.common = common, .tasks = {}};
  std::ranges::copy(tasks, arguments.tasks);
  return arguments;
}

// The kernel's host handle, as cudaLaunchKernel takes it; nullptr for types of another file.
[[nodiscard]] const void* integer_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float8_interpreter(DataType type, ReduceOp op);

}  // namespace tutti::device
