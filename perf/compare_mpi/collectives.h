/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs beside Tutti have in common, in C and C++: which collectives there are, what a
 * rank sends, and what it must have received. Elements are floats, sums are sums, the root is rank
 * 0. A size is that of the whole data, as in nccl-tests: where each rank has a block, of all blocks
 * together. */
#pragma once

#include <stddef.h>
#include <string.h>

enum collective {
  ALL_REDUCE,
  REDUCE,
  BROADCAST,
  ALL_GATHER,
  REDUCE_SCATTER,
  ALLTOALL,
  ALLTOALLV,
  GATHER,
  SCATTER,
  SENDRECV,
  HYPERCUBE,
  COLLECTIVES
};

/* The collective of a name as compare_mpi.py has it; COLLECTIVES: there is none. */
static inline enum collective collective_of(const char* name) {
  static const char* const kNames[COLLECTIVES] = {
      "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "alltoall",
      "alltoallv",  "gather", "scatter",   "sendrecv",   "hypercube"};
  int found = 0;
  while (found < COLLECTIVES && strcmp(kNames[found], name) != 0) ++found;
  return (enum collective)found;
}

/* The count of a call whose data are so many elements: of all, or of one block. */
static inline size_t count_of(enum collective c, size_t elements, int ranks) {
  const int whole = c == ALL_REDUCE || c == REDUCE || c == BROADCAST || c == SENDRECV;
  return whole ? elements : elements / (size_t)ranks;
}

/* The elements that rank `from` sends to rank `to` in an all-to-all-v of so many elements: the
 * blocks that alltoallv_perf has by default (perf/common/traffic.hpp). */
static inline size_t block_elements(int from, int to, int ranks, size_t elements) {
  const double distances = (double)ranks * (ranks - 1) / 2;
  const double bytes = (to - from + ranks) % ranks * (double)(elements * sizeof(float));
  return ranks == 1 ? elements / 4 * 4 : (size_t)(bytes / distances) / 16 * 4;
}

/* Element `index` of what a rank sends, and of the sum over all ranks. */
static inline float input(int of_rank, size_t index) {
  return (float)(index % 251) + (float)of_rank;
}
static inline float sum_of_inputs(int ranks, size_t index) {
  return (float)ranks * (float)(index % 251) + (float)(ranks * (ranks - 1)) / 2;
}

/* Where the last element lies that a rank receives, and what it must be. */
struct last_element {
  int received; /* 0: it receives nothing */
  size_t at;
  float value;
};

static inline struct last_element last_of_alltoallv(int rank, int ranks, size_t elements) {
  struct last_element last = {0, 0, 0};
  size_t end = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const size_t count = block_elements(peer, rank, ranks, elements);
    end += count;
    if (count == 0) continue;
    size_t origin = 0;
    for (int to = 0; to < rank; ++to) origin += block_elements(peer, to, ranks, elements);
    last.received = 1;
    last.at = end - 1;
    last.value = input(peer, origin + count - 1);
  }
  return last;
}

static inline struct last_element last_of(enum collective c, int rank, int ranks, size_t elements) {
  const size_t count = count_of(c, elements, ranks), own_end = (size_t)rank * count + count - 1;
  struct last_element last = {1, count - 1, 0};
  switch (c) {
    case ALL_REDUCE:
    case REDUCE:
      last.received = c == ALL_REDUCE || rank == 0;
      last.value = sum_of_inputs(ranks, count - 1);
      break;
    case REDUCE_SCATTER:
      last.value = sum_of_inputs(ranks, own_end);
      break;
    case BROADCAST:
      last.received = rank != 0;
      last.value = input(0, count - 1);
      break;
    case SCATTER:
      last.value = input(0, own_end);
      break;
    case SENDRECV:
      last.value = input((rank + ranks - 1) % ranks, count - 1);
      break;
    case ALL_GATHER:
    case HYPERCUBE:
    case GATHER:
      last.received = c != GATHER || rank == 0;
      last.at = count * (size_t)ranks - 1;
      last.value = input(ranks - 1, count - 1);
      break;
    case ALLTOALL:
      last.at = count * (size_t)ranks - 1;
      last.value = input(ranks - 1, own_end);
      break;
    default:
      return last_of_alltoallv(rank, ranks, elements);
  }
  return last;
}
