/* SPDX-License-Identifier: Apache-2.0 */
/* Tutti's public C API (C11): collective communication among processes, threads and devices.
 *
 * Names, shapes and semantics are those of NCCL 2.28 under the prefix `tutti`: a program written
 * for NCCL compiles against this header after a rename. Where NCCL leaves behaviour open, this
 * header defines it. Functions that NCCL does not have are under "Extensions" and "Launchers".
 *
 *   tuttiUniqueId id;                               // one rank creates it, all ranks receive it
 *   tuttiGetUniqueId(&id);
 *   tuttiComm_t comm;
 *   tuttiCommInitRank(&comm, nranks, id, rank);     // in every rank
 *   tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, NULL);
 *   tuttiCommDestroy(comm);
 *
 * These rules hold for every function below.
 *
 * Units. `count` is in elements of the data type. `size` and every name that ends in Bytes are in
 * bytes, and every name that ends in Ms is in milliseconds. Ranks are numbered 0 <= rank < nranks,
 * in the user's order.
 *
 * Host memory. Buffers are ordinary host memory, aligned to the data type. With a NULL stream the
 * calling thread runs the operation, and the call returns when it is complete on this rank, that
 * is, recvbuff holds the result and sendbuff may be reused. Inside a group tuttiGroupEnd does both.
 * With a stream of tuttiStreamCreate the call returns at once (tutti/stream.h). Any other stream
 * gives tuttiInvalidArgument.
 *
 * Device memory. If the calling thread has a current CUDA device when the rank is initialized (the
 * program has used CUDA before), calls on that rank also accept device memory, for both buffers or
 * for neither (tuttiInvalidArgument). A rank without a device (see tuttiCommCuDevice) refuses
 * device memory with tuttiNotSupported, provided that some communicator was made after the program
 * first used CUDA; otherwise it takes the memory for host memory, and the call crashes.
 *   - A call enqueues its work on `stream` (NULL: the default stream). It returns once all ranks on
 *     the same GPU have called, since these are launched together: one thread that drives several
 *     of them puts their calls in a group. Errors that a kernel detects appear in
 *     tuttiCommGetAsyncError and in the next call.
 *   - Calls may be captured into CUDA graphs, on all ranks or on none. Issue one uncaptured call of
 *     the same size and type first; it copies the plan to the GPU. If ranks of one GPU are captured
 *     into separate graphs, their number over all communicators of the process is limited to
 *     CUDA_DEVICE_MAX_CONNECTIONS: 8, or up to 32 if the program sets it before it uses CUDA.
 *   - Calls of one communicator on several streams run in the order in which they were issued.
 *   - In this version all ranks of a call with device memory are threads of one process, and the
 *     ranks of one GPU, over all communicators, are at most as many as it runs blocks at once (132
 *     on an H100).
 *   - Making and destroying a communicator allocates and frees device memory. CUDA may delay that
 *     until the kernels of other communicators have ended, and those kernels may wait for ranks
 *     that have not called yet. So make and destroy at the same point among the operations of other
 *     communicators on every rank, or synchronize with those operations first. The first operation
 *     of a new size needs the same care once 16 MiB of plans are on the GPU.
 *
 * Order. All ranks of a communicator issue their collective calls in the same order, with the same
 * count, data type, operation and root. If calls do not match, ranks get tuttiInvalidUsage with a
 * message that names both sides: one that only sends, like a root, maybe from a later call.
 *
 * Threads. Different communicators may be used by different threads at the same time. One
 * communicator is used by one thread at a time, and every call but those that put work on streams
 * first waits until the communicator's calls on streams have ended. The exceptions are
 * tuttiCommCount, tuttiCommUserRank, tuttiCommCuDevice, tuttiCommAbort, tuttiCommRevoke,
 * tuttiCommGetAsyncError and tuttiGetLastError: any thread may call them at any time before the
 * communicator is destroyed. A second thread that enters a call while another one is in a call gets
 * tuttiInvalidUsage, which names that call, and changes nothing. A communicator does not survive
 * fork(): only the process that initialized it may use it.
 *
 * Blocking. Every call is bounded. A dead peer or a mismatched call ends it with an error. If a
 * peer is alive, or stopped, but never makes the call, it fails after the operation timeout (10
 * minutes unless configured). No call exits the process, raises a signal, or prints anything but
 * the log; the log goes to stderr and has warnings only, unless TUTTI_DEBUG and TUTTI_DEBUG_FILE
 * say otherwise.
 *
 * Errors. Every function returns a tuttiResult_t; the text is in tuttiGetLastError. If a
 * communication call returns tuttiSystemError, tuttiInternalError, tuttiInvalidUsage,
 * tuttiRemoteError or tuttiTimeout, the communicator is poisoned: every later communication call on
 * it returns the same code, on every rank (a rank whose own resources failed returns the code of
 * that failure first). Only tuttiCommAbort, tuttiCommDestroy, tuttiCommFinalize, the queries, and
 * tuttiCommShrink with TUTTI_SHRINK_ABORT remain. tuttiInvalidArgument and tuttiNotSupported are
 * detected before anything is sent and change nothing. After any error the contents of recvbuff are
 * undefined.
 *
 * Ownership. Buffers stay the caller's. They must stay valid, and sendbuff unchanged, from the call
 * until the operation is complete. Output arguments are written only on tuttiSuccess, unless said
 * otherwise. NULL for a required pointer gives tuttiInvalidArgument.
 *
 * This version implements: version and error texts, unique ids, launchers, tuttiCommInitRank,
 * -InitRankConfig, -InitAll, -Finalize, -Destroy, -Abort, -Count, -UserRank, -CuDevice,
 * -GetAsyncError, -Split, -Shrink, -Revoke, -Register, -Deregister, -WindowRegister and
 * -WindowDeregister, tuttiMemAlloc and tuttiMemFree, tuttiAllReduce, -Reduce, -Broadcast, -Bcast,
 * -ReduceScatter, -ReduceScatterv, -AllGather, -AllGatherv, -AlltoAll, -AlltoAllv, -Gather,
 * -Gatherv, -Scatter, -Scatterv and -Barrier, tuttiSend and tuttiRecv, groups of these, the
 * simulation of groups of collectives, tuttiRedOpCreatePreMulSum and tuttiRedOpDestroy, streams and
 * events on host memory, and the extensions. With device memory some arguments return
 * tuttiNotSupported, as is said there.
 */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define TUTTI_VERSION_CODE TUTTI_VERSION(TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH)
