/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective, on all ranks and on split communicators, over types, operations, roots and
 * counts, in place and out of place. After each call a rank writes to FOLDER/RANK what its buffers
 * hold, so that two back ends of calls.h can be compared byte for byte: for each buffer a line
 * "call, buffer: elements", one word in hexadecimal for each element, or for kHashed elements.
 *
 * All values are equal in any order of reduction: integers that wrap are unsigned, signed ones stay
 * in their range among kMaxRanks, floating ones are small integers. What a call must not write
 * holds kFilling.
 *
 * Usage: program FOLDER SEED */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { kFilling = 0xee, kGuard = 3, kHashed = 256, kPrintedElements = 512 };

static const char* const kTypeNames[kTypes] = {"int8",  "uint8",  "int32", "uint32",
                                               "int64", "uint64", "float", "double"};
static const size_t kTypeBytes[kTypes] = {1, 1, 4, 4, 8, 8, 4, 8};
static const char* const kOpNames[kOps] = {"sum",        "prod",        "max",     "min",
                                           "bit_and",    "bit_or",      "bit_xor", "logical_and",
                                           "logical_or", "logical_xor", "compose", "larger"};

/* What the next call is, and where numbers come from: `shared` is in step on all ranks of the
 * communicator, `own` is the rank's. */
struct scene {
  const char* name;
  FILE* file;
  struct comm* comm;
  int rank, ranks, calls;
  uint64_t shared, own;
  enum type type;
  enum op op; /* kOps: the call moves bytes as they are */
  int root, in_place;
  size_t count;
};

/* Elements, and behind them kGuard that no call may touch; or a part of another area. */
struct area {
  unsigned char* at;
  size_t elements;
  int part;
};

/* A place in an area for each rank's block. */
struct layout {
  size_t displs[kMaxRanks], end;
};

/* splitmix64 */
static uint64_t next(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
static size_t below(uint64_t* state, size_t bound) { return (size_t)(next(state) % bound); }

/* x -> a x + b modulo 2^32, a in the upper half: first `lower`, then `upper`. */
void compose(const uint64_t* lower, uint64_t* upper, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t a = (uint32_t)(upper[i] >> 32), b = (uint32_t)upper[i];
    const uint32_t scale = a * (uint32_t)(lower[i] >> 32), shift = a * (uint32_t)lower[i] + b;
    upper[i] = (uint64_t)scale << 32 | shift;
  }
}
/* By the lower half, then by the upper. */
void larger(const uint64_t* lower, uint64_t* upper, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t l = lower[i] << 32 | lower[i] >> 32, u = upper[i] << 32 | upper[i] >> 32;
    if (l > u) upper[i] = lower[i];
  }
}

/* An element for `type` and `op` from random bits: an integer of its range. */
static int64_t value(enum type type, enum op op, uint64_t bits) {
  const int floating = type == kFloat || type == kDouble;
  const int is_signed = type == kInt8 || type == kInt32 || type == kInt64;
  if (op == kProd && (floating || is_signed)) return (int64_t)(bits % 5) - 2;
  if (floating) return (int64_t)(bits % 2001) - 1000;
  if (op == kSum && is_signed) {
    const uint64_t bound = (uint64_t)1 << (8 * kTypeBytes[type] - 4);
    return (int64_t)(bits % (2 * bound)) - (int64_t)bound;
  }
  if (op == kLogicalAnd || op == kLogicalOr || op == kLogicalXor)
    return (bits & 1) != 0 ? (int64_t)(bits >> 8) : 0;
  return (int64_t)bits;
}

static void store(void* at, enum type type, enum op op, uint64_t bits) {
  const int64_t number = value(type, op, bits);
  const float as_float = (float)number;
  const double as_double = (double)number;
  const int32_t low = (int32_t)number;
  const int8_t lowest = (int8_t)number;
  const void* from = &number;
  if (op == kOps)
    from = &bits;
  else if (type == kFloat)
    from = &as_float;
  else if (type == kDouble)
    from = &as_double;
  else if (kTypeBytes[type] == 4)
    from = &low;
  else if (kTypeBytes[type] == 1)
    from = &lowest;
  memcpy(at, from, kTypeBytes[type]);
}

