// SPDX-License-Identifier: Apache-2.0
// The layers for baseline.
#define TUTTI_LAYERS layers_baseline
#define TUTTI_LAYERS_NAME "baseline"
#include "zero_gpt/layers_sets.hpp"
#include "zero_gpt/layers_template.hpp"