/* The NCCL release whose API this header follows, coded as NCCL does. */
#define TUTTI_NCCL_VERSION_CODE 22809

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------- */

/* One rank's membership in a communicator. The init functions, tuttiCommSplit and tuttiCommShrink
 * create it; tuttiCommDestroy or tuttiCommAbort frees it. */
typedef struct tuttiComm* tuttiComm_t;
#define TUTTI_COMM_NULL NULL

/* A window of memory that all ranks of a communicator registered together. */
typedef struct tuttiWindow* tuttiWindow_t;

/* For calls with host memory NULL or a stream of tuttiStreamCreate (tutti/stream.h); for calls with
 * device memory a cudaStream_t. */
typedef void* tuttiStream_t;

/* An address and a 256-bit secret, by which ranks find and trust each other. Plain bytes: copy them
 * to every rank over a channel that only the members of the job can read. Whoever holds the bytes
 * may join. */
#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

/* The result of a call, and what to do next. */
typedef enum {
  tuttiSuccess = 0,
  tuttiUnhandledCudaError = 1, /* a CUDA call failed: see the message                           */
  tuttiSystemError = 2,        /* the operating system refused: see the message, fix the machine */
  tuttiInternalError = 3,      /* a bug in Tutti: report it                                     */
  tuttiInvalidArgument = 4,    /* this call's arguments are wrong: fix the call                 */
  tuttiInvalidUsage = 5,       /* the program is wrong: ranks disagree, or the state is wrong   */
  tuttiRemoteError = 6,        /* a peer died, aborted or failed: abort, then shrink or restart */
  tuttiInProgress = 7,         /* not an error: ask again                                       */
  tuttiTimeout = 8,            /* a live peer did not make the call within the timeout          */
  tuttiNotSupported = 9,       /* legal, but this version or build cannot do it                 */
  tuttiNumResults = 10
} tuttiResult_t;

/* The two dummies below pin the width of the enumerations. */
typedef enum { tuttiNumOps_dummy = 5 } tuttiRedOp_dummy_t;

/* Reduction operations. Every rank receives the same bits.
 * Integers wrap around in sum and prod; their avg is the wrapped sum divided by the number of
 * ranks, rounded towards zero. half, bfloat16 and the fp8 types accumulate in float within a
 * reduction step; the avg of floating types is the sum divided once by the number of ranks. A NaN
 * on any rank makes the element's max and min a NaN.
 * The bitwise and logical operations are MPI's. They take integers (else tuttiInvalidArgument) in
 * host memory (else tuttiNotSupported). A logical result is 0 or 1; among one rank the input. */
typedef enum {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  /* The number of NCCL's built-in operations. */
  tuttiNumOps = 5,
  tuttiBitAnd = 16,
  tuttiBitOr = 17,
  tuttiBitXor = 18,
  tuttiLogicalAnd = 19,
  tuttiLogicalOr = 20,
  tuttiLogicalXor = 21,
  /* Values from here on are made by tuttiRedOpCreate*. */
  tuttiFirstMadeOp = 64,
  tuttiMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(tuttiRedOp_dummy_t))
} tuttiRedOp_t;

/* Data types; values equal ncclDataType_t. */
typedef enum {
  tuttiInt8 = 0,
  tuttiChar = 0,
  tuttiUint8 = 1,
  tuttiInt32 = 2,
  tuttiInt = 2,
  tuttiUint32 = 3,
  tuttiInt64 = 4,
  tuttiUint64 = 5,
  tuttiFloat16 = 6, /* IEEE binary16 */
  tuttiHalf = 6,
  tuttiFloat32 = 7,
  tuttiFloat = 7,
  tuttiFloat64 = 8,
  tuttiDouble = 8,
  tuttiBfloat16 = 9,    /* the upper half of a binary32 */
  tuttiFloat8e4m3 = 10, /* OCP: largest 448, no infinity; results saturate */
  tuttiFloat8e5m2 = 11, /* OCP: largest 57344; results saturate */
  tuttiNumTypes = 12
} tuttiDataType_t;

/* Which memory holds a scalar argument, and when it is read. */
typedef enum {
  tuttiScalarDevice = 0,       /* device-visible memory, read while the collective runs */
  tuttiScalarHostImmediate = 1 /* host memory, read before the call returns             */
} tuttiScalarResidence_t;

#define TUTTI_CONFIG_UNDEF_INT INT_MIN
#define TUTTI_CONFIG_UNDEF_PTR NULL
#define TUTTI_SPLIT_NOCOLOR -1
#define TUTTI_UNDEF_FLOAT -1.0f

/* tuttiCommCuDevice reports this for a rank without a device. */
#define TUTTI_DEVICE_HOST -1

/* Flags of tuttiCommWindowRegister. */
#define TUTTI_WIN_DEFAULT 0x00
#define TUTTI_WIN_COLL_SYMMETRIC 0x01
#define TUTTI_WIN_REQUIRED_ALIGNMENT 4096

