// SPDX-License-Identifier: Apache-2.0
#define TUTTI_ZERO_TABLE kernels_avx512
#define TUTTI_ZERO_ISA "avx512"
#include "zero/kernels_template.hpp"
