/* Tutti's public C API (C11): collective communication among processes, threads and devices.
 *
 * Shape, names and semantics are those of NCCL 2.28 under the prefix `tutti`: a program written
 * for NCCL compiles against this header after a rename. Where NCCL is silent the header speaks,
 * and what NCCL does not have stands under "Extensions".
 *
 *   tuttiUniqueId id;                               // one rank makes it, all ranks receive it
 *   tuttiGetUniqueId(&id);
 *   tuttiComm_t comm;
 *   tuttiCommInitRank(&comm, nranks, id, rank);     // in every rank
 *   tuttiAllReduce(in, out, count, tuttiFloat, tuttiSum, comm, NULL);
 *   tuttiCommDestroy(comm);
 *
 * Rules that hold for every function below:
 *
 * Units. `count` is in elements of the data type, `size` and every name ending in Bytes in bytes,
 * every name ending in Ms in milliseconds. A rank is 0 <= rank < nranks, in the user's order.
 *
 * Host memory. Buffers are ordinary host memory of any alignment that suits the data type. The
 * stream is NULL, which means: the calling thread runs the operation and the call returns when it
 * is complete (recvbuff holds the result, sendbuff may be reused). Inside a group the same holds
 * for tuttiGroupEnd. Another stream gives tuttiNotSupported in this version.
 *
 * Device memory. A rank whose thread has a current CUDA device when it is initialized (the program
 * has used CUDA before) takes buffers of device memory too, both of a call or none
 * (tuttiInvalidArgument). A rank that has no device (tuttiCommCuDevice) refuses device memory with
 * tuttiNotSupported where a communicator has been made since the program first used CUDA; where
 * none has, it takes it for host memory, and the call crashes. The call enqueues on `stream` (NULL:
 * the default stream) and returns once all ranks that share the rank's GPU have called: ranks of
 * one GPU are launched together, so several of them in one thread belong into a group. What a
 * kernel finds wrong shows in tuttiCommGetAsyncError and in the next call. Calls may be captured
 * into CUDA graphs, on all ranks or none; the first of its size and type copies its plan to the GPU
 * and should come before. Ranks of one GPU that are captured into graphs of their own are, over all
 * communicators of the process, at most CUDA_DEVICE_MAX_CONNECTIONS of the GPU: 8, or what the
 * program sets before it uses CUDA, up to 32. Calls of a communicator on several streams run in the
 * order of issue. In this version all ranks of a call with device memory are threads of one
 * process, on one GPU at most as many as it runs blocks at once (an H100: 132), of all
 * communicators together.
 *
 * Making and destroying a communicator allocates and frees memory of its GPUs, for which CUDA may
 * wait until the kernels of other communicators have ended, and these for ranks that have not
 * called. So every rank makes and destroys at the same place among its operations with other
 * communicators, or synchronizes with these operations before. The same holds for a first operation
 * of its size once 16 MiB of plans are on the GPU.
 *
 * Order. All ranks of a communicator issue their collective calls in the same order, with the same
 * count, data type, operation and root. Calls that do not match give every rank tuttiInvalidUsage
 * with a message that names both sides.
 *
 * Threads. Different communicators may be used by different threads at the same time. One
 * communicator is used by one thread at a time, except for tuttiCommAbort,
 * tuttiCommGetAsyncError and tuttiGetLastError, which any thread may call at any time before the
 * communicator is destroyed. A communicator does not survive fork(): only the process that
 * initialized it may use it.
 *
 * Blocking. Every call is bounded. A dead or mismatched peer ends the call with an error; a peer
 * that lives but does not come, a stopped one too, ends it after the operation timeout (10 minutes
 * unless configured). No call exits or raises a signal, or prints anything but the log, which is on
 * stderr and holds warnings only, unless TUTTI_DEBUG and TUTTI_DEBUG_FILE say otherwise.
 *
 * Errors. Every function returns a tuttiResult_t. After tuttiSystemError, tuttiInternalError,
 * tuttiInvalidUsage, tuttiRemoteError or tuttiTimeout from a communication call the communicator is
 * poisoned: every later communication call on it returns the same code, on every rank (the rank
 * whose own resources failed gets that failure's code first), and only tuttiCommAbort,
 * tuttiCommDestroy, tuttiCommFinalize and the queries remain. tuttiInvalidArgument and
 * tuttiNotSupported are found before anything is sent and change nothing. After an error the
 * contents of recvbuff are undefined. The text of an error is in tuttiGetLastError.
 *
 * Ownership. Buffers stay the caller's. They must stay valid, and sendbuff unchanged, from the call
 * until the operation is complete. Output arguments are written only on tuttiSuccess, unless said
 * otherwise. A NULL where a pointer is needed gives tuttiInvalidArgument.
 *
 * Complete in this version: version and error texts, unique ids, launchers, tuttiCommInitRank,
 * -InitRankConfig, -InitAll, -Finalize, -Destroy, -Abort, -Count, -UserRank, -CuDevice,
 * -GetAsyncError, -Split, -Shrink, -Revoke, -Register, -Deregister, -WindowRegister,
 * -WindowDeregister, tuttiMemAlloc and tuttiMemFree, tuttiAllReduce, groups of these, and the
 * extensions. The others are declared so that programs compile; each says below that it returns
 * tuttiNotSupported in this version.
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
/* The NCCL release whose API this header follows, in NCCL's coding. */
#define TUTTI_NCCL_VERSION_CODE 22809

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------- */