/* Values of tuttiConfig_t::CTAPolicy. */
#define TUTTI_CTA_POLICY_DEFAULT 0x00
#define TUTTI_CTA_POLICY_EFFICIENCY 0x01
#define TUTTI_CTA_POLICY_ZERO 0x02

/* Flags of tuttiCommShrink. */
#define TUTTI_SHRINK_DEFAULT 0x00 /* the parent is idle, and healthy or revoked    */
#define TUTTI_SHRINK_ABORT 0x01   /* end the parent's operations first, then shrink */

/* Flags of tuttiCommRevoke: reserved, must be 0. */
#define TUTTI_REVOKE_DEFAULT 0x00

/* The configuration of a communicator. Start from TUTTI_CONFIG_INITIALIZER and set fields. An
 * undefined field takes the value of the environment variable for it, if there is one, then the
 * default. Strings are copied during the call. The first three fields identify the version of the
 * struct that the program was compiled with; do not change them. A value outside the range given
 * here is tuttiInvalidArgument. Fields marked "unused" are checked and have no effect in this
 * version. */
typedef struct tuttiConfig_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;            /* 1 (default). 0: the initialization returns before it has ended   */
  int cgaClusterSize;      /* unused; 0 to 8                                                   */
  int minCTAs;             /* least blocks that a rank takes of its GPU, if available; >= 1    */
  int maxCTAs;             /* most blocks, >= minCTAs; default: half of those left, shared     */
  const char* netName;     /* unused                                                           */
  int splitShare;          /* unused; 0 or 1                                                   */
  int trafficClass;        /* unused; >= 0                                                     */
  const char* commName;    /* unused                                                           */
  int collnetEnable;       /* unused; 0 or 1                                                   */
  int CTAPolicy;           /* unused; TUTTI_CTA_POLICY_*                                       */
  int shrinkShare;         /* unused; 0 or 1                                                   */
  int nvlsCTAs;            /* unused; >= 1                                                     */
  int nChannelsPerNetPeer; /* unused; >= 1                                                     */
  int nvlinkCentricSched;  /* unused; 0 or 1                                                   */
  /* Extensions. */
  int opTimeoutMs;       /* how long an operation waits for a live peer; > 0                   */
  int initTimeoutMs;     /* how long initialization waits for all ranks to join; > 0           */
  const char* algorithm; /* as for tuttiCommSetAlgorithm; NULL or "auto": the library chooses  */
  int fp32Partials;      /* 1: sums of 8- and 16-bit floats travel as fp32, rounded once; 0    */
} tuttiConfig_t;

#define TUTTI_CONFIG_MAGIC 0xcafebeefu
#define TUTTI_CONFIG_INITIALIZER                          \
  {                                                       \
    sizeof(tuttiConfig_t),      /* size */                \
        TUTTI_CONFIG_MAGIC,     /* magic */               \
        TUTTI_VERSION_CODE,     /* version */             \
        TUTTI_CONFIG_UNDEF_INT, /* blocking */            \
        TUTTI_CONFIG_UNDEF_INT, /* cgaClusterSize */      \
        TUTTI_CONFIG_UNDEF_INT, /* minCTAs */             \
        TUTTI_CONFIG_UNDEF_INT, /* maxCTAs */             \
        TUTTI_CONFIG_UNDEF_PTR, /* netName */             \
        TUTTI_CONFIG_UNDEF_INT, /* splitShare */          \
        TUTTI_CONFIG_UNDEF_INT, /* trafficClass */        \
        TUTTI_CONFIG_UNDEF_PTR, /* commName */            \
        TUTTI_CONFIG_UNDEF_INT, /* collnetEnable */       \
        TUTTI_CONFIG_UNDEF_INT, /* CTAPolicy */           \
        TUTTI_CONFIG_UNDEF_INT, /* shrinkShare */         \
        TUTTI_CONFIG_UNDEF_INT, /* nvlsCTAs */            \
        TUTTI_CONFIG_UNDEF_INT, /* nChannelsPerNetPeer */ \
        TUTTI_CONFIG_UNDEF_INT, /* nvlinkCentricSched */  \
        TUTTI_CONFIG_UNDEF_INT, /* opTimeoutMs */         \
        TUTTI_CONFIG_UNDEF_INT, /* initTimeoutMs */       \
        TUTTI_CONFIG_UNDEF_PTR, /* algorithm */           \
        TUTTI_CONFIG_UNDEF_INT, /* fp32Partials */        \
  }

/* The result of tuttiGroupSimulateEnd. Start from TUTTI_SIM_INFO_INITIALIZER. */
typedef struct tuttiSimInfo_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds, for the whole group */
} tuttiSimInfo_t;

#define TUTTI_SIM_INFO_MAGIC 0x74685283u
#define TUTTI_SIM_INFO_INITIALIZER \
  { sizeof(tuttiSimInfo_t), TUTTI_SIM_INFO_MAGIC, TUTTI_VERSION_CODE, TUTTI_UNDEF_FLOAT }

/* ---- Version and errors ------------------------------------------------------------------- */

/* Writes the TUTTI_VERSION_CODE of the loaded library, which may differ from the header's. Any
 * thread; never blocks. */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);

/* Returns a constant text for a result code. It is never NULL, not even for an invalid code. Any
 * thread; never blocks. */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);

/* Returns the message of the last error: what happened, where, at which rank, and what to do.
 * With a communicator, the last error of that communicator; with NULL, that of the last call that
 * failed in the calling thread, for instance of an initialization. "" if there was no error. The
 * text is valid until the calling thread's next call into Tutti. Any thread; never blocks. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* ---- Memory -------------------------------------------------------------------------------- */

