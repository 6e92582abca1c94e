/* Tutti: why the library runs what it runs.
 *
 * Every way to run a collective is a candidate: an algorithm with a protocol and a shape. Each has
 * a price, made of terms that add up, and the cheapest one runs: that of its class of sizes, two
 * classes an octave, so that within a class another can be cheaper by some per cent. A candidate's
 * name forces it (tuttiCommSetAlgorithm, TUTTI_ALGO, --algo), so that a price can be held against a
 * measurement. Calls with device memory are priced apart, from constants that were measured on no
 * device so far: tuttiExplain tells of them, tuttiGetCandidates does not.
 */
#ifndef TUTTI_EXPLAIN_H_
#define TUTTI_EXPLAIN_H_

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One candidate; times in us. Later versions add fields at the end, so pass the size of yours. */
typedef struct tuttiCandidate_v100 {
  char name[192];    /* as "ring@slots:replicas=2:slot=64K"                                 */
  int runs;          /* 1: what a call of this size runs, by price or because it is forced  */
  unsigned slices;   /* parts of each chunk                                                 */
  double timeUs;     /* the price: the sum of the terms below                               */
  double messagesUs; /* latency of messages on the longest path                             */
  double switchesUs; /* cores given from rank to rank, where ranks outnumber cores          */
  double stepsUs;    /* the steps' own time                                                 */
  double bytesUs;    /* bytes read, reduced and written, and on the wire between hosts      */
  double remoteUs;   /* what those in other ranks' memory cost beyond that                  */
  double measuredUs; /* median measured on this machine (rank 0 knows it); < 0: not known   */
} tuttiCandidate_t;

/* The candidates for an all-reduce of `count` elements, cheapest first. `candidates` has room for
 * `capacity`, each of `size` bytes (sizeof(tuttiCandidate_t)); `*total` is how many there are, also
 * where there is room for less. `inWindows`: 1 for buffers in symmetric windows. Local, never
 * blocks but to count schedules the first time; the thread that uses the communicator.
 * tuttiInvalidArgument for NULL, a size that is none or count 0. */
TUTTI_API tuttiResult_t tuttiGetCandidates(tuttiComm_t comm, size_t count, tuttiDataType_t datatype,
                                           int inWindows, tuttiCandidate_t* candidates, size_t size,
                                           size_t capacity, size_t* total);

/* The same as a table for people: each candidate's price by term, its measured time where known,
 * what runs, and why the others do not. Where the rank has a device and has made a call with its
 * memory, a second table is for such calls: what runs, in how many blocks. `*text` stays until the
 * communicator's next tuttiExplain or its end. */
TUTTI_API tuttiResult_t tuttiExplain(tuttiComm_t comm, size_t count, tuttiDataType_t datatype,
                                     int inWindows, const char** text);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_EXPLAIN_H_ */
