// SPDX-License-Identifier: Apache-2.0
// The interpreter as kernels: one for each fold (folds.hpp), 45 in all; what a launch of one takes.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "device/task.hpp"

namespace tutti::device {

// With at most 128 registers a thread, a block fills a processor's registers: one is resident.
inline constexpr int kInterpreterThreads = 512;
// Ranks of one device are one launch; each has a block, and no GPU so far runs more at once.
inline constexpr std::uint32_t kMaxTasks = 160;

// The kernel's only parameter; a graph keeps a copy.
struct LaunchArguments {
  std::uint32_t blocks_each = 1;  // of every task: block b runs block b mod it of task b / it
  Common common;
  LaunchTask tasks[kMaxTasks];
};
static_assert(sizeof(LaunchArguments) <= 4096, "what every driver takes as a kernel's parameters");

// Builds the arguments of at most kMaxTasks tasks, each with its copy in device memory.
[[nodiscard]] inline LaunchArguments launch_arguments(std::span<const Task> tasks,
                                                      std::uint32_t blocks_each) {
  LaunchArguments arguments{
      .blocks_each = blocks_each, .common = static_cast<const Common&>(tasks.front()), .tasks = {}};
  for (std::size_t i = 0; i < tasks.size(); ++i)
    arguments.tasks[i] = {tasks[i].bound, tasks[i].input, tasks[i].output};
  return arguments;
}

// The kernel's host handle, as cudaLaunchKernel takes it; nullptr for types of another file.
[[nodiscard]] const void* integer_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float_interpreter(DataType type, ReduceOp op);
[[nodiscard]] const void* float8_interpreter(DataType type, ReduceOp op);

}  // namespace tutti::device