/* Allocates at least `size` bytes that can become part of a window (tuttiCommWindowRegister): in
 * this version host memory, page-aligned and zeroed. It is shared memory, so a forked child and its
 * parent see each other's writes, and each allocation keeps a file descriptor open. `size` 0 gives
 * NULL. Free it with tuttiMemFree. Any thread; local. tuttiSystemError if there is no memory. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void** ptr, size_t size);

/* Frees memory of tuttiMemAlloc; NULL is allowed. No operation may still use the memory. Any
 * thread; local. tuttiInvalidArgument for any other pointer. tuttiInvalidUsage while the memory is
 * part of a window; it is not freed then. */
TUTTI_API tuttiResult_t tuttiMemFree(void* ptr);

/* ---- Initialization and end ---------------------------------------------------------------- */

/* Creates the id of one future communicator and starts, in this process, the service at which its
 * ranks meet; the process must live until all have joined. One rank calls it, once for each
 * communicator, and passes the bytes to all others. The id expires if no rank has joined within
 * TUTTI_INIT_TIMEOUT_S. Any thread; never waits for a peer. tuttiSystemError if no network address
 * is available. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* uniqueId);

/* Joins the communicator of `commId` as `rank` of `nranks`, 1 <= nranks <= 65536.
 * Collective: returns when all ranks have joined, or with an error after the initialization timeout
 * that names the missing ranks. Ranks may be threads of one process, processes, or both. A thread
 * that initializes several ranks puts the calls in a group; tuttiGroupEnd then joins all of them
 * and reports the errors.
 * The call writes *comm before it returns, never later. In a group it is a handle at once, and
 * until the group ends only tuttiCommDestroy and tuttiCommAbort accept it. On failure *comm is
 * TUTTI_COMM_NULL; if tuttiGroupEnd reports the failure, all handles made in the group are invalid.
 * Errors: tuttiInvalidArgument (rank or nranks out of range, damaged id), tuttiInvalidUsage (ranks
 * disagree on nranks, or two have the same number), tuttiTimeout, tuttiRemoteError,
 * tuttiSystemError. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId commId,
                                          int rank);

/* As tuttiCommInitRank, with a configuration that is equal on all ranks; NULL means the default.
 * Errors: those of tuttiCommInitRank; tuttiInvalidArgument for a config that did not start from
 * TUTTI_CONFIG_INITIALIZER or has a value out of range.
 * With blocking = 0 the arguments are checked, and the call, or tuttiGroupEnd, returns
 * tuttiInProgress with a valid handle. Until tuttiCommGetAsyncError says something else than
 * tuttiInProgress, only that, tuttiCommDestroy and tuttiCommAbort accept the handle, which end the
 * initialization; other calls return tuttiInvalidUsage. If it fails, tuttiCommGetAsyncError says
 * why, and the handle still wants tuttiCommDestroy. Later calls are as with blocking = 1; a split
 * or shrink with such a configuration blocks. */
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId commId,
                                                int rank, tuttiConfig_t* config);

/* As tuttiCommInitRankConfig, with `nId` ids, 1 <= nId <= nranks, which share the load of the
 * meeting: the ranks form nId contiguous parts, the first nranks % nId of them larger by one, and
 * part i meets at the process that made commIds[i]. All ranks pass the same list without
 * repetitions; else also tuttiInvalidArgument, and tuttiInvalidUsage where the lists differ. */
TUTTI_API tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t* newcomm, int nranks, int myrank,
                                                  int nId, tuttiUniqueId* commIds,
                                                  tuttiConfig_t* config);

/* Creates a communicator whose `ndev` ranks are all in the calling process, and writes their
 * handles in rank order to comm[0..ndev-1]. devlist[i] is the CUDA device of rank i; a device may
 * be named several times. With a NULL devlist rank i uses device i modulo the number of devices if
 * the program has used CUDA before, otherwise all ranks are on host memory alone. Use the ranks
 * from ndev threads, or from one thread in groups. On failure every comm[i] is TUTTI_COMM_NULL.
 * Errors: those of tuttiCommInitRank; tuttiInvalidArgument for a device that does not exist;
 * tuttiNotSupported for a devlist if there is no CUDA device that this build can use, or if a
 * device in it cannot run this build's kernels. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comm, int ndev, const int* devlist);

/* Completes all operations that were issued on the communicator, so that tuttiCommDestroy does not
 * wait for peers. Afterwards only the queries, tuttiCommDestroy and tuttiCommAbort are legal. Call
 * it on every rank, from the thread that uses the communicator; it blocks at most for the operation
 * timeout. On a poisoned communicator it returns the code of the first error at once. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Frees the communicator, after a tuttiCommFinalize if there was none. The handle is invalid
 * afterwards; NULL is allowed. Call it on every rank, in any order, but not in a group. Its wait
 * for peers is bounded as that of tuttiCommFinalize; on a poisoned communicator there is none.
 * tuttiInvalidUsage while another thread is in a call on the communicator; the handle stays valid
 * then. tuttiInvalidArgument if it was destroyed before: a handle is not reused until 4096 others
 * have been. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Ends every operation of the communicator on all ranks and frees it here; the handle is invalid
 * afterwards, and NULL is allowed. Any thread, also while another thread is inside an operation:
 * that operation returns tuttiRemoteError or tuttiInvalidUsage, and this call waits until it has.
 * Peers get tuttiRemoteError with a message that names this rank. Never waits for a peer; always
 * returns. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* Ends every operation of the communicator on all ranks but keeps the communicator. That includes
 * operations that a death left running because they wait only for live ranks. Afterwards
 * tuttiCommSplit (on all ranks), tuttiCommShrink, tuttiCommDestroy and tuttiCommAbort are legal.
 * Returns when this rank's operations have ended. Any thread; never waits for a peer.
 * tuttiInvalidArgument for flags other than TUTTI_REVOKE_DEFAULT. */
