// SPDX-License-Identifier: Apache-2.0
// The kernels for avx2: the template source with 32-byte vectors.
#define TUTTI_KERNEL_LOOKUP lookup_avx2
#define TUTTI_KERNEL_VECTOR_BYTES 32
#include "kernels/kernel_template.hpp"