/* One rank's membership in one group of ranks. Made by the init functions, freed by
 * tuttiCommDestroy or tuttiCommAbort. */
typedef struct tuttiComm* tuttiComm_t;
#define TUTTI_COMM_NULL NULL

/* A window of memory that all ranks of a communicator registered together. */
typedef struct tuttiWindow* tuttiWindow_t;

/* A cudaStream_t for device communicators; NULL for host communicators (see the top). */
typedef void* tuttiStream_t;

/* How ranks find and trust each other: an address and a 256-bit secret. Plain bytes: copy it to
 * every rank by any means that only those who may join can read, since whoever holds it may join.
 */
#define TUTTI_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

/* What happened, and what to do next. */
typedef enum {
  tuttiSuccess = 0,
  tuttiUnhandledCudaError = 1, /* a CUDA call failed: see the message                          */
  tuttiSystemError = 2,        /* the operating system refused: see the message, fix the machine */
  tuttiInternalError = 3,      /* a bug in Tutti: report it                                     */
  tuttiInvalidArgument = 4,    /* this call's arguments are wrong: fix the call                 */
  tuttiInvalidUsage = 5,       /* the program is wrong: ranks disagree, or wrong state          */
  tuttiRemoteError = 6,        /* a peer died, aborted or failed: abort, then shrink or restart */
  tuttiInProgress = 7,         /* not an error: ask again                                       */
  tuttiTimeout = 8,            /* a peer that lives did not come within the timeout             */
  tuttiNotSupported = 9,       /* legal, but this version or build cannot do it                 */
  tuttiNumResults = 10
} tuttiResult_t;

/* The two dummies below pin the width of the enumerations. */
typedef enum { tuttiNumOps_dummy = 5 } tuttiRedOp_dummy_t;

/* Reduction operations. Integers wrap around in sum and prod; avg of integers is the wrapped sum
 * divided by the number of ranks, rounded towards zero. half, bfloat16 and the f8 types accumulate
 * in float within a reduction step. avg of floating types is the sum divided once by the number of
 * ranks. max and min with a NaN on any rank give a NaN. Every rank receives the same bits. */
typedef enum {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  /* The number of built-in operations, and the least value of one made by tuttiRedOpCreate*. */
  tuttiNumOps = 5,
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
  tuttiFloat8e4m3 = 10, /* reduced in device memory only; else tuttiNotSupported */
  tuttiFloat8e5m2 = 11, /* reduced in device memory only; else tuttiNotSupported */
  tuttiNumTypes = 12
} tuttiDataType_t;

