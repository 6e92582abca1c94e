// SPDX-License-Identifier: Apache-2.0
// The layers for avx512.
#define TUTTI_LAYERS layers_avx512
#define TUTTI_LAYERS_NAME "avx512"
#include "zero_gpt/layers_sets.hpp"
#include "zero_gpt/layers_template.hpp"
