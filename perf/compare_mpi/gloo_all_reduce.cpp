// SPDX-License-Identifier: Apache-2.0
// Times gloo::allreduce of float sums over Gloo's TCP transport by the method of all_reduce_perf,
// as mpi_all_reduce.c does. Out-of-place, both of Gloo's algorithms; a line "bytes microseconds"
// for each size has the faster one. A thread of Gloo's moves the messages; its other mode, in which
// the calling thread polls for them (Pair::setSync), is not tried. Ranks meet by files in a folder
// that all of them see.
//
// Usage: gloo_all_reduce rank ranks address folder min_bytes max_bytes factor iterations warmup
// Built and run by compare_mpi.py; not part of the main build.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

struct Job {
  std::shared_ptr<gloo::Context> context;
  std::vector<float> send, receive;
  std::uint32_t tag = 0;
};

void reduce(Job& job, Algorithm algorithm, std::size_t first, std::size_t count) {
  gloo::AllreduceOptions options(job.context);
  options.setAlgorithm(algorithm);
  options.setTag(job.tag++);
  options.setInput(job.send.data() + first, count);
  options.setOutput(job.receive.data() + first, count);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

double time_us(Job& job, Algorithm algorithm, std::size_t bytes, int iterations) {
  const std::size_t count = bytes / sizeof(float), regions = job.send.size() / count;
  const std::size_t used = std::min(static_cast<std::size_t>(iterations), regions);
  std::fill_n(job.receive.begin(), used * count, 0.0F);  // into the caches, as all_reduce_perf does
  gloo::BarrierOptions barrier(job.context);
  barrier.setTag(job.tag++);
  gloo::barrier(barrier);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i)
    reduce(job, algorithm, count * (static_cast<std::size_t>(i) % regions), count);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / iterations;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(stderr, "usage: %s rank ranks address folder min max factor iterations warmup\n",
                 argv[0]);
    return 2;
  }
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  const std::size_t least = std::strtoull(argv[5], nullptr, 10);
  const std::size_t most = std::strtoull(argv[6], nullptr, 10);
  const std::size_t factor = std::strtoull(argv[7], nullptr, 10);
  const int iterations = std::atoi(argv[8]), warmup = std::atoi(argv[9]);

  gloo::transport::tcp::attr place;
  place.hostname = argv[3];
  auto device = gloo::transport::tcp::CreateDevice(place);
  gloo::rendezvous::FileStore store(argv[4]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);

  Job job{.context = context};
  for (std::size_t i = 0; i < most / sizeof(float); ++i)
    job.send.push_back(static_cast<float>(i % 251) + static_cast<float>(rank));
  job.receive.resize(job.send.size());
  for (std::size_t bytes = least; bytes <= most; bytes *= factor) {
    double best_us = 0;
    for (const Algorithm algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
      time_us(job, algorithm, bytes, warmup);
      double mine_us = time_us(job, algorithm, bytes, iterations);
      const float want = static_cast<float>(ranks) * (job.send[0] - static_cast<float>(rank)) +
                         static_cast<float>(ranks * (ranks - 1)) / 2;
      if (job.receive[0] != want) {
        std::fprintf(stderr, "rank %d: %zu bytes: got %g, want %g\n", rank, bytes,
                     static_cast<double>(job.receive[0]), static_cast<double>(want));
        return 1;
      }
      // All ranks choose by rank 0's time: they run the same algorithms anyway.
      if (best_us == 0 || mine_us < best_us) best_us = mine_us;
    }
    if (rank == 0) std::printf("%zu %.3f\n", bytes, best_us);
  }
}