/* Where a scalar argument lies and when it is read. */
typedef enum {
  tuttiScalarDevice = 0,       /* device-visible memory, read while the collective runs */
  tuttiScalarHostImmediate = 1 /* host memory, read before the call returns             */
} tuttiScalarResidence_t;

#define TUTTI_CONFIG_UNDEF_INT INT_MIN
#define TUTTI_CONFIG_UNDEF_PTR NULL
#define TUTTI_SPLIT_NOCOLOR -1
#define TUTTI_UNDEF_FLOAT -1.0f

/* What tuttiCommCuDevice reports for a rank on host memory. */
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
#define TUTTI_SHRINK_DEFAULT 0x00 /* the parent is idle and healthy               */
#define TUTTI_SHRINK_ABORT 0x01   /* first end the parent's operations, then shrink */

/* Flags of tuttiCommRevoke: reserved, must be 0. */
#define TUTTI_REVOKE_DEFAULT 0x00

/* A communicator's configuration. Start from TUTTI_CONFIG_INITIALIZER and set fields; a field left
 * undefined takes the configuration variable of its name, then the default. Strings are copied
 * during the call. The first three fields say which version of the struct the caller compiled and
 * must not be touched. Fields marked "device" are checked and have no effect in this version. A
 * value outside the range that stands with its field is tuttiInvalidArgument. */
typedef struct tuttiConfig_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;            /* 1 (default): calls block. 0: tuttiNotSupported in this version   */
  int cgaClusterSize;      /* device; 0 to 8 */
  int minCTAs;             /* blocks that a rank takes of its GPU, if they are left; >= 1      */
  int maxCTAs;             /* at most; >= minCTAs. Default: half of what is left, for all ranks */
  const char* netName;     /* transport between hosts; no effect among ranks of one host       */
  int splitShare;          /* 0 or 1: tuttiCommSplit may share the parent's resources          */
  int trafficClass;        /* of network connections; >= 0                                     */
  const char* commName;    /* not used in this version                                         */
  int collnetEnable;       /* device; 0 or 1 */
  int CTAPolicy;           /* device; TUTTI_CTA_POLICY_* */
  int shrinkShare;         /* 0 or 1: tuttiCommShrink may share the parent's resources         */
  int nvlsCTAs;            /* device; >= 1   */
  int nChannelsPerNetPeer; /* device; >= 1   */
  int nvlinkCentricSched;  /* device; 0 or 1 */
  /* Extensions. */
  int opTimeoutMs;       /* how long an operation waits for a peer that lives; > 0           */
  int initTimeoutMs;     /* how long initialization waits for all ranks to join; > 0         */
  const char* algorithm; /* as tuttiCommSetAlgorithm; NULL or "auto": the library chooses    */
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
  }

/* What tuttiGroupSimulateEnd fills in. Start from TUTTI_SIM_INFO_INITIALIZER. */
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

/* Writes TUTTI_VERSION_CODE of the library that is loaded, which may differ from the header's.
 * Any thread, never blocks. */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);

/* A constant text for a result code; never NULL, also for a value that is no code. Any thread. */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);

/* The message of the last error: what, where, which rank, what to do. With a communicator: of that
 * communicator; with NULL: of the last call that failed in the calling thread, which is how a
 * failed initialization is read. "" if there was none. The text is valid until the calling thread's
 * next call into Tutti. Any thread, never blocks. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* ---- Memory -------------------------------------------------------------------------------- */

/* Allocates at least `size` bytes in the memory that suits the calling thread's device best: in
 * this version host memory, page-aligned and zero, that can become part of a window
 * (tuttiCommWindowRegister). It is shared memory: a forked child and its parent see each other's
 * writes; each allocation keeps a file descriptor open. `size` 0 gives NULL. Free it with
 * tuttiMemFree. Any thread. tuttiSystemError if there is no memory. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void** ptr, size_t size);

/* Frees what tuttiMemAlloc gave; NULL is allowed. No operation may still use it. Any thread.
 * tuttiInvalidArgument for a pointer that tuttiMemAlloc did not give; tuttiInvalidUsage while the
 * memory is part of a window, and it stays then. */
