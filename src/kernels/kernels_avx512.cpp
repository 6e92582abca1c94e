// SPDX-License-Identifier: Apache-2.0
// The kernels for avx512: the template source with 64-byte vectors.
#define TUTTI_KERNEL_LOOKUP lookup_avx512
#define TUTTI_KERNEL_VECTOR_BYTES 64
#include "kernels/kernel_template.hpp"
