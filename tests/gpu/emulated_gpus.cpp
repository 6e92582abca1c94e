// SPDX-License-Identifier: Apache-2.0
// One GPU of host threads in the place of CUDA's: for programs that are linked with it, so that
// what runs on a GPU also runs where there is none. It shows that a program works, not how fast.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>

#include "common/gpus.hpp"
#include "tests/device/emulated_platform.hpp"

namespace tutti {
namespace {

using test::EmulatedPlatform;
using test::EmulatedStream;

// Knows what memory is the GPU's: what it gave itself, and what the program asked for.
class OneGpu : public EmulatedPlatform {
 public:
  OneGpu() : EmulatedPlatform({.blocks = 24, .queues = 32, .threads = 3}) {
    GTEST_FLAG_SET(throw_on_failure, true);  // what the emulation finds ends the program
  }
  int device_of(const void* memory) override {
    const std::lock_guard lock(mutex_);
    const auto after = memory_.upper_bound(static_cast<const std::byte*>(memory));
    if (after == memory_.begin()) return -1;
    const auto& [begin, bytes] = *std::prev(after);
    return memory < begin + bytes ? 0 : -1;
  }
  void know(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_[static_cast<const std::byte*>(memory)] = bytes;
  }
  void forget(const void* memory) {
    const std::lock_guard lock(mutex_);
    memory_.erase(static_cast<const std::byte*>(memory));
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> memory_;  // bytes by beginning; guarded by mutex_
};

OneGpu& the_gpu() {
  static auto* const gpu = new OneGpu;  // never destroyed: communicators may outlive main
  return *gpu;
}

class EmulatedPages : public perf::PageSource {
 public:
  void* allocate(std::size_t bytes) const override {
    void* const memory = perf::private_pages().allocate(bytes);
    if (memory != nullptr) the_gpu().know(memory, bytes);
    return memory;
  }
  void release(void* memory, std::size_t bytes) const override {
    the_gpu().forget(memory);
    perf::private_pages().release(memory, bytes);
  }
  bool in_place() const override { return false; }  // as of a GPU
};

class EmulatedGpus : public perf::Gpus {
 public:
  const std::vector<perf::GpuFacts>& list() const override { return list_; }
  void use(int) override {}
  std::uint64_t free_bytes(int) override { return std::uint64_t{1} << 30; }
  std::uint64_t used_bytes() override { return 0; }
  const perf::PageSource& pages() const override { return pages_; }

  Stream make_stream() override { return new EmulatedStream; }
  void free_stream(Stream stream) noexcept override { delete of(stream); }
  bool idle(Stream stream) override { return of(stream)->idle(); }

  void begin_capture(std::span<const Stream> streams) override {
    auto* const graph = new EmulatedStream::Graph(++captures_);
    for (const Stream stream : streams) of(stream)->record_into(graph);
    const std::lock_guard lock(mutex_);
    recording_[streams[0]] = graph;
  }
  Graph end_capture(std::span<const Stream> streams) override {
    for (const Stream stream : streams) of(stream)->record_into(nullptr);
    const std::lock_guard lock(mutex_);
    return recording_.extract(streams[0]).mapped();
  }
  void launch(Graph graph, Stream stream) override {
    of(stream)->replay(*static_cast<EmulatedStream::Graph*>(graph));
  }
  void free_graph(Graph graph) noexcept override {
    delete static_cast<EmulatedStream::Graph*>(graph);
  }

  Event make_event() override { return new Clock::time_point; }
  void free_event(Event event) noexcept override { delete static_cast<Clock::time_point*>(event); }
  void record(Event event, Stream stream) override {
    of(stream)->enqueue([event] { *static_cast<Clock::time_point*>(event) = Clock::now(); });
  }
  double elapsed_us(Event from, Event to) override {
    const auto passed =
        *static_cast<Clock::time_point*>(to) - *static_cast<Clock::time_point*>(from);
    return std::chrono::duration<double, std::micro>(passed).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static EmulatedStream* of(Stream stream) {
    if (stream == nullptr) throw std::runtime_error("the default stream is not emulated");
    return static_cast<EmulatedStream*>(stream);
  }
  const std::vector<perf::GpuFacts> list_{{"threads that emulate a GPU", "0000:00:00"}};
  EmulatedPages pages_;
  std::atomic<std::uint64_t> captures_{0};
  std::mutex mutex_;
  std::map<Stream, EmulatedStream::Graph*> recording_;  // by first stream; guarded by mutex_
};

}  // namespace

namespace device {

Platform* cuda_platform(bool) { return &the_gpu(); }
std::string_view cuda_fault() { return {}; }

}  // namespace device

namespace perf {

FoundGpus find_gpus() { return {std::make_unique<EmulatedGpus>(), {}}; }

}  // namespace perf
}  // namespace tutti
