// SPDX-License-Identifier: Apache-2.0
// Chooses the loops for this machine, once.
#include "zero/kernels.hpp"

#include <array>
#include <vector>

namespace tutti::zero {

extern const Kernels kernels_scalar;
#ifdef TUTTI_ZERO_X86
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

std::span<const Kernels* const> all_kernels() {
  static const std::vector<const Kernels*> widest_first = [] {
    std::vector<const Kernels*> found;
#ifdef TUTTI_ZERO_X86
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512) found.push_back(&kernels_avx512);
    if (avx2) found.push_back(&kernels_avx2);
#endif
    found.push_back(&kernels_scalar);
    return found;
  }();
  return widest_first;
}

const Kernels& kernels() { return *all_kernels().front(); }

}  // namespace tutti::zero
