/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the program by Tutti, in a job of whatever launcher has started the process. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/user_op.h>

#include "calls.h"

struct comm {
  tuttiComm_t tutti;
  int rank, ranks;
  tuttiRedOp_t ops[kOps];
};

static const tuttiDataType_t kTuttiTypes[kTypes] = {tuttiInt8,   tuttiUint8, tuttiInt32,
                                                    tuttiUint32, tuttiInt64, tuttiUint64,
                                                    tuttiFloat,  tuttiDouble};
static const size_t kTypeBytes[kTypes] = {1, 1, 4, 4, 8, 8, 4, 8};
static const tuttiRedOp_t kTuttiOps[kCompose] = {
    tuttiSum,   tuttiProd,   tuttiMax,        tuttiMin,       tuttiBitAnd,
    tuttiBitOr, tuttiBitXor, tuttiLogicalAnd, tuttiLogicalOr, tuttiLogicalXor};

static void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  fprintf(stderr, "%s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(NULL));
  exit(1);
}

static void compose_tutti(const void* in, void* inout, size_t count, tuttiDataType_t type,
                          void* context) {
  (void)type, (void)context;
  compose(in, inout, count);
}
static void larger_tutti(const void* in, void* inout, size_t count, tuttiDataType_t type,
                         void* context) {
  (void)type, (void)context;
  larger(in, inout, count);
}

static struct comm* hold(tuttiComm_t tutti) {
  struct comm* c = malloc(sizeof(*c));
  if (c == NULL) abort();
  c->tutti = tutti;
  check(tuttiCommUserRank(tutti, &c->rank));
  check(tuttiCommCount(tutti, &c->ranks));
  for (int op = 0; op < kCompose; ++op) c->ops[op] = kTuttiOps[op];
  check(tuttiRedOpCreateUser(&c->ops[kCompose], compose_tutti, NULL, 0, tutti));
  check(tuttiRedOpCreateUser(&c->ops[kLarger], larger_tutti, NULL, 1, tutti));
  return c;
}

struct comm* begin(void) {
  tuttiLauncher_t job = TUTTI_LAUNCHER_INITIALIZER;
  tuttiUniqueId id;
  tuttiComm_t tutti;
  check(tuttiGetLauncher(&job));
  check(tuttiGetLauncherUniqueId(&id));
  check(tuttiCommInitRank(&tutti, job.nRanks, id, job.rank));
  return hold(tutti);
}

void end(struct comm* world) { release(world); }

struct comm* split(struct comm* from, int color, int key) {
  tuttiComm_t tutti;
  check(tuttiCommSplit(from->tutti, color == kNoColor ? TUTTI_SPLIT_NOCOLOR : color, key, &tutti,
                       NULL));
  return tutti == TUTTI_COMM_NULL ? NULL : hold(tutti);
}

void release(struct comm* c) {
  check(tuttiRedOpDestroy(c->ops[kCompose], c->tutti));
  check(tuttiRedOpDestroy(c->ops[kLarger], c->tutti));
  check(tuttiCommFinalize(c->tutti));
  check(tuttiCommDestroy(c->tutti));
  free(c);
}

int rank_of(const struct comm* c) { return c->rank; }
int ranks_of(const struct comm* c) { return c->ranks; }

void all_reduce(const void* in, void* out, size_t count, enum type type, enum op op,
                struct comm* c) {
  check(tuttiAllReduce(in, out, count, kTuttiTypes[type], c->ops[op], c->tutti, NULL));
}

void reduce(const void* in, void* out, size_t count, enum type type, enum op op, int root,
            struct comm* c) {
  check(tuttiReduce(in, out, count, kTuttiTypes[type], c->ops[op], root, c->tutti, NULL));
}

void broadcast(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  check(tuttiBroadcast(in, out, count, kTuttiTypes[type], root, c->tutti, NULL));
}

const void* reduce_scatter(void* in, void* out, size_t count, enum type type, enum op op,
                           struct comm* c) {
  void* own = (char*)in + (size_t)c->rank * count * kTypeBytes[type];
  void* result = out == NULL ? own : out;
  check(tuttiReduceScatter(in, result, count, kTuttiTypes[type], c->ops[op], c->tutti, NULL));
  return result;
}

const void* reduce_scatter_v(void* in, const size_t* counts, void* out, enum type type, enum op op,
                             struct comm* c) {
  size_t before = 0;
  for (int r = 0; r < c->rank; ++r) before += counts[r];
  void* result = out == NULL ? (char*)in + before * kTypeBytes[type] : out;
  check(tuttiReduceScatterv(in, counts, NULL, result, counts[c->rank], kTuttiTypes[type],
                            c->ops[op], c->tutti, NULL));
  return result;
}

void all_gather(const void* in, void* out, size_t count, enum type type, struct comm* c) {
  check(tuttiAllGather(in, out, count, kTuttiTypes[type], c->tutti, NULL));
}

void all_gather_v(const void* in, void* out, const size_t* counts, const size_t* displs,
                  enum type type, struct comm* c) {
  check(
      tuttiAllGatherv(in, counts[c->rank], out, counts, displs, kTuttiTypes[type], c->tutti, NULL));
}

void all_to_all(const void* in, void* out, size_t count, enum type type, struct comm* c) {
  check(tuttiAlltoAll(in, out, count, kTuttiTypes[type], c->tutti, NULL));
}

void all_to_all_v(const void* in, const size_t* in_counts, const size_t* in_displs, void* out,
                  const size_t* out_counts, const size_t* out_displs, enum type type,
                  struct comm* c) {
  check(tuttiAlltoAllv(in, in_counts, in_displs, out, out_counts, out_displs, kTuttiTypes[type],
                       c->tutti, NULL));
}

void gather(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  check(tuttiGather(in, out, count, kTuttiTypes[type], root, c->tutti, NULL));
}

void gather_v(const void* in, void* out, const size_t* counts, const size_t* displs, enum type type,
              int root, struct comm* c) {
  check(tuttiGatherv(in, counts[c->rank], out, counts, displs, kTuttiTypes[type], root, c->tutti,
                     NULL));
}

void scatter(const void* in, void* out, size_t count, enum type type, int root, struct comm* c) {
  check(tuttiScatter(in, out, count, kTuttiTypes[type], root, c->tutti, NULL));
}

void scatter_v(const void* in, const size_t* counts, const size_t* displs, void* out,
               enum type type, int root, struct comm* c) {
  check(tuttiScatterv(in, counts, displs, out, counts[c->rank], kTuttiTypes[type], root, c->tutti,
                      NULL));
}

void barrier(struct comm* c) { check(tuttiBarrier(c->tutti, NULL)); }

void send_to(const void* in, size_t count, enum type type, int peer, struct comm* c) {
  check(tuttiSend(in, count, kTuttiTypes[type], peer, c->tutti, NULL));
}

void receive_from(void* out, size_t count, enum type type, int peer, struct comm* c) {
  check(tuttiRecv(out, count, kTuttiTypes[type], peer, c->tutti, NULL));
}

void exchange(const void* in, int to, void* out, int from, size_t count, enum type type,
              struct comm* c) {
  check(tuttiGroupStart());
  check(tuttiSend(in, count, kTuttiTypes[type], to, c->tutti, NULL));
  check(tuttiRecv(out, count, kTuttiTypes[type], from, c->tutti, NULL));
  check(tuttiGroupEnd());
}
