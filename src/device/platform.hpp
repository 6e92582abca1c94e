// SPDX-License-Identifier: Apache-2.0
// What ranks on devices need of them: memory, launches, order between streams. One for all ranks of
// the process: CUDA's (cuda_platform.cpp), or the tests' emulation by threads.
//
// Devices are numbered from 0, as CUDA numbers them. A stream is a cudaStream_t: work that is
// enqueued on it runs in order. Any thread may call; nothing but synchronize() waits for a kernel.
// The calling thread's current device is as before when a call returns.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "base/types.hpp"
#include "device/task.hpp"

namespace tutti::device {

using Stream = void*;  // a cudaStream_t; null: the default one
using Event = void*;   // a cudaEvent_t

struct LaunchCall {
  int device = 0;
  Stream stream = nullptr;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Messages messages = Messages::kSlots;
  std::uint32_t blocks_each = 1;  // of every task
  Common common;
  std::span<const LaunchTask> tasks;  // at most kMaxTasks
};

class Platform {
 public:
  virtual ~Platform() = default;

  [[nodiscard]] virtual int devices() = 0;  // how many there are
  [[nodiscard]] virtual Result<int> current_device() = 0;
  // Loads the interpreter's kernels. At its first launch a kernel that is not loaded may wait for
  // those that run, and one of these for that very launch. Idempotent. kNotSupported where they do
  // not run.
  [[nodiscard]] virtual Status load(int device) = 0;
  // That the interpreter's kernels run on at once, on an idle device.
  [[nodiscard]] virtual Result<int> resident_blocks(int device) = 0;
  // How many streams of a device surely do not wait for each other.
  [[nodiscard]] virtual int hardware_queues(int device) = 0;
  // Lets kernels of one device reach the memory of another. Idempotent. kNotSupported where they
  // cannot.
  [[nodiscard]] virtual Status reach(int device, int other) = 0;
  // Are 128 bytes that a warp of one stores seen whole on the other, and 16 of a thread
  // (transports/packets.hpp)? Not across PCIe, which promises 8.
  [[nodiscard]] virtual bool whole_lines(int device, int other) = 0;

  // Memory of a device, zeroed and aligned to a page. It may wait for kernels, as may its release.
  [[nodiscard]] virtual Result<std::byte*> allocate(int device, std::uint64_t bytes) = 0;
  virtual void release(int device, std::byte* memory) = 0;
  // Returns when the bytes are there. Also while kernels run.
  [[nodiscard]] virtual Status upload(int device, void* to, const void* from,
                                      std::uint64_t bytes) = 0;
  // Zeroed words of host memory that all devices write; `device` is one of the caller's.
  [[nodiscard]] virtual Result<Word*> allocate_words(int device, std::uint64_t count) = 0;
  virtual void release_words(Word* words) = 0;

  // An event of a device. record() marks what has been enqueued on a stream, wait() lets a stream
  // go on from there, synchronize() the calling thread. `device` is the stream's, whose default one
  // null means.
  [[nodiscard]] virtual Result<Event> make_event(int device) = 0;
  virtual void release_event(Event event) = 0;
  [[nodiscard]] virtual Status record(Event event, int device, Stream stream) = 0;
  [[nodiscard]] virtual Status wait(int device, Stream stream, Event event) = 0;
  [[nodiscard]] virtual Status synchronize(Event event) = 0;

  // Returns an id of the stream that is unique as long as the process lives: a handle may be
  // another stream's later, and cudaStreamPerThread is another one in every thread. Not of a stream
  // that is captured: CUDA refuses to tell.
  [[nodiscard]] virtual Result<std::uint64_t> id_of(int device, Stream stream) = 0;
  // Returns the id of the capture into a graph that the stream is in; 0: none.
  [[nodiscard]] virtual Result<std::uint64_t> capture_of(int device, Stream stream) = 0;
  [[nodiscard]] virtual Status launch(const LaunchCall& call) = 0;
  // Enqueues a copy between any two places in memory, also of several devices. `device` is the
  // stream's.
  [[nodiscard]] virtual Status copy(int device, Stream stream, void* to, const void* from,
                                    std::uint64_t bytes) = 0;

  // Returns the device in whose memory a buffer lies, or -1 for host memory.
  [[nodiscard]] virtual int device_of(const void* memory) = 0;
  // Says where a buffer lies that kernels of `device` cannot use; empty: they can, as memory of
  // another device after reach(), or of a pool or mapping to which the program gave it access.
  [[nodiscard]] virtual std::string out_of_reach(int device, const void* memory) = 0;
};

// CUDA's, made at first use; null where this build has no CUDA, the program has not used any so
// far and `wake` does not ask for it all the same, or the machine has no device that this build's
// CUDA runtime can use. Any thread.
[[nodiscard]] Platform* cuda_platform(bool wake = false);
// Why that is null although there is a driver and a device may be: the CUDA runtime's words. Empty
// otherwise. Any thread.
[[nodiscard]] std::string_view cuda_fault();

}  // namespace tutti::device
