/* Four ranks in one process: each contributes its rank, all receive the sum.
 * Build: cc hello_all_reduce.c $(pkg-config --cflags --libs tutti) */
#include <stdio.h>
#include <tutti/tutti.h>

enum { kRanks = 4 };

static int failed(tuttiResult_t result) {
  if (result == tuttiSuccess) return 0;
  fprintf(stderr, "%s: %s\n", tuttiGetErrorString(result), tuttiGetLastError(NULL));
  return 1;
}

int main(void) {
  tuttiComm_t comms[kRanks];
  float values[kRanks];
  if (failed(tuttiCommInitAll(comms, kRanks, NULL))) return 1;

  tuttiGroupStart(); /* one thread drives all ranks: their calls belong in a group */
  for (int rank = 0; rank < kRanks; ++rank) {
    values[rank] = (float)rank;
    if (failed(tuttiAllReduce(&values[rank], &values[rank], 1, tuttiFloat, tuttiSum, comms[rank],
                              NULL)))
      return 1;
  }
  if (failed(tuttiGroupEnd())) return 1;

  for (int rank = 0; rank < kRanks; ++rank) {
    printf("rank %d: sum %g\n", rank, (double)values[rank]);
    tuttiCommDestroy(comms[rank]);
  }
  return 0;
}