TUTTI_API tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int revokeFlags);

/* Divides a communicator. Ranks with the same color (>= 0) form a new one, ordered by key, then by
 * old rank. A rank with TUTTI_SPLIT_NOCOLOR takes part in the call and gets TUTTI_COMM_NULL. With a
 * NULL `config` the new communicator has the parent's. It shares nothing with the parent, which
 * stays usable and may be destroyed first.
 * Collective over `comm`. Blocks for at most the operation timeout to agree and the initialization
 * timeout to join. Legal on a revoked communicator. In a group *newcomm is a handle at once, and
 * tuttiGroupEnd does the work.
 * Errors: those of tuttiCommInitRank; a rank that dies or does not make the call poisons the
 * parent.
 */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                                       tuttiConfig_t* config);

/* Creates a communicator of the ranks that are neither in excludeRanksList nor dead, in their old
 * order without gaps. Collective over those ranks, with the same list on all of them; dead ranks
 * need not be listed. TUTTI_SHRINK_DEFAULT is legal on a healthy or revoked communicator;
 * TUTTI_SHRINK_ABORT revokes first and is legal on a poisoned one too.
 * Ranks that die during the call, on any host, are left out. All live ranks succeed, in one
 * communicator, or all of them fail. A rank that dies after that is settled is a member, and the
 * next call on the new communicator reports its death.
 * Errors: tuttiTimeout if a live rank that is not excluded does not call within the operation
 * timeout, which the message names; tuttiInvalidUsage, on all ranks, if the lists differ. `config`,
 * *newcomm, groups and the other errors are as for tuttiCommSplit. */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int* excludeRanksList,
                                        int excludeRanksCount, tuttiComm_t* newcomm,
                                        tuttiConfig_t* config, int shrinkFlags);

/* ---- Queries: never block, change nothing --------------------------------------------------- */

/* Writes the state of the communicator to *asyncError: tuttiSuccess, tuttiInProgress, or the code
 * of the error that poisoned it. A death on any host shows within a second, even while no rank
 * calls. The return value is about this call alone. Any thread. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError);

/* Writes the number of ranks of the communicator. */
TUTTI_API tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int* count);

/* Writes the CUDA device of this rank, or TUTTI_DEVICE_HOST. */
TUTTI_API tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int* device);

/* Writes the number of this rank in the communicator. */
TUTTI_API tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int* rank);

/* ---- Registration --------------------------------------------------------------------------- */

/* Registers the `size` bytes at `buff` for this rank alone, so that RDMA sends data from there to
 * other hosts without a copy. The pages are pinned (ulimit -l). With TCP and shared memory the call
 * does nothing and costs nothing. Ranges may overlap or be registered again; no page is pinned
 * twice. The handle is valid until tuttiCommDeregister or the end of the communicator.
 * Local; the thread that uses the communicator; runs at once, even in a group.
 * Errors: tuttiInvalidArgument for NULL or size 0; tuttiSystemError if the adapter refuses the
 * range, for instance because a part of it is not mapped. Nothing is registered then. */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void* buff, size_t size,
                                          void** handle);
/* Ends a registration. Call it before the memory is freed or remapped, on the thread that uses the
 * communicator. Local. tuttiInvalidArgument if `comm` has no such handle. */
TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void* handle);

/* Registers the `size` bytes at `buff` on all ranks together, so that ranks in other processes of
 * the host read them in place, and write symmetric ones. `buff` is in memory of one tuttiMemAlloc
 * and aligned to TUTTI_WIN_REQUIRED_ALIGNMENT; sizes may differ between ranks.
 * Collective: all ranks call in the same order, and each blocks until all have, at most for the
 * operation timeout. In a group *win is written at once and tuttiGroupEnd does the work; a thread
 * that drives several ranks must use a group.
 *
 * With TUTTI_WIN_COLL_SYMMETRIC the program promises that if input and output of one rank's call
 * are in such windows, those of every other rank are too. A call that breaks the promise ends on
 * all ranks with tuttiInvalidUsage. With TUTTI_WIN_DEFAULT collectives ignore the window.
 *
 * Errors: tuttiInvalidArgument on a rank whose memory does not qualify, and tuttiInvalidUsage on
 * the others; tuttiInvalidUsage if flags differ. After these the communicator works as before. A
 * rank that dies or does not make the call poisons it. */
TUTTI_API tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size,
                                                tuttiWindow_t* win, int winFlags);
/* Ends a window on this rank. Call it on every rank, when no operation uses the window. Peers keep
 * the memory mapped until they end it too. Local. tuttiCommDestroy ends the windows that are left.
 * tuttiInvalidArgument if `comm` has no such window. */
TUTTI_API tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);

/* ---- User-made reduction operations ---------------------------------------------------------- */