TUTTI_API tuttiResult_t tuttiMemFree(void* ptr);

/* ---- Initialization and end ---------------------------------------------------------------- */

/* Makes the id of one future communicator and starts, in this process, the service through which
 * its ranks meet; the process must live until they have met. One rank calls it, once for each
 * communicator, and gives the bytes to all others. Any thread; never waits for a peer.
 * tuttiSystemError if no address can be had. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* uniqueId);

/* Joins the communicator of `commId` as `rank` of `nranks`. Collective: returns when all ranks have
 * joined, or with an error after the initialization timeout, naming the ranks that did not come.
 * Ranks may be threads of one process, processes, or both. One thread that initializes several
 * ranks puts the calls in a group; tuttiGroupEnd joins all of them and is where errors appear.
 * *comm is written during this call, never later: in a group it is a handle at once, which only
 * tuttiCommDestroy and tuttiCommAbort take before the group's end. On failure *comm is
 * TUTTI_COMM_NULL; where tuttiGroupEnd reports the failure, every handle that was made in the group
 * is invalid from then on.
 * nranks is at most 65536.
 * Errors: tuttiInvalidArgument (rank or nranks out of range, damaged id), tuttiInvalidUsage (ranks
 * disagree on nranks, a rank twice), tuttiTimeout, tuttiRemoteError, tuttiSystemError. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId commId,
                                          int rank);

/* tuttiCommInitRank with a configuration, the same on all ranks; NULL means the default.
 * tuttiInvalidArgument also for a config that did not start from TUTTI_CONFIG_INITIALIZER or a
 * value out of its range; tuttiNotSupported for blocking = 0 in this version. */
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId commId,
                                                int rank, tuttiConfig_t* config);

/* tuttiCommInitRankConfig with up to one id a rank, so that a very large job does not meet in one
 * place. All ranks pass the same ids in the same order.
 * nId > 1 returns tuttiNotSupported in this version; nId == 1 is tuttiCommInitRankConfig. */
TUTTI_API tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t* newcomm, int nranks, int myrank,
                                                  int nId, tuttiUniqueId* commIds,
                                                  tuttiConfig_t* config);

/* Makes a communicator of `ndev` ranks in the calling process and writes their handles, in rank
 * order, to comm[0..ndev-1]. `devlist` names the CUDA device of each rank, one device as often as
 * wanted; NULL means rank i on device i modulo their number where the program has used CUDA before,
 * else ndev ranks on host memory alone. Use the ranks from ndev threads, or from one thread in
 * groups. On failure no handle is left.
 * Errors: those of tuttiCommInitRank; tuttiInvalidArgument for a device that is not there,
 * tuttiNotSupported for a devlist with a device that does not run this build's kernels. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comm, int ndev, const int* devlist);

/* Completes everything that was issued on the communicator, so that tuttiCommDestroy will not wait
 * for peers; after it only the queries, tuttiCommDestroy and tuttiCommAbort are legal. Call it on
 * every rank; bounded by the operation timeout. On a poisoned communicator it returns at once with
 * the poison's code. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Frees the communicator; the handle is invalid afterwards whatever is returned, and NULL is
 * allowed. Finalizes first where that was not done. Call it on every rank, in any order, but not in
 * a group. Bounded; on a poisoned communicator it does not wait for peers. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Ends every operation of the communicator on all ranks and frees it; the handle is invalid
 * afterwards. Any thread, also while another thread is inside an operation on it: that operation
 * returns tuttiRemoteError or tuttiInvalidUsage and this call waits until it has left. Peers get
 * tuttiRemoteError naming this rank. Never waits for a peer, always returns. NULL is allowed. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* Ends every operation of the communicator on all ranks, as tuttiCommAbort does, but keeps it: what
 * is left to do is tuttiCommSplit (all ranks), tuttiCommShrink, tuttiCommDestroy and
 * tuttiCommAbort. Returns when this rank's operations have left. Any thread; never waits for a
 * peer. */
