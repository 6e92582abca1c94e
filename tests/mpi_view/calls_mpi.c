/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the program by MPI. Errors: MPI's own handler ends the job. Built by
 * mpi_view_test.py with Open MPI's compiler; not part of the main build. */
#include <mpi.h>
#include <stdlib.h>

#include "calls.h"

struct comm {
  MPI_Comm mpi;
  int rank, ranks;
};

static MPI_Op made[2];

static MPI_Datatype mpi_type(enum type type) {
  const MPI_Datatype types[kTypes] = {MPI_INT8_T,  MPI_UINT8_T,  MPI_INT32_T, MPI_UINT32_T,
                                      MPI_INT64_T, MPI_UINT64_T, MPI_FLOAT,   MPI_DOUBLE};
  return types[type];
}

static MPI_Op mpi_op(enum op op) {
  const MPI_Op ops[kOps] = {MPI_SUM,  MPI_PROD, MPI_MAX, MPI_MIN,  MPI_BAND, MPI_BOR,
                            MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR, made[0],  made[1]};
  return ops[op];
}

static size_t bytes_of(enum type type) {
  int bytes = 0;
  MPI_Type_size(mpi_type(type), &bytes);
  return (size_t)bytes;
}

static char* element(void* at, enum type type, size_t index) {
  return (char*)at + index * bytes_of(type);
}

/* MPI's counts and displacements are ints. */
struct ints {
  int at[kMaxRanks];
};
static struct ints ints_of(const size_t* numbers, const struct comm* c) {
  struct ints result = {{0}};
  for (int r = 0; r < c->ranks; ++r) result.at[r] = (int)numbers[r];
  return result;
}

static void compose_mpi(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  compose(in, inout, (size_t)*count);
}
static void larger_mpi(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  larger(in, inout, (size_t)*count);
}

static struct comm* hold(MPI_Comm mpi) {
  struct comm* c = malloc(sizeof(*c));
  if (c == NULL) abort();
  c->mpi = mpi;
  MPI_Comm_rank(mpi, &c->rank);
  MPI_Comm_size(mpi, &c->ranks);
  return c;
}

struct comm* begin(void) {
  MPI_Init(NULL, NULL);
  MPI_Op_create(compose_mpi, 0, &made[0]);
  MPI_Op_create(larger_mpi, 1, &made[1]);
  return hold(MPI_COMM_WORLD);
}

void end(struct comm* world) {
  free(world);
  MPI_Op_free(&made[0]);
  MPI_Op_free(&made[1]);
  MPI_Finalize();
}

struct comm* split(struct comm* from, int color, int key) {
  MPI_Comm mpi;
  MPI_Comm_split(from->mpi, color == kNoColor ? MPI_UNDEFINED : color, key, &mpi);
  return mpi == MPI_COMM_NULL ? NULL : hold(mpi);
}

void release(struct comm* c) {
  MPI_Comm_free(&c->mpi);
  free(c);
}

int rank_of(const struct comm* c) { return c->rank; }
int ranks_of(const struct comm* c) { return c->ranks; }

void all_reduce(const void* in, void* out, size_t count, enum type type, enum op op,
                struct comm* c) {
  MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)count, mpi_type(type), mpi_op(op), c->mpi);
}

void reduce(const void* in, void* out, size_t count, enum type type, enum op op, int root,
            struct comm* c) {
  MPI_Reduce(in == out ? MPI_IN_PLACE : in, out, (int)count, mpi_type(type), mpi_op(op), root,
             c->mpi);
}

void broadcast(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  /* MPI has the one in place: of two buffers the root's other one gets a copy. */
  if (c->rank == root && in != out)
    for (size_t i = 0; i < count * bytes_of(type); ++i) ((char*)out)[i] = ((const char*)in)[i];
  MPI_Bcast(out, (int)count, mpi_type(type), root, c->mpi);
}

const void* reduce_scatter(void* in, void* out, size_t count, enum type type, enum op op,
                           struct comm* c) {
  void* result = out == NULL ? in : out;
  MPI_Reduce_scatter_block(out == NULL ? MPI_IN_PLACE : in, result, (int)count, mpi_type(type),
                           mpi_op(op), c->mpi);
  return result;
}

