// SPDX-License-Identifier: Apache-2.0
// The layers for avx2.
#define TUTTI_LAYERS layers_avx2
#define TUTTI_LAYERS_NAME "avx2"
#include "zero_gpt/layers_sets.hpp"
#include "zero_gpt/layers_template.hpp"
