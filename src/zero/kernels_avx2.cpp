// SPDX-License-Identifier: Apache-2.0
#define TUTTI_ZERO_TABLE kernels_avx2
#define TUTTI_ZERO_ISA "avx2"
#include "zero/kernels_template.hpp"