/* Creates an operation that multiplies this rank's input by *scalar, which has the type `datatype`,
 * and then sums, in collectives of `datatype` on `comm`. The product is rounded once to that type.
 * The scalar is read before the call returns; tuttiScalarDevice gives tuttiNotSupported, as do
 * calls with device memory. A call allocates as much memory as its input has, and takes no plan
 * that needs windows. Ranks may have different scalars, but all must pass such an operation. With
 * fp32Partials the product is not rounded before the sum is. Local. Errors: tuttiInvalidArgument
 * (NULL, or a value that does not exist), tuttiInvalidUsage. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar,
                                                  tuttiDataType_t datatype,
                                                  tuttiScalarResidence_t residence,
                                                  tuttiComm_t comm);
/* Frees an operation of tuttiRedOpCreate*. Legal as soon as the last call with it has returned, in
 * a group too. tuttiInvalidArgument if `op` was not made for `comm`, or was freed. Local. */
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- Collective communication ----------------------------------------------------------------
 * Each rank of the communicator makes the call once, on the thread that uses the communicator. With
 * host memory the call returns when the operation is complete on this rank; in a group it returns
 * at once, and tuttiGroupEnd completes it. With device memory it enqueues on `stream`.
 *
 * Each function says how buffers may coincide (in place); each rank decides that for itself. Any
 * other overlap of sendbuff and recvbuff is tuttiInvalidArgument. A count of 0 must be 0 on all
 * ranks; nothing is sent then, and buffers may be NULL.
 *
 * All collectives return these errors. Before anything is sent: tuttiInvalidArgument for a data
 * type, operation or root that does not exist, and for a buffer that is NULL, misaligned or
 * overlapping, or a stream that is none of tuttiStreamCreate with host memory; tuttiNotSupported if
 * this build has no kernel for the data type and operation, and for device memory on a rank without
 * a device. Later: tuttiInvalidUsage if calls do not match, tuttiRemoteError if a rank died,
 * failed, left or aborted, tuttiTimeout if a live rank did not make the call, tuttiSystemError. */

/* All-reduce: recvbuff[i] on every rank = op over all ranks of sendbuff[i], 0 <= i < count, with
 * the same bits on every rank. Both buffers have `count` elements. In place: recvbuff == sendbuff.
 */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* Reduce: recvbuff[i] on `root` = op over all ranks of sendbuff[i], 0 <= i < count. Both buffers
 * have `count` elements. The other ranks do not use recvbuff, and it may be NULL there. In place:
 * recvbuff == sendbuff. */
TUTTI_API tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);

/* Deprecated, as in NCCL: tuttiBroadcast in place, with `buff` as both buffers. */
TUTTI_API tuttiResult_t tuttiBcast(void* buff, size_t count, tuttiDataType_t datatype, int root,
                                   tuttiComm_t comm, tuttiStream_t stream);

/* Broadcast: recvbuff[0..count) on every rank = sendbuff[0..count) of `root`. The other ranks do
 * not use sendbuff, and it may be NULL there. In place: recvbuff == sendbuff. Accepts every data
 * type. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* Reduce-scatter: recvbuff[0..recvcount) on rank r = op over all ranks of block r of sendbuff. A
 * block has `recvcount` elements, sendbuff nranks*recvcount.
 * In place: recvbuff == sendbuff + rank*recvcount elements. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           tuttiDataType_t datatype, tuttiRedOp_t op,
                                           tuttiComm_t comm, tuttiStream_t stream);

/* All-gather: block r of recvbuff on every rank = sendbuff[0..sendcount) of rank r. A block has
 * `sendcount` elements, recvbuff nranks*sendcount. Accepts every data type.
 * In place: sendbuff == recvbuff + rank*sendcount elements. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       tuttiDataType_t datatype, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* Reduce-scatter and all-gather of blocks of different sizes, like MPI's v-forms: block r has
 * counts[r] elements from displs[r] on (NULL: one behind the other), counts equal on all ranks,
 * displs each rank's own; the own count is counts[rank]. In place: the smaller buffer is the own
 * block. */
TUTTI_API tuttiResult_t tuttiReduceScatterv(const void* sendbuff, const size_t sendcounts[],
                                            const size_t displs[], void* recvbuff, size_t recvcount,
                                            tuttiDataType_t datatype, tuttiRedOp_t op,
                                            tuttiComm_t comm, tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t recvcounts[], const size_t displs[],
                                        tuttiDataType_t datatype, tuttiComm_t comm,
                                        tuttiStream_t stream);

/* All-to-all: block s of recvbuff on rank r = block r of sendbuff on rank s. A block has `count`
 * elements, both buffers nranks*count. Accepts every data type. In place (NCCL has no such calls):
 * recvbuff == sendbuff; the communicator may then keep memory of that size. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      tuttiDataType_t datatype, tuttiComm_t comm,
                                      tuttiStream_t stream);

/* Gather: block r of recvbuff on `root` = sendbuff[0..count) of rank r. recvbuff has nranks*count
 * elements on root; the other ranks do not use it, and it may be NULL there. Accepts every data
 * type. In place: sendbuff == recvbuff + root*count elements on root. */
TUTTI_API tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count,
                                    tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                    tuttiStream_t stream);

/* Scatter: recvbuff[0..count) on rank r = block r of sendbuff on `root`. sendbuff has nranks*count
 * elements on root; the other ranks do not use it, and it may be NULL there. Accepts every data
 * type. In place: recvbuff == sendbuff + root*count elements on root. */
TUTTI_API tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* Barrier: completes on no rank before all ranks have called it. NCCL has none. On host memory's
 * streams alone; work on devices is not waited for. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* ---- Point to point ---------------------------------------------------------------------------
 * call concerns this rank and `peer` alone. The sends of one rank to another meet that one's
 * receives in the order in which each side issued them; count and data type must be equal. They are
 * ordered with nothing else, and ranks may issue different numbers of them between two collectives.
 * A count of 0 moves nothing and needs no counterpart. Alone, a call returns when its bytes need no
 * more of this rank: a receive when they are there, a send at the latest when they are received; a
 * program that relies on a send returning before its receive is called is wrong. In a group all
 * sends and receives progress together, in any pattern, beside its collectives. A rank may send to
 * itself with the receive in the same group (else tuttiInvalidUsage, which poisons nothing if no
 * other rank is concerned). Both ends use host memory, or both device memory: a call then returns
 * when the peer has called too and the copy is on both streams, captured by one graph or none (else
 * tuttiNotSupported, which poisons here). Errors before anything is sent: tuttiInvalidArgument for
 * buffer, count, type and peer. Later: tuttiInvalidUsage if count or type differ at both ends,
 * tuttiRemoteError if a rank died, failed, aborted or destroyed its communicator, tuttiTimeout
 * without a counterpart, tuttiSystemError. Each poisons the communicator. */