static unsigned char* element(struct scene* s, struct area area, size_t index) {
  return area.at + index * kTypeBytes[s->type];
}

static struct area part(struct scene* s, struct area whole, size_t first, size_t elements) {
  const struct area area = {element(s, whole, first), elements, 1};
  return area;
}

static struct area empty(struct scene* s, size_t elements) {
  const size_t bytes = (elements + kGuard) * kTypeBytes[s->type];
  const struct area area = {malloc(bytes), elements, 0};
  if (area.at == NULL) abort();
  memset(area.at, kFilling, bytes);
  return area;
}

static struct area filled(struct scene* s, size_t elements) {
  const struct area area = empty(s, elements);
  for (size_t i = 0; i < elements; ++i) store(element(s, area, i), s->type, s->op, next(&s->own));
  return area;
}

/* Writes the line of a buffer. */
static void put(struct scene* s, const char* call, const char* buffer, const unsigned char* at,
                size_t elements) {
  const size_t each = kTypeBytes[s->type];
  fprintf(s->file, "%s %d %s %s%s%s count %zu root %d%s, %s:", s->name, s->calls, call,
          kTypeNames[s->type], s->op == kOps ? "" : " ", s->op == kOps ? "" : kOpNames[s->op],
          s->count, s->root, s->in_place ? " in place" : "", buffer);
  const size_t word = elements > kPrintedElements ? kHashed : 1;
  for (size_t first = 0; first < elements; first += word) {
    const size_t end = first + word < elements ? first + word : elements;
    fputc(' ', s->file);
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = first * each; i < end * each; ++i) {
      if (word == 1) fprintf(s->file, "%02x", at[i]);
      hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    if (word != 1) fprintf(s->file, "%zu-%zu#%016" PRIx64, first, end - 1, hash);
  }
  fputc('\n', s->file);
}

/* Writes and frees both buffers. */
static void keep(struct scene* s, const char* call, struct area in, struct area out) {
  if (!in.part) put(s, call, "input", in.at, in.elements + kGuard);
  if (!out.part) put(s, call, "output", out.at, out.elements + kGuard);
  if (!in.part) free(in.at);
  if (!out.part) free(out.at);
  ++s->calls;
}

/* As many elements for each rank as the scene's count at most. */
static size_t draw_counts(struct scene* s, size_t* counts) {
  size_t all = 0;
  for (int r = 0; r < s->ranks; ++r) all += counts[r] = below(&s->shared, s->count + 1);
  return all;
}

/* This rank's own places for the blocks: not in the order of ranks, with gaps. */
static struct layout spread(struct scene* s, const size_t* counts) {
  struct layout layout = {{0}, 0};
  const size_t first = below(&s->own, kMaxRanks);
  for (int i = 0; i < s->ranks; ++i) {
    const size_t r = (first + (size_t)i) % (size_t)s->ranks;
    layout.displs[r] = layout.end + below(&s->own, 3);
    layout.end = layout.displs[r] + counts[r];
  }
  return layout;
}

