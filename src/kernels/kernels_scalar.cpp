// SPDX-License-Identifier: Apache-2.0
// The kernels for the baseline (SSE2 on x86-64, NEON on AArch64): the template source with 16-byte
// vectors.
#define TUTTI_KERNEL_LOOKUP lookup_scalar
#define TUTTI_KERNEL_VECTOR_BYTES 16
#include "kernels/kernel_template.hpp"
