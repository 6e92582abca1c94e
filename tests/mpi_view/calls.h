/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the program (program.c), which has two back ends: MPI (calls_mpi.c) and Tutti
 * (calls_tutti.c). Counts are in elements. Buffers coincide as in tutti.h: what MPI_IN_PLACE says
 * is said by equal pointers. An error ends the process with a message. One thread. */
#ifndef TUTTI_TESTS_MPI_VIEW_CALLS_H_
#define TUTTI_TESTS_MPI_VIEW_CALLS_H_

#include <stddef.h>
#include <stdint.h>

enum type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat, kDouble, kTypes };
enum op {
  kSum,
  kProd,
  kMax,
  kMin,
  kBitAnd,
  kBitOr,
  kBitXor,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kCompose, /* compose() below: does not commute */
  kLarger,  /* larger() below: commutes          */
  kOps
};
enum { kMaxRanks = 6, kNoColor = -1 };

/* A communicator of the back end. */
struct comm;

/* The two operations of the program, on kUint64: upper[i] = lower[i] op upper[i]. */
void compose(const uint64_t* lower, uint64_t* upper, size_t count);
void larger(const uint64_t* lower, uint64_t* upper, size_t count);

/* The communicator of all ranks; end() comes last. */
struct comm* begin(void);
void end(struct comm* world);
/* NULL for kNoColor. */
struct comm* split(struct comm* from, int color, int key);
void release(struct comm* c);
int rank_of(const struct comm* c);
int ranks_of(const struct comm* c);

void all_reduce(const void* in, void* out, size_t count, enum type type, enum op op,
                struct comm* c);
void reduce(const void* in, void* out, size_t count, enum type type, enum op op, int root,
            struct comm* c);
void broadcast(const void* in, void* out, size_t count, enum type type, int root, struct comm* c);
/* These two return where the result lies: `out`, or, as NULL says in place, a part of `in`. The
 * libraries put it elsewhere: MPI at the beginning, Tutti into the own block. */
const void* reduce_scatter(void* in, void* out, size_t count, enum type type, enum op op,
                           struct comm* c);
const void* reduce_scatter_v(void* in, const size_t* counts, void* out, enum type type, enum op op,
                             struct comm* c);
void all_gather(const void* in, void* out, size_t count, enum type type, struct comm* c);
void all_gather_v(const void* in, void* out, const size_t* counts, const size_t* displs,
                  enum type type, struct comm* c);
void all_to_all(const void* in, void* out, size_t count, enum type type, struct comm* c);
void all_to_all_v(const void* in, const size_t* in_counts, const size_t* in_displs, void* out,
                  const size_t* out_counts, const size_t* out_displs, enum type type,
                  struct comm* c);
void gather(const void* in, void* out, size_t count, enum type type, int root, struct comm* c);
void gather_v(const void* in, void* out, const size_t* counts, const size_t* displs, enum type type,
              int root, struct comm* c);
void scatter(const void* in, void* out, size_t count, enum type type, int root, struct comm* c);
void scatter_v(const void* in, const size_t* counts, const size_t* displs, void* out,
               enum type type, int root, struct comm* c);
void barrier(struct comm* c);
void send_to(const void* in, size_t count, enum type type, int peer, struct comm* c);
void receive_from(void* out, size_t count, enum type type, int peer, struct comm* c);
/* A send and a receive at the same time. */
void exchange(const void* in, int to, void* out, int from, size_t count, enum type type,
              struct comm* c);

#endif /* TUTTI_TESTS_MPI_VIEW_CALLS_H_ */
