// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime for programs that measure: an error ends the program with a line that names it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tutti::perf {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
               cudaGetErrorString(error));
  std::exit(1);
}

// Two events on the default stream.
class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&begin_), "cannot make an event");
    check(cudaEventCreate(&end_), "cannot make an event");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Seconds that what `enqueue` enqueues takes, sorted, of so many samples. The first time, which
  // loads kernels, does not count.
  template <class Enqueue>
  std::vector<double> seconds(int samples, Enqueue&& enqueue, cudaStream_t stream = nullptr) {
    std::vector<double> all;
    enqueue();
    for (int i = 0; i < samples; ++i) {
      check(cudaEventRecord(begin_, stream), "cannot record an event");
      enqueue();
      check(cudaEventRecord(end_, stream), "cannot record an event");
      check(cudaEventSynchronize(end_), "the kernels failed");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cannot read the events");
      all.push_back(static_cast<double>(milliseconds) / 1e3);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace tutti::perf
