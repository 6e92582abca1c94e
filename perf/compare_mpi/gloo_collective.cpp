// SPDX-License-Identifier: Apache-2.0
// Times one of Gloo's collectives on floats over its TCP transport by the method of Tutti's perf
// tools, as mpi_collective.c does. Each rank prints a line "bytes microseconds" for each size, with
// its own time, for the fastest of Gloo's ways to run the collective. Ranks meet by files in a
// folder that all of them see.
//
// In mode "thread" a thread of Gloo's moves the messages; a broadcast has one buffer, as in place.
// In mode "poll" the calling thread polls for them (Pair::setSync), which only the classes of
// Gloo's first interface can: these exist for some collectives, and always use the same memory.
//
// Usage: gloo_collective mode collective rank ranks address folder min max factor iterations warmup
// Built and run by compare_mpi.py; not part of the main build.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "collectives.h"

namespace {

struct Job {
  std::shared_ptr<gloo::Context> context;
  collective kind = COLLECTIVES;
  int iterations = 0, warmup = 0;
  std::vector<float> send, receive;
  std::uint32_t tag = 0;

  [[nodiscard]] int rank() const { return context->rank; }
  [[nodiscard]] int ranks() const { return context->size; }
};

// One operation, at the beginning of a region of both buffers.
struct Region {
  float *send, *receive;
  std::size_t elements;  // of all data that were asked for
  std::size_t count;     // of the call: of the vector, or of one block
};

std::size_t all_blocks(const Job& job, const Region& r) {
  return r.count * static_cast<std::size_t>(job.ranks());
}

void sum(void* to, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(to, a, b, count);
}

template <gloo::AllreduceOptions::Algorithm algorithm>
void all_reduce(Job& job, const Region& r) {
  gloo::AllreduceOptions options(job.context);
  options.setAlgorithm(algorithm);
  options.setTag(job.tag++);
  options.setInput(r.send, r.count);
  options.setOutput(r.receive, r.count);
  options.setReduceFunction(sum);
  gloo::allreduce(options);
}

void reduce(Job& job, const Region& r) {
  gloo::ReduceOptions options(job.context);
  options.setRoot(0);
  options.setTag(job.tag++);
  options.setInput(r.send, r.count);
  options.setOutput(r.receive, r.count);
  options.setReduceFunction(sum);
  gloo::reduce(options);
}

void broadcast(Job& job, const Region& r) {
  gloo::BroadcastOptions options(job.context);
  options.setRoot(0);
  options.setTag(job.tag++);
  options.setOutput(job.rank() == 0 ? r.send : r.receive, r.count);
  gloo::broadcast(options);
}

template <class Options, void (*call)(Options&)>
void between_blocks(Job& job, const Region& r, std::size_t sent, std::size_t received) {
  Options options(job.context);
  options.setTag(job.tag++);
  options.setInput(r.send, sent);
  options.setOutput(r.receive, received);
  call(options);
}

void all_gather(Job& job, const Region& r) {
  between_blocks<gloo::AllgatherOptions, gloo::allgather>(job, r, r.count, all_blocks(job, r));
}

void alltoall(Job& job, const Region& r) {
  const std::size_t elements = all_blocks(job, r);
  between_blocks<gloo::AlltoallOptions, gloo::alltoall>(job, r, elements, elements);
}

void alltoallv(Job& job, const Region& r) {
  std::vector<std::int64_t> sent, received;
  for (int peer = 0; peer < job.ranks(); ++peer) {
    const auto elements = [&](int from, int to) {
      return static_cast<std::int64_t>(block_elements(from, to, job.ranks(), r.elements));
    };
    sent.push_back(elements(job.rank(), peer));
    received.push_back(elements(peer, job.rank()));
  }
  gloo::AlltoallvOptions options(job.context);
  options.setTag(job.tag++);
  options.setInput(r.send, std::move(sent));
  options.setOutput(r.receive, std::move(received));
  gloo::alltoallv(options);
}

void gather(Job& job, const Region& r) {
  gloo::GatherOptions options(job.context);
  options.setRoot(0);
  options.setTag(job.tag++);
  options.setInput(r.send, r.count);
  if (job.rank() == 0) options.setOutput(r.receive, all_blocks(job, r));
  gloo::gather(options);
}

void scatter(Job& job, const Region& r) {
  gloo::ScatterOptions options(job.context);
  options.setRoot(0);
  options.setTag(job.tag++);
  std::vector<float*> blocks;
  for (int i = 0; job.rank() == 0 && i < job.ranks(); ++i)
    blocks.push_back(r.send + static_cast<std::size_t>(i) * r.count);
  options.setInputs(blocks, r.count);
  options.setOutput(r.receive, r.count);
  gloo::scatter(options);
}

void exchange(Job& job, float* send, int to, float* receive, int from, std::size_t count) {
  const std::uint64_t slot = job.tag++;
  auto out = job.context->createUnboundBuffer(send, count * sizeof(float));
  auto in = job.context->createUnboundBuffer(receive, count * sizeof(float));
  in->recv(from, slot);
  out->send(to, slot);
  out->waitSend();
  in->waitRecv();
}

void sendrecv(Job& job, const Region& r) {
  const int rank = job.rank(), ranks = job.ranks();
  exchange(job, r.send, (rank + 1) % ranks, r.receive, (rank + ranks - 1) % ranks, r.count);
}

// As hypercube_perf: in stage k a rank exchanges the 2^k blocks that it has with rank ^ 2^k.
void hypercube(Job& job, const Region& r) {
  const auto block = [&](int number) {
    return r.receive + static_cast<std::size_t>(number) * r.count;
  };
  std::copy_n(r.send, r.count, block(job.rank()));
  for (int distance = 1; distance < job.ranks(); distance *= 2) {
    const int first = job.rank() & ~(distance - 1), peer = job.rank() ^ distance;
    exchange(job, block(first), peer, block(first ^ distance), peer,
             r.count * static_cast<std::size_t>(distance));
  }
}

// The ways of mode "thread".
struct Operation {
  collective kind;
  void (*run)(Job&, const Region&);
};
constexpr Operation kOperations[] = {
    {ALL_REDUCE, all_reduce<gloo::AllreduceOptions::Algorithm::RING>},
    {ALL_REDUCE, all_reduce<gloo::AllreduceOptions::Algorithm::BCUBE>},
    {REDUCE, reduce},
    {BROADCAST, broadcast},
    {ALL_GATHER, all_gather},
    {ALLTOALL, alltoall},
    {ALLTOALLV, alltoallv},
    {GATHER, gather},
    {SCATTER, scatter},
    {SENDRECV, sendrecv},
    {HYPERCUBE, hypercube},
};

// The ways of mode "poll": each object serves one place.
using Object = std::unique_ptr<gloo::Algorithm>;
struct Class {
  collective kind;
  Object (*make)(Job&, const Region&);
};
constexpr Class kClasses[] = {
    {ALL_REDUCE,
     [](Job& job, const Region& r) -> Object {
       return std::make_unique<gloo::AllreduceRingChunked<float>>(
           job.context, std::vector<float*>{r.receive}, static_cast<int>(r.count));
     }},
    {ALL_REDUCE,
     [](Job& job, const Region& r) -> Object {
       return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
           job.context, std::vector<float*>{r.receive}, static_cast<int>(r.count));
     }},
    {BROADCAST,
     [](Job& job, const Region& r) -> Object {
       return std::make_unique<gloo::BroadcastOneToAll<float>>(
           job.context, std::vector<float*>{r.receive}, r.count);
     }},
    {ALL_GATHER,
     [](Job& job, const Region& r) -> Object {
       return std::make_unique<gloo::AllgatherRing<float>>(
           job.context, std::vector<const float*>{r.send}, r.receive, static_cast<int>(r.count));
     }},
    {REDUCE_SCATTER,
     [](Job& job, const Region& r) -> Object {
       const std::vector<int> counts(static_cast<std::size_t>(job.ranks()),
                                     static_cast<int>(r.count));
       return std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
           job.context, std::vector<float*>{r.receive}, static_cast<int>(all_blocks(job, r)),
           counts);
     }},
};

