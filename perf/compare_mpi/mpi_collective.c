/* SPDX-License-Identifier: Apache-2.0 */
/* Times one of MPI's collectives on floats by the method of Tutti's perf tools: a barrier, then
 * `iterations` operations back to back that walk through buffers of the largest size, time averaged
 * over ranks. What they will receive into is written before, so that it lies in this rank's caches,
 * as far as it fits, when the clock starts: the perf tools do so too. Reductions are sums, the root
 * is rank 0. Out of place; a broadcast has one buffer only, as in place. A size is that of the
 * whole data, as in nccl-tests: of all blocks together. Prints one line "bytes microseconds" for
 * each.
 *
 * Usage: mpi_collective collective min_bytes max_bytes factor iterations warmup
 * Built and run by compare_mpi.py; not part of the main build. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void sendrecv(const struct call* c) {
  MPI_Sendrecv(c->send, c->count, MPI_FLOAT, (rank + 1) % ranks, 0, c->receive, c->count, MPI_FLOAT,
               (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Element `index` of what a rank sends, and of the sum over all ranks. */
static float input(int of_rank, size_t index) { return (float)(index % 251) + (float)of_rank; }
static float sum(size_t index) {
  return (float)ranks * (float)(index % 251) + (float)(ranks * (ranks - 1)) / 2;
}

static const struct row {
  const char* name;
  operation* run;
  int blocks;  /* the size counts one block for each rank */
  int many_in; /* a rank receives all blocks, and sends one */
} kRows[] = {
    {"all_reduce", all_reduce, 0, 0},
    {"reduce", reduce, 0, 0},
    {"broadcast", broadcast, 0, 0},
    {"all_gather", all_gather, 1, 1},
    {"reduce_scatter", reduce_scatter, 1, 0},
    {"alltoall", alltoall, 1, 1},
    {"gather", gather, 1, 1},
    {"scatter", scatter, 1, 0},
    {"sendrecv", sendrecv, 0, 0},
};

/* Returns what the last element that this rank received in the first region must be; `got` where
 * it received nothing. */
static float wanted(const struct row* row, size_t count, float got) {
  const size_t end = count - 1, own_end = (size_t)rank * count + end;
  if (row->run == all_reduce || (row->run == reduce && rank == 0)) return sum(end);
  if (row->run == broadcast && rank != 0) return input(0, end);
  if (row->run == all_gather || (row->run == gather && rank == 0)) return input(ranks - 1, end);
  if (row->run == reduce_scatter) return sum(own_end);
  if (row->run == alltoall) return input(ranks - 1, own_end);
  if (row->run == scatter) return input(0, own_end);
  if (row->run == sendrecv) return input((rank + ranks - 1) % ranks, end);
  return got;
}

static double time_size(const struct row* row, const struct call* all, size_t bytes,
                        size_t max_bytes, int iterations) {
  const size_t elements = bytes / sizeof(float), regions = max_bytes / bytes;
  const size_t used = (size_t)iterations < regions ? (size_t)iterations : regions;
  struct call c = {NULL, NULL, (int)(row->blocks ? elements / (size_t)ranks : elements)};
  memset(all->receive, 0, used * bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) {
    const size_t first = elements * ((size_t)i % regions);
    c.send = all->send + first;
    c.receive = all->receive + first;
    row->run(&c);
  }
  return (MPI_Wtime() - start) / iterations * 1e6;
}

static void stop(const char* text, const char* word) {
  if (rank == 0) fprintf(stderr, "mpi_collective: %s %s\n", text, word);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 7) stop("usage:", "mpi_collective collective min max factor iterations warmup");
  const struct row* row = NULL;
  for (size_t i = 0; i < sizeof(kRows) / sizeof(kRows[0]); ++i)
    if (strcmp(kRows[i].name, argv[1]) == 0) row = &kRows[i];
  if (row == NULL) stop("unknown collective", argv[1]);
  const size_t min_bytes = strtoull(argv[2], NULL, 10), max_bytes = strtoull(argv[3], NULL, 10);
  const size_t factor = strtoull(argv[4], NULL, 10);
  const int iterations = atoi(argv[5]), warmup = atoi(argv[6]);
  float* send = malloc(max_bytes);
  float* receive = malloc(max_bytes);
  if (send == NULL || receive == NULL) stop("out of memory", "");
  for (size_t i = 0; i < max_bytes / sizeof(float); ++i) {
    send[i] = input(rank, i);
    receive[i] = 0;
  }
  const struct call all = {send, receive, 0};
  for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
    time_size(row, &all, bytes, max_bytes, warmup);
    double mine = time_size(row, &all, bytes, max_bytes, iterations), total = 0;
    const size_t elements = bytes / sizeof(float);
    const size_t count = row->blocks ? elements / (size_t)ranks : elements;
    const float got = receive[(row->many_in ? count * (size_t)ranks : count) - 1];
    const float want = wanted(row, count, got);
    if (got != want) {
      fprintf(stderr, "rank %d: %s, %zu bytes: got %g, want %g\n", rank, row->name, bytes, got,
              want);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.3f\n", bytes, total / ranks);
  }
  free(send);
  free(receive);
  MPI_Finalize();
  return 0;
}
