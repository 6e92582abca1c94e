// SPDX-License-Identifier: Apache-2.0
#include "hold_gpu.hpp"

namespace tutti::test {
namespace {

__device__ unsigned long long clock_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void hold(unsigned long long ns) {
  const unsigned long long until = clock_ns() + ns;
  while (clock_ns() < until) __nanosleep(1000);
}

__global__ void write(unsigned* word, unsigned value) { *word = value; }

}  // namespace

cudaError_t hold_all_multiprocessors(int milliseconds, cudaStream_t stream) {
  int device = 0;
  cudaDeviceProp facts{};
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaGetDeviceProperties(&facts, device); error != cudaSuccess)
    return error;
  const int threads = 1024;
  const int blocks = facts.multiProcessorCount * (facts.maxThreadsPerMultiProcessor / threads);
  hold<<<blocks, threads, 0, stream>>>(static_cast<unsigned long long>(milliseconds) * 1'000'000);
  return cudaGetLastError();
}

cudaError_t write_word(unsigned* word, unsigned value, cudaStream_t stream) {
  write<<<1, 1, 0, stream>>>(word, value);
  return cudaGetLastError();
}

}  // namespace tutti::test
