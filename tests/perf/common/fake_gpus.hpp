// SPDX-License-Identifier: Apache-2.0
// Two GPUs that are none: for tests of what drives GPUs, where there may be no GPU.
//
// Their memory has addresses that fault when the host follows one. Work waits on its stream until
// the stream is asked whether it is idle, so that who does not wait finds nothing done. The clock
// counts operations: one is a microsecond, the first launch of a graph ten more.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "common/gpus.hpp"

namespace tutti::perf {

class FakeGpus : public Gpus {
 public:
  static constexpr double kUploadUs = 10;

  // The host's address of a byte of the fake memory.
  static std::byte* host(const void* device) {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(device) ^ kFar);
  }
  // Puts one operation on the stream, or into the graph that is captured from it.
  void enqueue(Stream stream, std::function<void()> work) {
    FakeStream& on = *static_cast<FakeStream*>(stream);
    (on.captures ? on.recorded : on.pending).push_back([this, work = std::move(work)] {
      work();
      now_us_ += 1;
      ++operations;
    });
  }

  int operations = 0;  // that have run
  int made = 0;        // streams, graphs and events that are not freed
  int current = -1;    // the GPU in use
  bool hangs = false;  // no stream gets on

  const std::vector<GpuFacts>& list() const override { return list_; }
  void use(int gpu) override { current = gpu; }
  std::uint64_t free_bytes(int) override { return 1 << 30; }
  std::uint64_t used_bytes() override { return 0; }
  const PageSource& pages() const override { return pages_; }

  Stream make_stream() override { return ++made, new FakeStream; }
  void free_stream(Stream stream) noexcept override {
    --made;
    delete static_cast<FakeStream*>(stream);
  }
  bool idle(Stream stream) override {
    FakeStream& of = *static_cast<FakeStream*>(stream);
    if (hangs) return false;
    if (of.pending.empty()) return true;
    of.pending.front()();
    of.pending.pop_front();
    return of.pending.empty();
  }

  void begin_capture(std::span<const Stream> streams) override {
    for (const Stream stream : streams) static_cast<FakeStream*>(stream)->captures = true;
  }
  Graph end_capture(std::span<const Stream> streams) override {
    ++made;
    auto* const graph = new FakeGraph;
    for (const Stream stream : streams) {
      FakeStream& of = *static_cast<FakeStream*>(stream);
      of.captures = false;
      graph->work.insert(graph->work.end(), of.recorded.begin(), of.recorded.end());
      of.recorded.clear();
    }
    return graph;
  }
  void launch(Graph graph, Stream stream) override {
    FakeGraph& of = *static_cast<FakeGraph*>(graph);
    auto& pending = static_cast<FakeStream*>(stream)->pending;
    if (!std::exchange(of.uploaded, true)) pending.push_back([this] { now_us_ += kUploadUs; });
    pending.insert(pending.end(), of.work.begin(), of.work.end());
  }
  void free_graph(Graph graph) noexcept override {
    --made;
    delete static_cast<FakeGraph*>(graph);
  }

  Event make_event() override { return ++made, new double(-1); }
  void free_event(Event event) noexcept override {
    --made;
    delete static_cast<double*>(event);
  }
  void record(Event event, Stream stream) override {
    static_cast<FakeStream*>(stream)->pending.push_back(
        [this, event] { *static_cast<double*>(event) = now_us_; });
  }
  double elapsed_us(Event from, Event to) override {
    if (*static_cast<double*>(to) < 0) throw std::runtime_error("an event that did not happen");
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }

 private:
  static constexpr std::uintptr_t kFar = std::uintptr_t{1} << 62;  // no address of a process

  using Work = std::deque<std::function<void()>>;
  struct FakeStream {
    Work pending, recorded;
    bool captures = false;
  };
  struct FakeGraph {
    Work work;
    bool uploaded = false;
  };
  class Pages : public PageSource {
   public:
    void* allocate(std::size_t bytes) const override {
      return far(private_pages().allocate(bytes));
    }
    void release(void* memory, std::size_t bytes) const override {
      private_pages().release(host(memory), bytes);
    }
    bool in_place() const override { return false; }
    void read(std::byte* to, const std::byte* from, std::size_t bytes) const override {
      std::memcpy(to, host(from), bytes);
    }
    void write(std::byte* to, const std::byte* from, std::size_t bytes) const override {
      std::memcpy(host(to), from, bytes);
    }
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override {
      std::memcpy(host(to), host(from), bytes);
    }

   private:
    static void* far(void* memory) { return host(memory); }
  };

  std::vector<GpuFacts> list_{{"Fake A", "0000:01:00"}, {"Fake B", "0000:02:00"}};
  Pages pages_;
  double now_us_ = 0;
};

}  // namespace tutti::perf
