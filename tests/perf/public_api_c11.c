/* SPDX-License-Identifier: Apache-2.0 */
/* The header in a C11 translation unit: initializers, and calls without a communicator. */
#include "tutti/explain.h"
#include "tutti/stream.h"
#include "tutti/tutti.h"

_Static_assert(sizeof(tuttiUniqueId) == TUTTI_UNIQUE_ID_BYTES, "128 bytes");
_Static_assert(sizeof(tuttiRedOp_t) == 4, "dynamic operations need the values up to tuttiMaxRedOp");

int tutti_c11_probe(void);

int tutti_c11_probe(void) {
  const tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  const tuttiSimInfo_t sim = TUTTI_SIM_INFO_INITIALIZER;
  const tuttiCommInfo_t info = TUTTI_COMM_INFO_INITIALIZER;
  int version = 0;
  void* memory = NULL;
  if (config.size != sizeof(config) || sim.size != sizeof(sim) || info.size != sizeof(info))
    return -1;
  if (config.blocking != TUTTI_CONFIG_UNDEF_INT || config.algorithm != NULL) return -2;
  if (tuttiMemAlloc(&memory, 100) != tuttiSuccess || ((uintptr_t)memory & 4095u) != 0) return -3;
  if (tuttiMemFree(memory) != tuttiSuccess) return -4;
  if (tuttiGetErrorString(tuttiTimeout) == NULL) return -5;
  return tuttiGetVersion(&version) == tuttiSuccess ? version : -6;
}
