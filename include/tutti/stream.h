/* SPDX-License-Identifier: Apache-2.0 */
/* Tutti's C API for asynchronous calls with host memory: streams, events, functions on streams.
 *
 *   tuttiStream_t stream;
 *   tuttiStreamCreate(&stream);
 *   tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, stream);   // returns at once
 *   compute();
 *   tuttiStreamSynchronize(stream);
 *
 * They are to host memory what CUDA's are to device memory, where a stream is a cudaStream_t.
 *
 * Order. A call on a stream checks its arguments, is issued, and returns; its buffers, and what
 * sendbuff holds, must stay until it has ended. It begins when all that is on the stream has ended,
 * and when the communicator's calls that were issued before it have, on whatever streams: so the
 * calls of a communicator run in the order of issue, which is equal on all ranks. A thread of the
 * communicator carries them out; it starts with the first and sleeps while there is none. A call
 * with a NULL stream first waits for them.
 *
 * Groups. The calls of a group on streams begin together, each communicator's when all that is on
 * the streams of its calls has ended. If a group also has calls with a NULL stream, tuttiGroupEnd
 * returns when the calls of their communicators have ended.
 *
 * Errors. What the check of the arguments finds, the call returns. A later error appears in
 * tuttiCommGetAsyncError if it poisons the communicator, and in tuttiStreamSynchronize; what is on
 * the stream behind the failed call is carried out all the same. tuttiCommFinalize,
 * tuttiCommDestroy and tuttiCommSplit wait for the calls in flight; tuttiCommAbort and
 * tuttiCommRevoke end them. All functions below return tuttiInvalidArgument for what is no stream
 * or event, or was destroyed, and tuttiInvalidUsage in a forked child.
 *
 * Threads. Any thread may use a stream or an event; work is on a stream in the order of these
 * calls. A function on a stream may make calls, but it must not wait for work that begins only
 * after the function itself: that gives tuttiInvalidUsage.
 */
#ifndef TUTTI_STREAM_H_
#define TUTTI_STREAM_H_

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A point in a stream of tuttiStreamCreate. */
typedef struct tuttiEvent* tuttiEvent_t;

/* A function on a stream. */
typedef void (*tuttiHostFn_t)(void* userData);

/* Makes a stream. It costs no thread. Local; never blocks. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream);

/* Waits until all work on the stream has ended, and frees it. NULL is allowed. */
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* Returns tuttiSuccess if all work on the stream has ended, well or not, else tuttiInProgress.
 * Never blocks. */
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);

/* Blocks until all work on the stream has ended. Returns the error of the first call on it that has
 * failed since the last time, which may be of any communicator. */
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);

/* Makes an event, which is complete until it is recorded. Local; never blocks. */
TUTTI_API tuttiResult_t tuttiEventCreate(tuttiEvent_t* event);

/* Frees an event; what waits for it keeps waiting for what was recorded. NULL is allowed. Never
 * blocks. */
TUTTI_API tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);

/* Records the work that is on the stream now, instead of what was recorded before. Never blocks. */
TUTTI_API tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);

/* Returns tuttiSuccess if the work of the last record has ended, else tuttiInProgress. Never
 * blocks.
 */
TUTTI_API tuttiResult_t tuttiEventQuery(tuttiEvent_t event);

/* Blocks until the work of the last record has ended, well or not. */
TUTTI_API tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);

/* Lets what is put on the stream from now on begin only when the work of the event's last record
 * has ended; a later record changes nothing. Never blocks. */
TUTTI_API tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);

/* Puts a function on the stream, as cudaLaunchHostFunc does: fn(userData) runs when all that is on
 * the stream has ended, in a thread of the stream, which starts with the first function and has all
 * signals blocked. It must not throw. Never blocks. tuttiInvalidArgument if fn is NULL;
 * tuttiSystemError if the thread cannot start. */
TUTTI_API tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t fn, void* userData);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_STREAM_H_ */
