// SPDX-License-Identifier: Apache-2.0
// Times gloo::allreduce of float sums over Gloo's TCP transport by the method of all_reduce_perf,
// as mpi_collective.c does. A line "bytes microseconds" for each size has the faster of two
// algorithms. Ranks meet by files in a folder that all of them see.
//
// In mode "thread" a thread of Gloo's moves the messages, out of place. In mode "poll" the calling
// thread polls for them (Pair::setSync), which only the classes of Gloo's first interface can:
// these are in place, and always use the same memory.
//
// Usage: gloo_all_reduce mode rank ranks address folder min max factor iterations warmup
// Built and run by compare_mpi.py; not part of the main build.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

double seconds_to_us(std::chrono::steady_clock::duration took, int iterations) {
  return std::chrono::duration<double, std::micro>(took).count() / iterations;
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
  return seconds_to_us(std::chrono::steady_clock::now() - start, iterations);
}

// The first element of a sum over all ranks.
float wanted(const Job& job) {
  const int rank = job.context->rank, ranks = job.context->size;
  return static_cast<float>(ranks) * (job.send[0] - static_cast<float>(rank)) +
         static_cast<float>(ranks * (ranks - 1)) / 2;
}

bool is_right(const Job& job, std::size_t bytes) {
  if (job.receive[0] == wanted(job)) return true;
  std::fprintf(stderr, "rank %d: %zu bytes: got %g, want %g\n", job.context->rank, bytes,
               static_cast<double>(job.receive[0]), static_cast<double>(wanted(job)));
  return false;
}

// Mode "thread"; 0 for a wrong result. All ranks run the same algorithms, and rank 0's times count.
double measure_with_thread(Job& job, std::size_t bytes, int iterations, int warmup) {
  double best_us = 0;
  for (const Algorithm algorithm : {Algorithm::RING, Algorithm::BCUBE}) {
    time_us(job, algorithm, bytes, warmup);
    const double mine_us = time_us(job, algorithm, bytes, iterations);
    if (!is_right(job, bytes)) return 0;
    if (best_us == 0 || mine_us < best_us) best_us = mine_us;
  }
  return best_us;
}

// Mode "poll". The timed sums are of zeros, since each is the input of the next.
template <class Class>
double time_polling_us(Job& job, gloo::Algorithm& barrier, std::size_t bytes, int iterations,
                       int warmup) {
  const std::size_t count = bytes / sizeof(float);
  Class all_reduce(job.context, {job.receive.data()}, static_cast<int>(count));
  std::copy_n(job.send.begin(), count, job.receive.begin());
  barrier.run();
  all_reduce.run();
  if (!is_right(job, bytes)) return 0;
  std::fill_n(job.receive.begin(), count, 0.0F);
  for (int i = 0; i < warmup; ++i) all_reduce.run();
  barrier.run();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) all_reduce.run();
  const double took_us = seconds_to_us(std::chrono::steady_clock::now() - start, iterations);
  barrier.run();  // nobody takes its buffers away before all have ended
  return took_us;
}

double measure_polling(Job& job, gloo::Algorithm& barrier, std::size_t bytes, int iterations,
                       int warmup) {
  const double ring_us =
      time_polling_us<gloo::AllreduceRingChunked<float>>(job, barrier, bytes, iterations, warmup);
  const double halving_us = time_polling_us<gloo::AllreduceHalvingDoubling<float>>(
      job, barrier, bytes, iterations, warmup);
  return std::min(ring_us, halving_us);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11 || (std::strcmp(argv[1], "thread") != 0 && std::strcmp(argv[1], "poll") != 0)) {
    std::fprintf(stderr,
                 "usage: %s thread|poll rank ranks address folder min max factor iterations "
                 "warmup\n",
                 argv[0]);
    return 2;
  }
  const bool polls = std::strcmp(argv[1], "poll") == 0;
  const int rank = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
  const std::size_t least = std::strtoull(argv[6], nullptr, 10);
  const std::size_t most = std::strtoull(argv[7], nullptr, 10);
  const std::size_t factor = std::strtoull(argv[8], nullptr, 10);
  const int iterations = std::atoi(argv[9]), warmup = std::atoi(argv[10]);

  gloo::transport::tcp::attr place;
  place.hostname = argv[4];
  auto device = gloo::transport::tcp::CreateDevice(place);
  gloo::rendezvous::FileStore store(argv[5]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);

  Job job{.context = context};
  for (std::size_t i = 0; i < most / sizeof(float); ++i)
    job.send.push_back(static_cast<float>(i % 251) + static_cast<float>(rank));
  job.receive.resize(job.send.size());
  std::unique_ptr<gloo::Algorithm> barrier;
  if (polls) {
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) context->getPair(peer)->setSync(true, true);
    barrier = std::make_unique<gloo::BarrierAllToAll>(context);
  }
  for (std::size_t bytes = least; bytes <= most; bytes *= factor) {
    const double best_us = polls ? measure_polling(job, *barrier, bytes, iterations, warmup)
                                 : measure_with_thread(job, bytes, iterations, warmup);
    if (best_us == 0) return 1;
    if (rank == 0) std::printf("%zu %.3f\n", bytes, best_us);
  }
}
