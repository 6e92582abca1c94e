// SPDX-License-Identifier: Apache-2.0
#define TUTTI_ZERO_TABLE kernels_scalar
#define TUTTI_ZERO_ISA "scalar"
#include "zero/kernels_template.hpp"