static void try_reductions(struct scene* s) {
  const size_t n = s->count, blocks = n * (size_t)s->ranks;
  struct area in = filled(s, n), out = s->in_place ? part(s, in, 0, n) : empty(s, n);
  all_reduce(in.at, out.at, n, s->type, s->op, s->comm);
  keep(s, "all_reduce", in, out);

  in = filled(s, n);
  out = s->in_place && s->rank == s->root ? part(s, in, 0, n) : empty(s, n);
  reduce(in.at, out.at, n, s->type, s->op, s->root, s->comm);
  keep(s, "reduce", in, out);

  /* In place the rest of the buffer is the library's to use. */
  size_t counts[kMaxRanks];
  for (int with_counts = 0; with_counts < 2; ++with_counts) {
    const char* call = with_counts ? "reduce_scatter_v" : "reduce_scatter";
    in = filled(s, with_counts ? draw_counts(s, counts) : blocks);
    const size_t own = with_counts ? counts[s->rank] : n;
    out = s->in_place ? part(s, in, 0, own) : empty(s, own);
    unsigned char* at = s->in_place ? NULL : out.at;
    const unsigned char* result = with_counts
                                      ? reduce_scatter_v(in.at, counts, at, s->type, s->op, s->comm)
                                      : reduce_scatter(in.at, at, n, s->type, s->op, s->comm);
    in.part = s->in_place;
    put(s, call, "result", result, own);
    keep(s, call, in, out);
    if (s->in_place) free(in.at);
  }
}

static void try_moves(struct scene* s) {
  const size_t n = s->count, blocks = n * (size_t)s->ranks;
  const size_t own = (size_t)s->rank * n, is_root = s->rank == s->root;
  struct area in = filled(s, n), out = s->in_place ? part(s, in, 0, n) : empty(s, n);
  broadcast(in.at, out.at, n, s->type, s->root, s->comm);
  keep(s, "broadcast", in, out);

  out = s->in_place ? filled(s, blocks) : empty(s, blocks);
  in = s->in_place ? part(s, out, own, n) : filled(s, n);
  all_gather(in.at, out.at, n, s->type, s->comm);
  keep(s, "all_gather", in, out);

  in = filled(s, blocks);
  out = s->in_place ? part(s, in, 0, blocks) : empty(s, blocks);
  all_to_all(in.at, out.at, n, s->type, s->comm);
  keep(s, "all_to_all", in, out);

  const int root_in_place = s->in_place && is_root;
  out = root_in_place ? filled(s, blocks) : empty(s, blocks);
  in = root_in_place ? part(s, out, own, n) : filled(s, n);
  gather(in.at, out.at, n, s->type, s->root, s->comm);
  keep(s, "gather", in, out);

  in = filled(s, blocks);
  out = root_in_place ? part(s, in, own, n) : empty(s, n);
  scatter(in.at, out.at, n, s->type, s->root, s->comm);
  keep(s, "scatter", in, out);
}

static void try_moves_of_counts(struct scene* s) {
  size_t counts[kMaxRanks], out_counts[kMaxRanks], row[kMaxRanks];
  const int root_in_place = s->in_place && s->rank == s->root;
  draw_counts(s, counts);
  const size_t own = counts[s->rank];
  struct layout places = spread(s, counts);
  struct area out = s->in_place ? filled(s, places.end) : empty(s, places.end);
  struct area in = s->in_place ? part(s, out, places.displs[s->rank], own) : filled(s, own);
  all_gather_v(in.at, out.at, counts, places.displs, s->type, s->comm);
  keep(s, "all_gather_v", in, out);

  places = spread(s, counts);
  out = root_in_place ? filled(s, places.end) : empty(s, places.end);
  in = root_in_place ? part(s, out, places.displs[s->rank], own) : filled(s, own);
  gather_v(in.at, out.at, counts, places.displs, s->type, s->root, s->comm);
  keep(s, "gather_v", in, out);

  places = spread(s, counts);
  in = filled(s, places.end);
  out = root_in_place ? part(s, in, places.displs[s->rank], own) : empty(s, own);
  scatter_v(in.at, counts, places.displs, out.at, s->type, s->root, s->comm);
  keep(s, "scatter_v", in, out);

  for (int r = 0; r < s->ranks; ++r) {
    draw_counts(s, row);
    out_counts[r] = row[s->rank];
    if (r == s->rank) memcpy(counts, row, sizeof(row));
  }
  places = spread(s, counts);
  const struct layout out_places = spread(s, out_counts);
  in = filled(s, places.end);
  out = empty(s, out_places.end);
  all_to_all_v(in.at, counts, places.displs, out.at, out_counts, out_places.displs, s->type,
               s->comm);
  keep(s, "all_to_all_v", in, out);
}