bool is_right(const Job& job, std::size_t elements) {
  const last_element last = last_of(job.kind, job.rank(), job.ranks(), elements);
  if (!last.received || job.receive[last.at] == last.value) return true;
  std::fprintf(stderr, "rank %d: %zu elements: got %g, want %g\n", job.rank(), elements,
               static_cast<double>(job.receive[last.at]), static_cast<double>(last.value));
  return false;
}

double us_each(std::chrono::steady_clock::time_point start, int iterations) {
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / iterations;
}

double run_operation(Job& job, const Operation& operation, std::size_t elements, int iterations) {
  const std::size_t regions = job.send.size() / elements;
  const std::size_t used = std::min(static_cast<std::size_t>(iterations), regions);
  std::fill_n(job.receive.begin(), used * elements, 0.0F);  // into the caches, as the perf tools do
  gloo::BarrierOptions barrier(job.context);
  barrier.setTag(job.tag++);
  gloo::barrier(barrier);
  const std::size_t count = count_of(job.kind, elements, job.ranks());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) {
    const std::size_t first = elements * (static_cast<std::size_t>(i) % regions);
    operation.run(job, {job.send.data() + first, job.receive.data() + first, elements, count});
  }
  return us_each(start, iterations);
}

// The measurements return microseconds; 0 for a wrong result.
double measure(Job& job, const Operation& operation, std::size_t elements) {
  run_operation(job, operation, elements, job.warmup);
  const double mine_us = run_operation(job, operation, elements, job.iterations);
  return is_right(job, elements) ? mine_us : 0;
}