TUTTI_API tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int revokeFlags);

/* Divides a communicator: ranks of one color (>= 0) form a new one, ordered by key, then by old
 * rank; with TUTTI_SPLIT_NOCOLOR a rank takes part in the call and gets TUTTI_COMM_NULL. `config`
 * NULL: the parent's; the new communicator shares nothing with its parent, which stays as it is and
 * may be destroyed first. Collective over `comm`, blocking, up to the operation timeout for the
 * agreement and the initialization timeout for joining; legal on a revoked communicator. In a group
 * *newcomm is a handle at once and the call takes place at the group's end. Errors: those of
 * tuttiCommInitRank; a rank that dies or does not come poisons the parent. */
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                                       tuttiConfig_t* config);

/* Makes a communicator of the ranks that are neither in excludeRanksList nor dead; they keep their
 * order and close the gaps. Collective over those ranks, with the same list on all of them; dead
 * ranks need not be listed. Flags: TUTTI_SHRINK_DEFAULT on a healthy or revoked communicator;
 * TUTTI_SHRINK_ABORT revokes first and is legal on a poisoned one too. A rank that lives, is not
 * excluded and does not come is tuttiTimeout after the operation timeout, by name; lists that
 * differ are tuttiInvalidUsage on all. If a rank dies while the new communicator is being joined,
 * the call fails on all, and they may shrink again. `config`, *newcomm and groups as for
 * tuttiCommSplit. */
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int* excludeRanksList,
                                        int excludeRanksCount, tuttiComm_t* newcomm,
                                        tuttiConfig_t* config, int shrinkFlags);

/* ---- Queries: never block, change nothing --------------------------------------------------- */

/* The state of the communicator: tuttiSuccess, tuttiInProgress, or the code that poisoned it. The
 * return value only speaks of this call. Any thread. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError);

/* The number of ranks. */
TUTTI_API tuttiResult_t tuttiCommCount(const tuttiComm_t comm, int* count);

/* The CUDA device of this rank, or TUTTI_DEVICE_HOST. */
TUTTI_API tuttiResult_t tuttiCommCuDevice(const tuttiComm_t comm, int* device);

/* This rank. */
TUTTI_API tuttiResult_t tuttiCommUserRank(const tuttiComm_t comm, int* rank);

/* ---- Registration --------------------------------------------------------------------------- */

/* Registers [buff, buff+size) for this rank alone: calls with host memory in it are then sent to
 * other hosts by RDMA from where it lies, without a copy. The pages are pinned (ulimit -l). TCP and
 * shared memory need nothing of the kind; there it costs nothing and changes nothing. Ranges may
 * overlap and be registered again: pages that are registered already are not registered twice. The
 * handle lives until tuttiCommDeregister; all end with the communicator. The thread that uses the
 * communicator; not collective, takes place at once in a group too. tuttiInvalidArgument for no
 * memory, tuttiSystemError where the adapter refuses it: nothing has changed then. */
TUTTI_API tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void* buff, size_t size,
                                          void** handle);
/* Ends it; before the memory is freed, or mapped anew. The same thread. tuttiInvalidArgument if
 * `comm` has no such handle. */
TUTTI_API tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void* handle);

/* Registers [buff, buff+size) on all ranks together (collective: all ranks, in the same order;
 * blocks until all have come or the operation timeout is over). `buff` lies in memory of one
 * tuttiMemAlloc and is aligned to TUTTI_WIN_REQUIRED_ALIGNMENT; sizes may differ between ranks.
 * Ranks in other processes of the host then read the memory where it lies.
 *
 * With TUTTI_WIN_COLL_SYMMETRIC the program promises: where one rank's call has its input and its
 * output in such windows, so has every other rank's. A call that breaks the promise ends on all
 * ranks with tuttiInvalidUsage. With TUTTI_WIN_DEFAULT collectives do not look at the window.
 *
 * Errors, on all ranks alike, after which the communicator goes on as before:
 * tuttiInvalidArgument where the memory is not such memory, tuttiInvalidUsage on the other ranks or
 * where the flags differ. A rank that dies or does not come poisons the communicator. In a group
 * the registration takes place at its end; *win is written at once. One thread that drives several
 * ranks must use a group. */