/* Sends sendbuff[0..count) to `peer`, which calls tuttiRecv. */
TUTTI_API tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype,
                                  int peer, tuttiComm_t comm, tuttiStream_t stream);

/* Receives recvbuff[0..count) from `peer`, which calls tuttiSend. */
TUTTI_API tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer,
                                  tuttiComm_t comm, tuttiStream_t stream);

/* The collectives below take blocks of different sizes, like MPI's v-forms. Counts and
 * displacements are in elements, one for each rank, and are read during the call; every block is a
 * send and a receive, so the rules above hold, and the two ranks that a block concerns pass the
 * same count. All ranks call them in the same order among the sends and receives of the
 * communicator. Blocks of one receive buffer do not overlap. Further errors: tuttiInvalidArgument
 * for NULL counts or displacements, and for a root that is no rank. */

/* All-to-all: on rank r, sendcounts[s] elements from sendbuff + sdispls[s] go to rank s, and
 * recvcounts[s] elements from rank s to recvbuff + rdispls[s]. Not in place. */
TUTTI_API tuttiResult_t tuttiAlltoAllv(const void* sendbuff, const size_t sendcounts[],
                                       const size_t sdispls[], void* recvbuff,
                                       const size_t recvcounts[], const size_t rdispls[],
                                       tuttiDataType_t datatype, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* Gather: recvcounts[r] elements of rank r go to recvbuff + displs[r] on `root`. The other ranks do
 * not use recvbuff, recvcounts and displs, which may be NULL there. In place: sendbuff == recvbuff
 * + displs[root] on root. */
TUTTI_API tuttiResult_t tuttiGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                     const size_t recvcounts[], const size_t displs[],
                                     tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* Scatter: sendcounts[r] elements from sendbuff + displs[r] on `root` go to rank r. The other ranks
 * do not use sendbuff, sendcounts and displs, which may be NULL there. In place: recvbuff ==
 * sendbuff + displs[root] on root. */
TUTTI_API tuttiResult_t tuttiScatterv(const void* sendbuff, const size_t sendcounts[],
                                      const size_t displs[], void* recvbuff, size_t recvcount,
                                      tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                      tuttiStream_t stream);

/* ---- Groups ------------------------------------------------------------------------------------
 * A group holds calls back until its end and then runs them together. With a group one thread can
 * drive several ranks, although each rank's call waits for the others'. A group belongs to the
 * calling thread. Groups nest, and only the outermost end runs the calls. A group holds
 * initializations or operations, not both. Calls of one communicator keep their order; calls of
 * different communicators progress at the same time, all in the calling thread. */

/* Opens a group in the calling thread. Local; never blocks. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);

/* Closes the group and, if it is the outermost, runs its calls. It returns when all calls with host
 * memory and a NULL stream are complete. If a call inside the group returned an error, nothing of
 * the group runs, and that error is returned again; the peers of the group's calls wait, so abort
 * the communicators. An error at run time ends that call, poisons its communicator and is returned;
 * the calls of other communicators complete. If an initialization fails, the others of the group
 * end soon, all handles made in the group become invalid, and the first cause is returned.
 * tuttiInvalidUsage without a matching tuttiGroupStart, and, with nothing run, if a communicator of
 * the group was destroyed or aborted since its call. */
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* Closes the outermost group without running its calls and writes the time that they would take on
 * this rank by the costs that the choice of algorithms uses. On one communicator the collectives
 * count one after the other, and its sends and receives together: one latency, and what takes
 * longest of the copies, the exchange with one peer, and the network. Calls of several
 * communicators count at the same time. Errors: tuttiInvalidArgument for `simInfo`, and
 * tuttiInvalidUsage in an inner group (the group stays open); tuttiInvalidUsage if the group makes
 * communicators, tuttiNotSupported for device memory, and the error of a call (it is closed). */
TUTTI_API tuttiResult_t tuttiGroupSimulateEnd(tuttiSimInfo_t* simInfo);

/* ---- Extensions: functions that NCCL does not have ----------------------------------------------
 */

/* Forces the algorithm of later operations on `comm`. NULL or "auto" gives the choice back to the
 * library. `name` is one of those that `tutti-info` and `tutti-plan list` print ("ring", "tree",
 * "one_shot", ...) and holds for every collective that has the algorithm. It may also fix how the
 * algorithm runs, as ALGORITHM[@PROTOCOL[:replicas=N][:slots=N][:slot=BYTES]], for example
 * "ring@slots:replicas=2:slot=64K" or "auto@flagged"; the price chooses whatever the name leaves
 * out. "all_reduce:ring;all_gather:pat" names algorithms by collective; a collective that is not
 * named takes the entry without a collective, if there is one, else the library's choice. Case does
 * not matter. Each call replaces the setting of the one before.
 * Call it on all ranks between the same two operations: ranks that differ get tuttiInvalidUsage at
 * the next operation. Local; never blocks; the thread that uses the communicator; not in a group.
 * tuttiInvalidArgument for an unknown name. tuttiNotSupported for an algorithm that a collective
 * named with it does not have, or that none has among so many ranks. */
TUTTI_API tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, const char* name);

/* The result of tuttiCommInfo. Start from TUTTI_COMM_INFO_INITIALIZER; later versions add fields at
 * the end. Texts end with a zero byte. The "last operation" fields describe the last communication
 * call that this rank completed; before the first one they are "" and 0. */
