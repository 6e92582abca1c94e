// SPDX-License-Identifier: Apache-2.0
#include "zero_gpt/layers.hpp"

#include <vector>

#include "zero_gpt/layers_sets.hpp"

namespace tutti::gpt {

std::span<const LayerSet> layer_sets() {
  static const std::vector<LayerSet> sets = [] {
    std::vector<LayerSet> found;
#ifdef TUTTI_GPT_X86
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512) found.push_back(layers_avx512());
    if (avx2) found.push_back(layers_avx2());
#endif
    found.push_back(layers_baseline());
    return found;
  }();
  return sets;
}

}  // namespace tutti::gpt