TUTTI_API tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size,
                                                tuttiWindow_t* win, int winFlags);
/* Ends the window for this rank alone; every rank does so when no operation in it is under way.
 * Peers that have not done so yet keep the memory. tuttiInvalidArgument if `comm` has no such
 * window. tuttiCommDestroy does it for all windows that are left. */
TUTTI_API tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);

/* ---- User-made reduction operations ---------------------------------------------------------- */

/* Makes an operation that multiplies this rank's input by *scalar and then sums; for use with
 * `datatype` on `comm`. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar,
                                                  tuttiDataType_t datatype,
                                                  tuttiScalarResidence_t residence,
                                                  tuttiComm_t comm);
/* Frees an operation that tuttiRedOpCreate* made; legal as soon as the last call that was given it
 * has returned. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- Collective communication ----------------------------------------------------------------
 * Called once for each rank. On host communicators a call returns when the operation is complete on
 * this rank; in a group it returns at once and tuttiGroupEnd completes it. Buffers may coincide as
 * each function says (in place), each rank for itself; any other overlap of sendbuff and recvbuff
 * is tuttiInvalidArgument. count 0 is legal on all ranks together; buffers
 * may then be NULL. */

/* recvbuff[i] = op over all ranks of sendbuff[i], 0 <= i < count, with the same bits on every rank.
 * In place: recvbuff == sendbuff.
 * tuttiNotSupported for a combination of data type and operation that this build has no kernel for;
 * tuttiInvalidArgument for a data type or an operation that does not exist. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* As tuttiAllReduce, with the result on `root` alone; recvbuff is not used elsewhere and may be
 * NULL. In place: recvbuff == sendbuff. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    tuttiDataType_t datatype, tuttiRedOp_t op, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);

/* Deprecated: tuttiBroadcast in place. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiBcast(void* buff, size_t count, tuttiDataType_t datatype, int root,
                                   tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[0..count) on every rank = sendbuff[0..count) of `root`; sendbuff is not used elsewhere
 * and may be NULL. In place: recvbuff == sendbuff. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* recvbuff[0..recvcount) on rank r = block r of the reduction of sendbuff[0..nranks*recvcount).
 * In place: recvbuff == sendbuff + rank*recvcount elements.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           tuttiDataType_t datatype, tuttiRedOp_t op,
                                           tuttiComm_t comm, tuttiStream_t stream);

/* Block r of recvbuff[0..nranks*sendcount) = sendbuff[0..sendcount) of rank r, on every rank.
 * In place: sendbuff == recvbuff + rank*sendcount elements.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       tuttiDataType_t datatype, tuttiComm_t comm,
                                       tuttiStream_t stream);

/* Block s of recvbuff on rank r = block r of sendbuff on rank s; blocks have `count` elements, both
 * buffers nranks*count. Not in place. Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      tuttiDataType_t datatype, tuttiComm_t comm,
                                      tuttiStream_t stream);

/* Block r of recvbuff[0..nranks*count) on `root` = sendbuff[0..count) of rank r; recvbuff is not
 * used elsewhere. In place: sendbuff == recvbuff + root*count elements on root.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count,
                                    tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                    tuttiStream_t stream);

/* recvbuff[0..count) on rank r = block r of sendbuff[0..nranks*count) of `root`; sendbuff is not
 * used elsewhere. In place: recvbuff == sendbuff + root*count elements on root.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count,
                                     tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* ---- Point to point ---------------------------------------------------------------------------
 */