// Sums that are timed are of zeros, since each is the input of the next.
double measure(Job& job, const Class& kind, gloo::Algorithm& barrier, std::size_t elements) {
  const Region region{job.send.data(), job.receive.data(), elements,
                      count_of(job.kind, elements, job.ranks())};
  const Object object = kind.make(job, region);
  std::copy_n(job.send.begin(), elements, job.receive.begin());
  barrier.run();
  object->run();
  if (!is_right(job, elements)) return 0;
  std::fill_n(job.receive.begin(), elements, 0.0F);
  for (int i = 0; i < job.warmup; ++i) object->run();
  barrier.run();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < job.iterations; ++i) object->run();
  const double took_us = us_each(start, job.iterations);
  barrier.run();  // nobody takes its buffers away before all have ended
  return took_us;
}

// Gloo's ways to run a collective, as functions from elements to microseconds.
using Ways = std::vector<std::function<double(std::size_t)>>;

Ways ways_with_thread(Job& job) {
  Ways ways;
  for (const Operation& o : kOperations)
    if (o.kind == job.kind) ways.push_back([&](std::size_t n) { return measure(job, o, n); });
  return ways;
}

Ways ways_that_poll(Job& job) {
  for (int peer = 0; peer < job.ranks(); ++peer)
    if (peer != job.rank()) job.context->getPair(peer)->setSync(true, true);
  const auto barrier = std::make_shared<gloo::BarrierAllToAll>(job.context);
  Ways ways;
  for (const Class& c : kClasses)
    if (c.kind == job.kind)
      ways.push_back([&job, &c, barrier](std::size_t n) { return measure(job, c, *barrier, n); });
  return ways;
}

std::shared_ptr<gloo::Context> meet(int rank, int ranks, const char* address, const char* folder) {
  gloo::transport::tcp::attr place;
  place.hostname = address;
  auto device = gloo::transport::tcp::CreateDevice(place);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return context;
}

}  // namespace

int main(int argc, char** argv) {
  const bool polls = argc > 1 && std::strcmp(argv[1], "poll") == 0;
  Job job;
  if (argc == 12) job.kind = collective_of(argv[2]);
  if (job.kind == COLLECTIVES || (!polls && std::strcmp(argv[1], "thread") != 0)) {
    std::fprintf(stderr,
                 "usage: %s thread|poll collective rank ranks address folder min max factor "
                 "iterations warmup\n",
                 argv[0]);
    return 2;
  }
  const std::size_t least = std::strtoull(argv[7], nullptr, 10);
  const std::size_t most = std::strtoull(argv[8], nullptr, 10);
  const std::size_t factor = std::strtoull(argv[9], nullptr, 10);
  job.iterations = std::atoi(argv[10]);
  job.warmup = std::atoi(argv[11]);
  job.context = meet(std::atoi(argv[3]), std::atoi(argv[4]), argv[5], argv[6]);
  for (std::size_t i = 0; i < most / sizeof(float); ++i) job.send.push_back(input(job.rank(), i));
  job.receive.resize(job.send.size());
  const Ways ways = polls ? ways_that_poll(job) : ways_with_thread(job);
  if (ways.empty()) {
    std::fprintf(stderr, "%s: Gloo has no %s in mode %s\n", argv[0], argv[2], argv[1]);
    return 2;
  }
  for (std::size_t bytes = least; bytes <= most; bytes *= factor) {
    double best_us = 0;
    for (const auto& way : ways) {
      const double mine_us = way(bytes / sizeof(float));
      if (mine_us == 0) return 1;
      if (best_us == 0 || mine_us < best_us) best_us = mine_us;
    }
    std::printf("%zu %.3f\n", bytes, best_us);
  }
}
