// SPDX-License-Identifier: Apache-2.0
// The interpreter as kernels, two for each of 45 folds (folds.hpp): one that moves packets, and one
// for slots, cells and the memory of peers; what a launch of one takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "device/task.hpp"

namespace tutti::device {

// Threads of a block that moves packets: four such blocks fit a processor, or one beside other
// kernels, which 64 registers a thread are for.
inline constexpr int kPacketThreads = 256;
inline constexpr int kPacketBlocks = 4;

// Those of the others. 384 that copy 8 x 16 bytes each have enough on their way to keep a
// processor's share of the memory busy; they take up to 128 registers, so one block fits. A
// sanitizer needs registers of its own, so programs for one are built with fewer threads.
#ifdef TUTTI_DEVICE_THREADS
inline constexpr int kInterpreterThreads = TUTTI_DEVICE_THREADS;
#else
inline constexpr int kInterpreterThreads = 384;
#endif
// Ranks of one device are one launch; each has a block, and no GPU so far runs more at once.
inline constexpr std::uint32_t kMaxTasks = 160;

// Those whose launch takes a kernel with few parameters, which each launch and each graph's node
// copies.
inline constexpr std::uint32_t kFewTasks = 16;

// A kernel's only parameter.
template <std::uint32_t kTasks>
struct LaunchArguments {
  Common common;
  LaunchTask tasks[kTasks];
};
static_assert(sizeof(LaunchArguments<kFewTasks>) <= 512);
static_assert(sizeof(LaunchArguments<kMaxTasks>) <= 4096, "what every driver takes");

// Builds the arguments of at most kTasks tasks, each with its copy in device memory.
template <std::uint32_t kTasks>
[[nodiscard]] LaunchArguments<kTasks> launch_arguments(const Common& common,
                                                       std::span<const LaunchTask> tasks) {
  LaunchArguments<kTasks> arguments{.common = common, .tasks = {}};
  std::ranges::copy(tasks, arguments.tasks);
  return arguments;
}

// The kernels' host handles, as cudaLaunchKernel takes them; nullptr for types of another file.
struct Kernels {
  const void* few = nullptr;   // up to kFewTasks
  const void* many = nullptr;  // up to kMaxTasks
  int threads = 0;             // of a block
};
struct FoldKernels {
  Kernels packets, others;
  [[nodiscard]] const Kernels& of(Messages messages) const {
    return in_packets(messages) ? packets : others;
  }
};
[[nodiscard]] FoldKernels integer_interpreter(DataType type, ReduceOp op);
[[nodiscard]] FoldKernels float_interpreter(DataType type, ReduceOp op);
[[nodiscard]] FoldKernels float8_interpreter(DataType type, ReduceOp op);

}  // namespace tutti::device