static void try_messages(struct scene* s) {
  const int step = 1 + (int)below(&s->shared, (size_t)s->ranks);
  struct area in = filled(s, s->count), out = empty(s, s->count);
  exchange(in.at, (s->rank + step) % s->ranks, out.at, (s->rank + s->ranks * 2 - step) % s->ranks,
           s->count, s->type, s->comm);
  keep(s, "exchange", in, out);

  /* Down the line, each rank what it has received. */
  in = filled(s, s->count);
  out = empty(s, s->count);
  if (s->rank > 0) receive_from(out.at, s->count, s->type, s->rank - 1, s->comm);
  if (s->rank + 1 < s->ranks)
    send_to(s->rank > 0 ? out.at : in.at, s->count, s->type, s->rank + 1, s->comm);
  keep(s, "send_and_receive", in, out);
  barrier(s->comm);
}

static int has(enum type type, enum op op) {
  if (op >= kCompose) return type == kUint64;
  return op <= kMin || (type != kFloat && type != kDouble);
}

/* Everything on `comm`; nothing on a rank that is not in it. */
static void play(const char* name, struct comm* comm, FILE* file, uint64_t seed) {
  if (comm == NULL) return;
  struct scene s = {.name = name, .file = file, .comm = comm, .shared = seed};
  s.rank = rank_of(comm);
  s.ranks = ranks_of(comm);
  s.own = seed ^ ((uint64_t)s.rank + 1) << 32;
  const size_t large[] = {1, 1001, 20011};
  for (int kind = 0; kind < kTypes * (kOps + 1); ++kind) {
    s.type = (enum type)(kind % kTypes);
    s.op = (enum op)(kind / kTypes);
    if (s.op < kOps && !has(s.type, s.op)) continue;
    /* A small count for each type and operation; greater ones for some, both in place and not. */
    const int both = s.op == kSum || s.op >= kCompose;
    const int more = s.op == kCompose || (both && (s.type == kInt8 || s.type == kFloat));
    for (int i = 0; i < (more ? 8 : both ? 2 : 1); ++i) {
      s.in_place = both ? i % 2 : (int)below(&s.shared, 2);
      s.count = i < 2 ? 2 * below(&s.shared, 20) + 1 : large[i / 2 - 1];
      s.root = (int)below(&s.shared, (size_t)s.ranks);
      if (s.op < kOps) {
        try_reductions(&s);
      } else {
        try_moves(&s);
        try_moves_of_counts(&s);
        try_messages(&s);
      }
    }
  }
}

int main(int argc, char** argv) {
  struct comm* world = begin();
  if (argc != 3 || ranks_of(world) > kMaxRanks) {
    fprintf(stderr, "usage: %s FOLDER SEED, by at most %d ranks\n", argv[0], kMaxRanks);
    return 2;
  }
  const int rank = rank_of(world);
  const uint64_t seed = strtoull(argv[2], NULL, 10);
  char path[4096];
  snprintf(path, sizeof(path), "%s/%d", argv[1], rank);
  FILE* file = fopen(path, "w");
  if (file == NULL) {
    perror(path);
    return 1;
  }
  play("world", world, file, seed);
  /* Even and odd ranks, each in falling order; then all but rank 0. */
  struct comm* half = split(world, rank % 2, -rank);
  play("half", half, file, seed + 1);
  release(half);
  struct comm* rest = split(world, rank == 0 ? kNoColor : 7, rank);
  play("rest", rest, file, seed + 2);
  if (rest != NULL) release(rest);
  end(world);
  return fclose(file) == 0 ? 0 : 1;
}
