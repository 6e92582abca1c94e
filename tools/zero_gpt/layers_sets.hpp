// SPDX-License-Identifier: Apache-2.0
// The sets of layers that are compiled; layer_sets() chooses among them.
#pragma once

#include "zero_gpt/layers.hpp"

namespace tutti::gpt {

[[nodiscard]] LayerSet layers_baseline();
[[nodiscard]] LayerSet layers_avx2();  // x86-64 alone, as the next
[[nodiscard]] LayerSet layers_avx512();

}  // namespace tutti::gpt
