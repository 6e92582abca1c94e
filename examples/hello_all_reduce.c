/* SPDX-License-Identifier: Apache-2.0 */
/* Four ranks in each process: each contributes its rank, all receive the sum. Alone or under any
 * launcher (mpirun, srun, ...). Build: cc hello_all_reduce.c $(pkg-config --cflags --libs tutti) */
#include <stdio.h>
#include <tutti/tutti.h>

enum { kLocal = 4 };

static int failed(tuttiResult_t result) {
  if (result == tuttiSuccess) return 0;
  fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
  return 1;
}

int main(void) {
  tuttiLauncher_t job = TUTTI_LAUNCHER_INITIALIZER;
  tuttiUniqueId id;
  tuttiComm_t comms[kLocal];
  float values[kLocal];
  if (failed(tuttiGetLauncher(&job)) || failed(tuttiGetLauncherUniqueId(&id))) return 1;

  tuttiGroupStart(); /* one thread drives all ranks: their calls belong in a group */
  for (int i = 0; i < kLocal; ++i)
    tuttiCommInitRank(&comms[i], job.nRanks * kLocal, id, job.rank * kLocal + i);
  if (failed(tuttiGroupEnd())) return 1; /* also says what went wrong inside */

  tuttiGroupStart();
  for (int i = 0; i < kLocal; ++i) {
    values[i] = (float)(job.rank * kLocal + i);
    tuttiAllReduce(&values[i], &values[i], 1, tuttiFloat, tuttiSum, comms[i], NULL);
  }
  if (failed(tuttiGroupEnd())) return 1;

  for (int i = 0; i < kLocal; ++i) {
    printf("rank %d: sum %g\n", job.rank * kLocal + i, (double)values[i]);
    tuttiCommDestroy(comms[i]);
  }
  return 0;
}