/* Sends sendbuff[0..count) to `peer`, which calls tuttiRecv with the same count and data type.
 * Sends and receives that must progress together belong in one group.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t datatype,
                                  int peer, tuttiComm_t comm, tuttiStream_t stream);

/* Receives recvbuff[0..count) from `peer`, which calls tuttiSend with the same count and data type.
 * Returns tuttiNotSupported in this version. */
TUTTI_API tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer,
                                  tuttiComm_t comm, tuttiStream_t stream);

/* ---- Groups ------------------------------------------------------------------------------------
 * A group holds calls back until its end and then runs them together. It is how one thread drives
 * several ranks, because every rank's call waits for the others'. Groups belong to the calling
 * thread and nest; only the outermost end runs anything. Initializations and operations may not be
 * mixed in one group. Calls of one communicator keep their order; calls of different communicators
 * progress at the same time, all in the calling thread. */

/* Opens a group in the calling thread. Never blocks. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);

/* Closes the group and, if it is the outermost, runs its calls. On host communicators it returns
 * when all of them are complete. If a call inside the group had returned an error already,
 * nothing of the group runs and that error is returned again: the ranks it would have met wait for
 * it, so abort. An error while running ends that call, poisons its communicator and is returned;
 * the calls of other communicators complete. If an initialization fails, the others of the group
 * end soon, none of its handles is left, and the first cause is returned. tuttiInvalidUsage without
 * a matching tuttiGroupStart, and, with nothing run, if a communicator of the group was destroyed
 * or aborted since its call. */
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* Closes the group, runs nothing, and writes the time that it would take.
 * Returns tuttiNotSupported in this version, and drops the group's calls. */
TUTTI_API tuttiResult_t tuttiGroupSimulateEnd(tuttiSimInfo_t* simInfo);

/* ---- Extensions: what NCCL does not have --------------------------------------------------------
 */

/* Makes every later operation on `comm` use the algorithm of that name ("ring", "tree", "one_shot",
 * ...: `tutti-info` and `tutti-plan list` print them); NULL or "auto" gives the choice back to the
 * library. A name may also say how: ALGORITHM[@PROTOCOL[:replicas=N][:slots=N][:slot=BYTES]], as
 * "ring@slots:replicas=2:slot=64K" or "auto@flagged"; what it leaves out is chosen by price. It
 * shapes communication: call it on all ranks between the same two operations; ranks that differ get
 * tuttiInvalidUsage at the next operation. Local, never blocks, not in a group.
 * tuttiInvalidArgument for an unknown name. An operation that the algorithm does not cover returns
 * tuttiNotSupported. */
TUTTI_API tuttiResult_t tuttiCommSetAlgorithm(tuttiComm_t comm, const char* name);

/* What tuttiCommInfo fills in. Start from TUTTI_COMM_INFO_INITIALIZER; later versions add fields at
 * the end. Texts end with a zero byte. "Last operation" fields are of this rank's last completed
 * communication call; before the first they are "" and 0. */
typedef struct tuttiCommInfo_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int hostRanks;             /* ranks on this rank's host, itself included                    */
  int poisoned;              /* 1 after an error that ended the communicator                  */
  char host[64];             /* this rank's host, for people                                  */
  char transport[32];        /* "shm", ...; "" for a communicator of one rank                 */
  char forcedAlgorithm[128]; /* with its parameters; "" when the library chooses              */
  char lastAlgorithm[128];   /* last operation: algorithm                                     */
  char lastProtocol[16];     /* last operation: "flagged", "slots", "direct", or "local"      */
  uint64_t lastPlanHash;     /* last operation: equal hashes mean equal bits and equal traffic */
  uint32_t lastSlices;       /* last operation: slices of each chunk                          */
  uint32_t lastReplicas;     /* last operation: replicas of the schedule                      */
  uint64_t operations;       /* communication calls completed                                 */
  uint64_t payloadBytesSent; /* user bytes this rank sent to peers, not headers nor on devices */
  uint64_t messagesSent;     /* messages this rank sent to peers, not on devices              */
  uint64_t mappedBytes;      /* this rank's segments and its mappings of peers' segments      */
  uint64_t lentBytesSent;    /* of payloadBytesSent: from the user's memory, without a copy   */
} tuttiCommInfo_t;