const void* reduce_scatter_v(void* in, const size_t* counts, void* out, enum type type, enum op op,
                             struct comm* c) {
  void* result = out == NULL ? in : out;
  MPI_Reduce_scatter(out == NULL ? MPI_IN_PLACE : in, result, ints_of(counts, c).at, mpi_type(type),
                     mpi_op(op), c->mpi);
  return result;
}

void all_gather(const void* in, void* out, size_t count, enum type type, struct comm* c) {
  const int in_place = in == element(out, type, (size_t)c->rank * count);
  MPI_Allgather(in_place ? MPI_IN_PLACE : in, (int)count, mpi_type(type), out, (int)count,
                mpi_type(type), c->mpi);
}

void all_gather_v(const void* in, void* out, const size_t* counts, const size_t* displs,
                  enum type type, struct comm* c) {
  const int in_place = in == element(out, type, displs[c->rank]);
  MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, (int)counts[c->rank], mpi_type(type), out,
                 ints_of(counts, c).at, ints_of(displs, c).at, mpi_type(type), c->mpi);
}

void all_to_all(const void* in, void* out, size_t count, enum type type, struct comm* c) {
  MPI_Alltoall(in == out ? MPI_IN_PLACE : in, (int)count, mpi_type(type), out, (int)count,
               mpi_type(type), c->mpi);
}

void all_to_all_v(const void* in, const size_t* in_counts, const size_t* in_displs, void* out,
                  const size_t* out_counts, const size_t* out_displs, enum type type,
                  struct comm* c) {
  MPI_Alltoallv(in, ints_of(in_counts, c).at, ints_of(in_displs, c).at, mpi_type(type), out,
                ints_of(out_counts, c).at, ints_of(out_displs, c).at, mpi_type(type), c->mpi);
}

void gather(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  const int in_place = c->rank == root && in == element(out, type, (size_t)root * count);
  MPI_Gather(in_place ? MPI_IN_PLACE : in, (int)count, mpi_type(type), out, (int)count,
             mpi_type(type), root, c->mpi);
}

void gather_v(const void* in, void* out, const size_t* counts, const size_t* displs, enum type type,
              int root, struct comm* c) {
  const int in_place = c->rank == root && in == element(out, type, displs[root]);
  MPI_Gatherv(in_place ? MPI_IN_PLACE : in, (int)counts[c->rank], mpi_type(type), out,
              ints_of(counts, c).at, ints_of(displs, c).at, mpi_type(type), root, c->mpi);
}

void scatter(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  const int in_place = c->rank == root && out == element((void*)in, type, (size_t)root * count);
  MPI_Scatter(in, (int)count, mpi_type(type), in_place ? MPI_IN_PLACE : out, (int)count,
              mpi_type(type), root, c->mpi);
}

void scatter_v(const void* in, const size_t* counts, const size_t* displs, void* out,
               enum type type, int root, struct comm* c) {
  const int in_place = c->rank == root && out == element((void*)in, type, displs[root]);
  MPI_Scatterv(in, ints_of(counts, c).at, ints_of(displs, c).at, mpi_type(type),
               in_place ? MPI_IN_PLACE : out, (int)counts[c->rank], mpi_type(type), root, c->mpi);
}

void barrier(struct comm* c) { MPI_Barrier(c->mpi); }

void send_to(const void* in, size_t count, enum type type, int peer, struct comm* c) {
  MPI_Send(in, (int)count, mpi_type(type), peer, 0, c->mpi);
}

void receive_from(void* out, size_t count, enum type type, int peer, struct comm* c) {
  MPI_Recv(out, (int)count, mpi_type(type), peer, 0, c->mpi, MPI_STATUS_IGNORE);
}

void exchange(const void* in, int to, void* out, int from, size_t count, enum type type,
              struct comm* c) {
  MPI_Sendrecv(in, (int)count, mpi_type(type), to, 0, out, (int)count, mpi_type(type), from, 0,
               c->mpi, MPI_STATUS_IGNORE);
}