typedef struct tuttiCommInfo_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int hostRanks;             /* ranks on this rank's host, itself included                    */
  int poisoned;              /* 1 after an error that ended the communicator                  */
  char host[64];             /* the name of this rank's host                                  */
  char transport[32];        /* "shm", ...; "" for a communicator of one rank                 */
  char forcedAlgorithm[128]; /* with its parameters; "" if the library chooses                */
  char lastAlgorithm[128];   /* last operation: algorithm                                     */
  char lastProtocol[16];     /* last operation: "flagged", "slots", "direct", or "local"      */
  uint64_t lastPlanHash;     /* last operation: equal hashes mean equal bits and equal traffic */
  uint32_t lastSlices;       /* last operation: slices of each chunk                          */
  uint32_t lastReplicas;     /* last operation: replicas of the schedule                      */
  uint64_t operations;       /* communication calls completed                                 */
  uint64_t payloadBytesSent; /* user bytes sent to peers or stored there; not those of devices */
  uint64_t messagesSent;     /* messages sent to peers; without those of devices              */
  uint64_t mappedBytes;      /* this rank's shared segments and those of peers that it mapped */
  uint64_t lentBytesSent;    /* part of payloadBytesSent: sent from user memory, not copied   */
  uint64_t receivedInPlaceBytes; /* user bytes received straight into user memory, not copied */
} tuttiCommInfo_t;

#define TUTTI_COMM_INFO_MAGIC 0x7475696eu
#define TUTTI_COMM_INFO_INITIALIZER                                                                \
  {                                                                                                \
    sizeof(tuttiCommInfo_t), TUTTI_COMM_INFO_MAGIC, TUTTI_VERSION_CODE, 0, 0, 0, 0, {0}, {0}, {0}, \
        {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                        \
  }

/* Fills in `info`. Local; never blocks; the thread that uses the communicator.
 * tuttiInvalidArgument for an info that did not start from TUTTI_COMM_INFO_INITIALIZER. */
TUTTI_API tuttiResult_t tuttiCommInfo(const tuttiComm_t comm, tuttiCommInfo_t* info);

/* ---- Launchers ----------------------------------------------------------------------------------
 * Under Open MPI's mpirun, MPICH's mpiexec (Hydra), Slurm's srun, torchrun or plain ssh a program
 * finds its rank and the other processes without flags and without MPI:
 *
 *   tuttiLauncher_t job = TUTTI_LAUNCHER_INITIALIZER;
 *   tuttiUniqueId id;
 *   tuttiGetLauncher(&job);
 *   tuttiGetLauncherUniqueId(&id);                             // in every process
 *   tuttiCommInitRank(&comm, job.nRanks, id, job.rank); */

/* The result of tuttiGetLauncher. Start from TUTTI_LAUNCHER_INITIALIZER; later versions add fields
 * at the end. Texts end with a zero byte. */
typedef struct tuttiLauncher_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;       /* of this process, 0 <= rank < nRanks                                     */
  int nRanks;     /* processes that the launcher started together; 1 without a launcher      */
  int localRank;  /* rank among the processes of this host; -1: the launcher does not say    */
  int localRanks; /* number of processes on this host; -1: the launcher does not say         */
  char name[32];  /* "openmpi", "hydra", "srun", "pmi", "pmix", "torchrun", "torch",
                     "environment" (TUTTI_RANK and TUTTI_RANKS), or "none"                    */
  char store[32]; /* how the id travels: "PMI", "PMIx", "address" (TUTTI_ROOT or MASTER_ADDR,
                     and TUTTI_SECRET_FILE), or "none" for one process                        */
} tuttiLauncher_t;

#define TUTTI_LAUNCHER_MAGIC 0x6c61756eu
#define TUTTI_LAUNCHER_INITIALIZER                                                            \
  {                                                                                           \
    sizeof(tuttiLauncher_t), TUTTI_LAUNCHER_MAGIC, TUTTI_VERSION_CODE, 0, 0, 0, 0, {0}, { 0 } \
  }

/* Finds the launcher by the variables that it sets, the innermost one if launchers are nested.
 * TUTTI_RANK and TUTTI_RANKS override it; TUTTI_LAUNCHER=none ignores it. If only the launcher's
 * server on this host knows the numbers, the call asks it, at most for the initialization timeout;
 * it never waits for another rank. The answer holds for the life of the process. Any thread.
 * tuttiInvalidArgument for a launcher that did not start from TUTTI_LAUNCHER_INITIALIZER and for
 * variables that contradict each other. */
TUTTI_API tuttiResult_t tuttiGetLauncher(tuttiLauncher_t* launcher);

/* Writes one id for all processes of the launcher. It travels through the launcher's key-value
 * store; without a store every process computes it from an address (TUTTI_ROOT, or torchrun's) and
 * the secret in TUTTI_SECRET_FILE.
 * Collective: every process calls it exactly once. It returns when all have called, or with an
 * error after the initialization timeout (TUTTI_INIT_TIMEOUT_S). For further communicators create
 * ids with tuttiGetUniqueId and send them over the first communicator. A program that also uses MPI
 * calls MPI_Init first. Under a PMI launcher MPI owns the connection to it, and this call returns
 * tuttiInvalidUsage; send the id with MPI_Bcast instead. Errors: tuttiInvalidArgument (address or
 * secret file), tuttiInvalidUsage (called before, or MPI runs in this process), tuttiNotSupported
 * (libpmix is missing), tuttiTimeout, tuttiRemoteError (rank 0 could not create the id),
 * tuttiSystemError. */
TUTTI_API tuttiResult_t tuttiGetLauncherUniqueId(tuttiUniqueId* uniqueId);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_TUTTI_H_ */
