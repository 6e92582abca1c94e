/* SPDX-License-Identifier: Apache-2.0 */
/* Times one of MPI's collectives on floats by the method of Tutti's perf tools: a barrier, then
 * `iterations` operations back to back that walk through buffers of the largest size, time averaged
 * over ranks. What they will receive into is written before, so that it lies in this rank's caches,
 * as far as it fits, when the clock starts: the perf tools do so too. Out of place; a broadcast has
 * one buffer only, as in place. Prints one line "bytes microseconds" for each size.
 *
 * Usage: mpi_collective collective min_bytes max_bytes factor iterations warmup
 * Built and run by compare_mpi.py; not part of the main build. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives.h"

static int rank, ranks;

/* One operation, at the beginning of a region of both buffers. */
struct call {
  const float* send;
  float* receive;
  int count; /* of the vector, or of one block */
};
typedef void operation(const struct call* c);

static void all_reduce(const struct call* c) {
  MPI_Allreduce(c->send, c->receive, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void reduce(const struct call* c) {
  MPI_Reduce(c->send, c->receive, c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void broadcast(const struct call* c) {
  MPI_Bcast(rank == 0 ? (void*)c->send : c->receive, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void all_gather(const struct call* c) {
  MPI_Allgather(c->send, c->count, MPI_FLOAT, c->receive, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(const struct call* c) {
  MPI_Reduce_scatter_block(c->send, c->receive, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void alltoall(const struct call* c) {
  MPI_Alltoall(c->send, c->count, MPI_FLOAT, c->receive, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void gather(const struct call* c) {
  MPI_Gather(c->send, c->count, MPI_FLOAT, c->receive, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void scatter(const struct call* c) {
  MPI_Scatter(c->send, c->count, MPI_FLOAT, c->receive, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void exchange(const float* send, int to, float* receive, int from, int count) {
  MPI_Sendrecv(send, count, MPI_FLOAT, to, 0, receive, count, MPI_FLOAT, from, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}
static void sendrecv(const struct call* c) {
  exchange(c->send, (rank + 1) % ranks, c->receive, (rank + ranks - 1) % ranks, c->count);
}
/* As hypercube_perf: in stage k a rank exchanges the 2^k blocks that it has with rank ^ 2^k. */
static void hypercube(const struct call* c) {
  memcpy(c->receive + (size_t)rank * (size_t)c->count, c->send, (size_t)c->count * sizeof(float));
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int first = rank & ~(distance - 1);
    exchange(c->receive + (size_t)first * (size_t)c->count, rank ^ distance,
             c->receive + (size_t)(first ^ distance) * (size_t)c->count, rank ^ distance,
             c->count * distance);
  }
}

/* Counts and places of an all-to-all-v, which belong to a size: set before its clock starts. */
static struct { int *sent, *sent_at, *received, *received_at; } blocks;
static void set_blocks(size_t elements) {
  int sent_end = 0, received_end = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    blocks.sent[peer] = (int)block_elements(rank, peer, ranks, elements);
    blocks.sent_at[peer] = sent_end;
    sent_end += blocks.sent[peer];
    blocks.received[peer] = (int)block_elements(peer, rank, ranks, elements);
    blocks.received_at[peer] = received_end;
    received_end += blocks.received[peer];
  }
}
static void alltoallv(const struct call* c) {
  MPI_Alltoallv(c->send, blocks.sent, blocks.sent_at, MPI_FLOAT, c->receive, blocks.received,
                blocks.received_at, MPI_FLOAT, MPI_COMM_WORLD);
}

static operation* const kOperations[COLLECTIVES] = {
    [ALL_REDUCE] = all_reduce, [REDUCE] = reduce,       [BROADCAST] = broadcast,
    [ALL_GATHER] = all_gather, [ALLTOALL] = alltoall,   [REDUCE_SCATTER] = reduce_scatter,
    [ALLTOALLV] = alltoallv,   [GATHER] = gather,       [SCATTER] = scatter,
    [SENDRECV] = sendrecv,     [HYPERCUBE] = hypercube,
};

static double time_us(enum collective kind, const struct call* all, size_t bytes, size_t max_bytes,
                      int iterations) {
  const size_t elements = bytes / sizeof(float), regions = max_bytes / bytes;
  const size_t used = (size_t)iterations < regions ? (size_t)iterations : regions;
  struct call c = {NULL, NULL, (int)count_of(kind, elements, ranks)};
  memset(all->receive, 0, used * bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  size_t region = 0;
  for (int i = 0; i < iterations; ++i) {
    const size_t first = elements * region;
    c.send = all->send + first;
    c.receive = all->receive + first;
    kOperations[kind](&c);
    if (++region == regions) region = 0;
  }
  return (MPI_Wtime() - start) / iterations * 1e6;
}

static void stop(const char* text, const char* word) {
  if (rank == 0) fprintf(stderr, "mpi_collective: %s %s\n", text, word);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static void check(const char* name, enum collective kind, const float* receive, size_t bytes) {
  const struct last_element last = last_of(kind, rank, ranks, bytes / sizeof(float));
  if (!last.received || receive[last.at] == last.value) return;
  fprintf(stderr, "rank %d: %s, %zu bytes: got %g, want %g\n", rank, name, bytes, receive[last.at],
          last.value);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 7) stop("usage:", "mpi_collective collective min max factor iterations warmup");
  const enum collective kind = collective_of(argv[1]);
  if (kind == COLLECTIVES) stop("unknown collective", argv[1]);
  const size_t min_bytes = strtoull(argv[2], NULL, 10), max_bytes = strtoull(argv[3], NULL, 10);
  const size_t factor = strtoull(argv[4], NULL, 10);
  const int iterations = atoi(argv[5]), warmup = atoi(argv[6]);
  float* send = malloc(max_bytes);
  float* receive = malloc(max_bytes);
  int* numbers = malloc(4 * (size_t)ranks * sizeof(int));
  if (send == NULL || receive == NULL || numbers == NULL) stop("out of memory", "");
  blocks.sent = numbers;
  blocks.sent_at = numbers + ranks;
  blocks.received = numbers + 2 * ranks;
  blocks.received_at = numbers + 3 * ranks;
  for (size_t i = 0; i < max_bytes / sizeof(float); ++i) {
    send[i] = input(rank, i);
    receive[i] = 0;
  }
  const struct call all = {send, receive, 0};
  for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
    set_blocks(bytes / sizeof(float));
    time_us(kind, &all, bytes, max_bytes, warmup);
    double mine = time_us(kind, &all, bytes, max_bytes, iterations), total = 0;
    check(argv[1], kind, receive, bytes);
    MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.3f\n", bytes, total / ranks);
  }
  free(numbers);
  free(send);
  free(receive);
  MPI_Finalize();
  return 0;
}
