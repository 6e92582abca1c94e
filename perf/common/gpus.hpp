// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine as the perf tools use them: memory, streams, graphs, events.
//
// An interface, so that what drives it can be tested where there is no GPU. The machine's own
// stands in gpus_cuda.cpp; a build without CUDA has gpus_absent.cpp in its place. Failures are
// thrown as std::runtime_error with CUDA's own words. Any thread. Nothing here may be called before
// a fork: a CUDA context does not survive one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/memory.hpp"

namespace tutti::perf {

struct GpuFacts {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string bus;   // "0000:18:00": domain, bus, device
};

class Gpus {
 public:
  // A cudaStream_t, cudaGraphExec_t, cudaEvent_t. A null stream is the default one.
  using Stream = void*;
  using Graph = void*;
  using Event = void*;

  virtual ~Gpus() = default;
  [[nodiscard]] virtual const std::vector<GpuFacts>& list() const = 0;  // never empty
  [[nodiscard]] int of_rank(int rank) const { return rank % static_cast<int>(list().size()); }
  // The calling thread's current GPU from here on: of pages, streams, events and communicators that
  // it makes.
  virtual void use(int gpu) = 0;
  [[nodiscard]] virtual std::uint64_t free_bytes(int gpu) = 0;
  [[nodiscard]] virtual std::uint64_t used_bytes() = 0;  // of all GPUs, by whomever
  // Memory of the current GPU. Its reads and writes wait for no stream but the default one.
  [[nodiscard]] virtual const PageSource& pages() const = 0;

  [[nodiscard]] virtual Stream make_stream() = 0;
  virtual void free_stream(Stream stream) noexcept = 0;
  // Returns whether all work on the stream has ended. Throws what a kernel met.
  [[nodiscard]] virtual bool idle(Stream stream) = 0;

  // Work that is put on the streams between the two calls is recorded as one graph and does not
  // run. Streams of one GPU, at least one.
  virtual void begin_capture(std::span<const Stream> streams) = 0;
  [[nodiscard]] virtual Graph end_capture(std::span<const Stream> streams) = 0;
  virtual void launch(Graph graph, Stream stream) = 0;
  virtual void free_graph(Graph graph) noexcept = 0;

  [[nodiscard]] virtual Event make_event() = 0;
  virtual void free_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  // Both have happened.
  [[nodiscard]] virtual double elapsed_us(Event from, Event to) = 0;
};

// The machine's GPUs, or why none can be used: one line without a period.
struct FoundGpus {
  std::unique_ptr<Gpus> gpus;
  std::string absence;
};
[[nodiscard]] FoundGpus find_gpus();

}  // namespace tutti::perf
