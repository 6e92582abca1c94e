// SPDX-License-Identifier: Apache-2.0
// The GPUs by the CUDA runtime, which is linked statically and looks for the driver when it is
// first called: the tools start where there is none.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cstdlib>
#include <stdexcept>

#include "common/gpus.hpp"

namespace tutti::perf {
namespace {

std::string text_of(cudaError_t error, const char* what) {
  return fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(text_of(error, what));
}

// Copies go by the stream of the calling thread, so that threads do not wait for each other, and
// have arrived when the stream is idle: a copy from pageable memory may return before.
void copy_now(void* to, const void* from, std::size_t bytes, const char* what) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), what);
  check(cudaStreamSynchronize(cudaStreamPerThread), what);
}

class GpuPages : public PageSource {
 public:
  void* allocate(std::size_t bytes) const override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // or the next caller finds it
      return nullptr;
    }
    check(cudaMemsetAsync(memory, 0, bytes, cudaStreamPerThread), "cannot clear GPU memory");
    check(cudaStreamSynchronize(cudaStreamPerThread), "cannot clear GPU memory");
    return memory;
  }
  void release(void* memory, std::size_t) const override { static_cast<void>(cudaFree(memory)); }
  bool in_place() const override { return false; }
  void read(std::byte* to, const std::byte* from, std::size_t bytes) const override {
    copy_now(to, from, bytes, "cannot copy from the GPU");
  }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) const override {
    copy_now(to, from, bytes, "cannot copy to the GPU");
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override {
    copy_now(to, from, bytes, "cannot copy on the GPU");
  }
};

class CudaGpus : public Gpus {
 public:
  explicit CudaGpus(std::vector<GpuFacts> gpus) : gpus_(std::move(gpus)) {}

  const std::vector<GpuFacts>& list() const override { return gpus_; }
  void use(int gpu) override { check(cudaSetDevice(gpu), "cannot use the GPU"); }
  std::uint64_t free_bytes(int gpu) override { return memory_of(gpu).free; }
  std::uint64_t used_bytes() override {
    std::uint64_t used = 0;
    for (int gpu = 0; gpu < static_cast<int>(gpus_.size()); ++gpu) {
      const Memory memory = memory_of(gpu);
      used += memory.total - memory.free;
    }
    return used;
  }
  const PageSource& pages() const override { return pages_; }

  Stream make_stream() override {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream");
    return stream;
  }
  void free_stream(Stream stream) noexcept override {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
  }
  bool idle(Stream stream) override {
    const cudaError_t found = cudaStreamQuery(static_cast<cudaStream_t>(stream));
    if (found == cudaErrorNotReady) return false;
    check(found, "an operation failed on its GPU");
    return true;
  }

  // By thread: other threads capture and instantiate at the same time. The other streams are part
  // of the first one's capture from the event on that they wait for.
  void begin_capture(std::span<const Stream> streams) override {
    const auto first = static_cast<cudaStream_t>(streams[0]);
    check(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal),
          "cannot capture a graph");
    for (const Stream other : streams.subspan(1)) follow(other, first);
  }
  Graph end_capture(std::span<const Stream> streams) override {
    const auto first = static_cast<cudaStream_t>(streams[0]);
    for (const Stream other : streams.subspan(1)) follow(first, other);
    cudaGraph_t captured = nullptr;
    check(cudaStreamEndCapture(first, &captured), "cannot capture a graph");
    cudaGraphExec_t graph = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&graph, captured, 0);
    static_cast<void>(cudaGraphDestroy(captured));
    check(made, "cannot instantiate a graph");
    // At its first launch a graph that is not there yet may wait for kernels that run, and these
    // for that launch, where ranks share a GPU.
    const cudaError_t there = cudaGraphUpload(graph, first);
    if (there != cudaSuccess) free_graph(graph);
    check(there, "cannot upload a graph");
    return graph;
  }
  void launch(Graph graph, Stream stream) override {
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)),
          "cannot launch a graph");
  }
  void free_graph(Graph graph) noexcept override {
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
  }

  Event make_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cannot make an event");
    return event;
  }
  void free_event(Event event) noexcept override {
    static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  }
  void record(Event event, Stream stream) override {
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
          "cannot record an event");
  }
  double elapsed_us(Event from, Event to) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from),
                               static_cast<cudaEvent_t>(to)),
          "cannot read the events");
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  struct Memory {
    std::size_t free = 0, total = 0;
  };
  // What is put on `later` from here on comes after what is on `earlier` now.
  static void follow(Stream later, Stream earlier) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cannot make an event");
    cudaError_t done = cudaEventRecord(event, static_cast<cudaStream_t>(earlier));
    if (done == cudaSuccess) done = cudaStreamWaitEvent(static_cast<cudaStream_t>(later), event, 0);
    static_cast<void>(cudaEventDestroy(event));  // once it has happened
    check(done, "cannot order two streams");
  }
  Memory memory_of(int gpu) {
    int before = 0;
    check(cudaGetDevice(&before), "no current GPU");
    use(gpu);
    Memory memory;
    const cudaError_t asked = cudaMemGetInfo(&memory.free, &memory.total);
    use(before);
    check(asked, "cannot read how much memory the GPU has");
    return memory;
  }

  std::vector<GpuFacts> gpus_;
  GpuPages pages_;
};

}  // namespace

FoundGpus find_gpus() {
  // Before the driver starts: with fewer hardware queues than streams two ranks' graphs may share
  // one, and a kernel stands behind another rank's that waits for it.
  static_cast<void>(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0));
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  std::vector<GpuFacts> gpus;
  for (int gpu = 0; gpu < count && error == cudaSuccess; ++gpu) {
    cudaDeviceProp facts{};
    error = cudaGetDeviceProperties(&facts, gpu);
    gpus.push_back({facts.name, fmt::format("{:04x}:{:02x}:{:02x}", facts.pciDomainID,
                                            facts.pciBusID, facts.pciDeviceID)});
  }
  if (error != cudaSuccess) return {nullptr, text_of(error, "no GPU can be used")};
  return {std::make_unique<CudaGpus>(std::move(gpus)), {}};
}

}  // namespace tutti::perf
