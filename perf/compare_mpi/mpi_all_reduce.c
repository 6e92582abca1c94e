/* SPDX-License-Identifier: Apache-2.0 */
/* Times MPI_Allreduce of float sums by the method of all_reduce_perf: a barrier, then `iterations`
 * operations back to back that walk through buffers of the largest size, time averaged over ranks.
 * What they will receive into is written before, so that it lies in this rank's caches, as far as
 * it fits, when the clock starts: all_reduce_perf does so too. Out-of-place. Prints one line "bytes
 * microseconds" for each size.
 *
 * Usage: mpi_all_reduce min_bytes max_bytes factor iterations warmup
 * Built and run by compare_mpi.py; not part of the main build. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double time_size(const float* send, float* receive, size_t bytes, size_t max_bytes,
                        int iterations) {
  const size_t count = bytes / sizeof(float), regions = max_bytes / bytes;
  const size_t used = (size_t)iterations < regions ? (size_t)iterations : regions;
  memset(receive, 0, used * bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) {
    const size_t first = count * ((size_t)i % regions);
    MPI_Allreduce(send + first, receive + first, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  return (MPI_Wtime() - start) / iterations * 1e6;
}

int main(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 6) {
    if (rank == 0) fprintf(stderr, "usage: %s min max factor iterations warmup\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const size_t min_bytes = strtoull(argv[1], NULL, 10), max_bytes = strtoull(argv[2], NULL, 10);
  const size_t factor = strtoull(argv[3], NULL, 10);
  const int iterations = atoi(argv[4]), warmup = atoi(argv[5]);
  float* send = malloc(max_bytes);
  float* receive = malloc(max_bytes);
  if (send == NULL || receive == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < max_bytes / sizeof(float); ++i) {
    send[i] = (float)(i % 251) + (float)rank;
    receive[i] = 0;
  }
  for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
    time_size(send, receive, bytes, max_bytes, warmup);
    double mine = time_size(send, receive, bytes, max_bytes, iterations), sum = 0;
    const float want =
        (float)ranks * send[0] + (float)(ranks * (ranks - 1)) / 2 - (float)ranks * (float)rank;
    if (receive[0] != want) {
      fprintf(stderr, "rank %d: %zu bytes: got %g, want %g\n", rank, bytes, receive[0], want);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.3f\n", bytes, sum / ranks);
  }
  free(send);
  free(receive);
  MPI_Finalize();
  return 0;
}
