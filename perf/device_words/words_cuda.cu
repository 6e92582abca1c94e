// SPDX-License-Identifier: Apache-2.0
// The words of the current GPU; of what threads of the host have not, the kernels of a graph.
#include "device_words/cuda_machine.cuh"
#include "device_words/measure.hpp"

namespace tutti::probe {
namespace {

// A kernel that ends at once. Its parameter has to come, but holds nothing.
template <std::uint32_t kBytes>
struct Parameter {
  unsigned char bytes[kBytes];
};
template <std::uint32_t kBytes>
__global__ void __launch_bounds__(device::kInterpreterThreads)
    empty_kernel(const __grid_constant__ Parameter<kBytes> parameter) {
  if (parameter.bytes[blockIdx.x % kBytes] != 0) asm volatile("trap;");
}

class Launches {
 public:
  Launches(Words& words) : words_(words) {
    perf::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot make a stream");
  }
  ~Launches() { cudaStreamDestroy(stream_); }

  template <std::uint32_t kBytes>
  void measure() {
    for (const std::uint32_t blocks : {1U, 16U, 132U}) {
      const std::string what = std::to_string(kBytes) + "B_" + std::to_string(blocks);
      add("launch_" + what, [&] { enqueue<kBytes>(blocks); });
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t replayed = nullptr;
      perf::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                  "cannot begin a capture");
      enqueue<kBytes>(blocks);
      perf::check(cudaStreamEndCapture(stream_, &graph), "cannot end a capture");
      perf::check(cudaGraphInstantiate(&replayed, graph, 0), "cannot make a graph");
      add("graph_node_" + what,
          [&] { perf::check(cudaGraphLaunch(replayed, stream_), "cannot launch a graph"); });
      perf::check(cudaGraphExecDestroy(replayed), "cannot free a graph");
      perf::check(cudaGraphDestroy(graph), "cannot free a graph");
    }
  }

 private:
  static constexpr int kKernels = 200, kSamples = 9;

  template <std::uint32_t kBytes>
  void enqueue(std::uint32_t blocks) {
    const Parameter<kBytes> parameter{};
    for (int i = 0; i < kKernels; ++i)
      empty_kernel<kBytes><<<blocks, device::kInterpreterThreads, 0, stream_>>>(parameter);
    perf::check(cudaGetLastError(), "cannot launch a kernel");
  }
  // Of one kernel.
  template <class Enqueue>
  void add(std::string name, Enqueue&& enqueue_all) {
    std::vector<double> times = stopwatch_.seconds(kSamples, enqueue_all, stream_);
    for (double& time : times) time *= 1e9 / kKernels;
    words_.figures.push_back(figure_of(std::move(name), "ns", std::move(times)));
  }

  Words& words_;
  cudaStream_t stream_ = nullptr;
  perf::Stopwatch stopwatch_;
};

}  // namespace

Words measure_words(const WordsOptions& options) {
  Words words;
  if (const std::string why = CudaMachine::unusable(); !why.empty()) {
    words.faults.push_back(why);
    return words;
  }
  constexpr std::uint64_t kOperandBytes = 256 << 20;  // of each of nine
  CudaMachine machine;
  words.device = machine.name();
  words.blocks = machine.blocks();
  Measurement<CudaMachine> measurement(machine, words);
  // First what takes the device from its idle clocks.
  measurement.bandwidths(options.operand_bytes != 0 ? options.operand_bytes : kOperandBytes);
  measurement.latencies();
  Launches launches(words);
  launches.measure<64>();
  launches.measure<512>();
  launches.measure<4096>();
  return words;
}

}  // namespace tutti::probe
