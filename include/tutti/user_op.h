/* SPDX-License-Identifier: Apache-2.0 */
/* Tutti's C API for reductions by a function of the program, on host memory (like MPI_Op_create).
 *
 *   void longer(const void* in, void* inout, size_t count, tuttiDataType_t type, void* context);
 *   tuttiRedOp_t op;
 *   tuttiRedOpCreateUser(&op, longer, NULL, 1, comm);
 *   tuttiAllReduce(words, words, n, tuttiUint64, op, comm, NULL);
 *   tuttiRedOpDestroy(op, comm);
 */
#ifndef TUTTI_USER_OP_H_
#define TUTTI_USER_OP_H_

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reduces `count` elements of `datatype`: inout[i] = in[i] op inout[i], 0 <= i < count. The two do
 * not overlap. `in` is aligned to the data type, `inout` to 64 bytes. The operation is associative.
 *
 * A call of a collective calls it any number of times, with any count: what belongs together must
 * be one element (for a pair of floats: tuttiUint64). It runs in the thread that carries out the
 * call: for calls on streams, a thread of the communicator. It must return, throw nothing, and make
 * no call of Tutti. */
typedef void (*tuttiReduceFn_t)(const void* in, void* inout, size_t count, tuttiDataType_t datatype,
                                void* context);

/* Creates an operation that reduces by `function` in collectives of any data type on `comm`. All
 * ranks pass one with the same meaning; `context` is each rank's own and must stay until the last
 * call with the operation has ended. Free it by tuttiRedOpDestroy.
 *
 * commutative != 0: contributions are combined in any order, equal on all ranks, so that all get
 * the same bits. 0: in the order of ranks, in[i] from lower ranks than inout[i]; only algorithms
 * that keep this order are chosen (a forced one that does not gives tuttiNotSupported, on the ranks
 * whose operation does not commute). Ranks that differ in this get tuttiInvalidUsage at the call.
 * Calls with device memory give tuttiNotSupported. Local. Errors: tuttiInvalidArgument (NULL),
 * tuttiInvalidUsage. */
TUTTI_API tuttiResult_t tuttiRedOpCreateUser(tuttiRedOp_t* op, tuttiReduceFn_t function,
                                             void* context, int commutative, tuttiComm_t comm);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_USER_OP_H_ */