#define TUTTI_COMM_INFO_MAGIC 0x7475696eu
#define TUTTI_COMM_INFO_INITIALIZER                                                                \
  {                                                                                                \
    sizeof(tuttiCommInfo_t), TUTTI_COMM_INFO_MAGIC, TUTTI_VERSION_CODE, 0, 0, 0, 0, {0}, {0}, {0}, \
        {0}, {0}, 0, 0, 0, 0, 0, 0, 0, 0                                                           \
  }

/* Fills in `info`. Local, never blocks; the thread that uses the communicator.
 * tuttiInvalidArgument for an info that did not start from TUTTI_COMM_INFO_INITIALIZER. */
TUTTI_API tuttiResult_t tuttiCommInfo(const tuttiComm_t comm, tuttiCommInfo_t* info);

/* ---- Launchers ----------------------------------------------------------------------------------
 * Open MPI's mpirun, MPICH's mpiexec (Hydra), Slurm's srun, torchrun, or plain ssh: which one has
 * started this process and where it stands among the others, so that a program needs neither flags
 * nor MPI to find its rank:
 *
 *   tuttiLauncher_t job = TUTTI_LAUNCHER_INITIALIZER;
 *   tuttiUniqueId id;
 *   tuttiGetLauncher(&job);
 *   tuttiGetLauncherUniqueId(&id);                             // in every process
 *   tuttiCommInitRank(&comm, job.nRanks, id, job.rank);
 */

/* What tuttiGetLauncher fills in. Start from TUTTI_LAUNCHER_INITIALIZER; later versions add fields
 * at the end. Texts end with a zero byte. */
typedef struct tuttiLauncher_v100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;       /* of this process, 0 <= rank < nRanks                                    */
  int nRanks;     /* processes that the launcher started together; 1 without a launcher      */
  int localRank;  /* among those of this host; -1: the launcher does not say                 */
  int localRanks; /* those of this host; -1: the launcher does not say                       */
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

/* Finds the launcher by what it left in the environment, the innermost where they are nested.
 * TUTTI_RANK and TUTTI_RANKS win over it; TUTTI_LAUNCHER=none finds none. Never waits for another
 * process; where only the launcher's server on this host knows the numbers it is asked, within the
 * initialization timeout. The answer is kept for the life of the process. Any thread.
 * tuttiInvalidArgument for a launcher that did not start from TUTTI_LAUNCHER_INITIALIZER and for
 * variables that contradict each other. */
TUTTI_API tuttiResult_t tuttiGetLauncher(tuttiLauncher_t* launcher);

/* One id for all processes of the launcher, as tuttiGetUniqueId made by rank 0. It comes through
 * the launcher's key-value store; where there is none, every process makes it from an address
 * (TUTTI_ROOT, or torchrun's) and the secret in TUTTI_SECRET_FILE. Collective: every process calls
 * it, once in its life; returns when all have, or with an error after the initialization timeout
 * (TUTTI_INIT_TIMEOUT_S). For further communicators make ids with tuttiGetUniqueId and send them
 * over the first. A program that uses MPI too calls MPI_Init first; where the launcher speaks PMI,
 * MPI owns its connection, this call returns tuttiInvalidUsage, and MPI_Bcast can carry the id.
 * Errors: tuttiInvalidArgument (address or secret file), tuttiInvalidUsage (called before; MPI runs
 * in this process), tuttiNotSupported (libpmix is missing), tuttiTimeout, tuttiRemoteError (rank 0
 * could not make the id), tuttiSystemError. */
TUTTI_API tuttiResult_t tuttiGetLauncherUniqueId(tuttiUniqueId* uniqueId);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TUTTI_TUTTI_H_ */
