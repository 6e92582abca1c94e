/* SPDX-License-Identifier: Apache-2.0 */
/* Tutti's C API for explanations: the candidates for a call, their prices, and the one that runs.
 *
 * A candidate is one way to run a collective: an algorithm with a protocol, a number of replicas
 * and a slot size. Its price is a predicted time, the sum of its terms. The library prices
 * candidates by size class, two classes per octave, and runs the cheapest of the class, unless the
 * machine's profile has measured times of whole calls; within a class another candidate can be
 * cheaper by a few per cent. The name of a candidate forces it (tuttiCommSetAlgorithm, TUTTI_ALGO,
 * --algo), so that you can compare its price with a measurement.
 *
 * Calls with device memory are priced separately, by the device costs of the machine's profile, or,
 * where it has none, by predictions for an H100 that were not measured. tuttiExplain covers them,
 * tuttiGetCandidates does not.
 *
 * Both functions are local and never wait for a peer; the first call of a size may take longer, to
 * count schedules. Call them on the thread that uses the communicator. They work on any rank.
 */
#ifndef TUTTI_EXPLAIN_H_
#define TUTTI_EXPLAIN_H_

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One candidate. Times are in microseconds. Later versions add fields at the end. */
typedef struct tuttiCandidate_v100 {
  char name[192];    /* for example "ring@slots:replicas=2:slot=64K"                        */
  int runs;          /* 1: a call of this size runs it, by price, time or force             */
  unsigned slices;   /* parts of each chunk                                                 */
  double timeUs;     /* the price: the sum of the terms below                               */
  double messagesUs; /* latency of the messages on the longest path                         */
  double switchesUs; /* context switches, if ranks outnumber cores                          */
  double stepsUs;    /* time of the steps themselves                                        */
  double bytesUs;    /* bytes read, reduced and written, and sent between hosts             */
  double remoteUs;   /* additional time for bytes in other ranks' memory                    */
  double measuredUs; /* median measured on this machine, known on rank 0; < 0 if not known  */
} tuttiCandidate_t;

/* Writes the candidates for a call of `collective` with `count` elements, cheapest first.
 * `collective` is a name as on command lines: "all_reduce", "broadcast", "reduce", "all_gather",
 * "reduce_scatter", "alltoall", "gather" or "scatter"; case and underscores do not matter. `count`
 * is counted as in the call, so where the data consists of blocks it is the size of one. inWindows
 * is 1 for buffers in symmetric windows, else 0. `candidates` has room for `capacity` entries of
 * `size` bytes each, where `size` is sizeof(tuttiCandidate_t). *total is the number of candidates,
 * even if there is room for fewer.
 * Errors: tuttiInvalidArgument for a NULL pointer, an unknown collective or data type, another
 * `size`, or count 0. */
TUTTI_API tuttiResult_t tuttiGetCandidates(tuttiComm_t comm, const char* collective, size_t count,
                                           tuttiDataType_t datatype, int inWindows,
                                           tuttiCandidate_t* candidates, size_t size,
                                           size_t capacity, size_t* total);

/* Writes a table for people to *text: for a call of `collective` with `count` elements (counted as
 * in tuttiGetCandidates), the price of each candidate by term, its measured time if known, the
 * candidate that runs, and why the others do not. If the rank has a device and has made a call with
 * device memory, a second table covers such calls: what runs, and in how many blocks. *text is
 * valid until the next tuttiExplain on the communicator, or its end.
 * Errors: tuttiInvalidArgument for a NULL pointer, an unknown collective or data type, or count 0.
 */
TUTTI_API tuttiResult_t tuttiExplain(tuttiComm_t comm, const char* collective, size_t count,
                                     tuttiDataType_t datatype, int inWindows, const char** text);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_EXPLAIN_H_ */
