// SPDX-License-Identifier: Apache-2.0
// One source for host threads and for CUDA threads: the words that make a function both.
//
// Compiled by g++, TUTTI_HD is nothing and the code runs on the host, under its sanitizers too.
// Compiled by nvcc, the same function exists on both sides. Nothing here needs the CUDA toolkit.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HD __host__ __device__
// Once per step or rarer: kept out of the hot loop's registers and out of every kernel's text.
#define TUTTI_HD_COLD __noinline__ __host__ __device__
#else
#define TUTTI_HD
#define TUTTI_HD_COLD
#endif

// True in the pass that makes device code.
#if defined(__CUDA_ARCH__)
#define TUTTI_ON_DEVICE 1
#else
#define TUTTI_ON_DEVICE 0
#endif
