// SPDX-License-Identifier: Apache-2.0
// The current GPU as a machine that runs bodies (probe.hpp), in blocks as the interpreter's.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "device/interpreter.cuh"
#include "device_words/cuda_calls.hpp"

namespace tutti::probe {

template <class Body>
__global__ void __launch_bounds__(device::kInterpreterThreads)
    run_body(const __grid_constant__ Body body) {
  device::CudaBlock block;
  body(block);
}

class CudaMachine {
 public:
  static constexpr std::uint32_t kThreads = device::kInterpreterThreads;
  static constexpr std::uint64_t kLimitNs = 500'000'000;
  static constexpr std::uint32_t rounds(std::uint32_t on_gpu) { return on_gpu; }

  // Empty, or why there is no GPU that runs this.
  [[nodiscard]] static std::string unusable() {
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found == cudaSuccess && devices > 0) return {};
    return found == cudaSuccess ? "there is no GPU" : cudaGetErrorString(found);
  }

  CudaMachine() {
    int device = 0;
    perf::check(cudaGetDevice(&device), "cannot ask for the device");
    cudaDeviceProp properties{};
    perf::check(cudaGetDeviceProperties(&properties, device), "cannot ask the device");
    name_ = properties.name;
    blocks_ = static_cast<std::uint32_t>(properties.multiProcessorCount);
  }
  ~CudaMachine() {
    for (void* const memory : memory_) cudaFree(memory);
  }
  CudaMachine(const CudaMachine&) = delete;
  CudaMachine& operator=(const CudaMachine&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  // One on each processor, as the interpreter's.
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }

  template <class T>
  T* allocate(std::uint64_t count) {
    void* memory = nullptr;
    perf::check(cudaMalloc(&memory, count * sizeof(T)), "cannot allocate memory");
    memory_.push_back(memory);
    perf::check(cudaMemset(memory, 0, count * sizeof(T)), "cannot clear memory");
    return static_cast<T*>(memory);
  }
  void write(void* to, const void* from, std::uint64_t bytes) {
    perf::check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cannot write memory");
  }
  void read(void* to, const void* from, std::uint64_t bytes) {
    perf::check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cannot read memory");
  }

  template <class Body>
  void launch(std::uint32_t blocks, const Body& body) {
    run_body<<<blocks, kThreads>>>(body);
    perf::check(cudaGetLastError(), "cannot launch a kernel");
  }
  void finish() { perf::check(cudaDeviceSynchronize(), "a kernel failed"); }

  template <class Enqueue>
  std::vector<double> times_ns(int samples, Enqueue&& enqueue) {
    std::vector<double> times = stopwatch_.seconds(samples, enqueue);
    for (double& time : times) time *= 1e9;
    return times;
  }

 private:
  std::string name_;
  std::uint32_t blocks_ = 1;
  std::vector<void*> memory_;
  perf::Stopwatch stopwatch_;
};

}  // namespace tutti::probe
