// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels for this machine, once. Knows which instruction sets exist, not what a kernel
// does.
#include "kernels/reduce_copy.hpp"

#ifdef TUTTI_KERNELS_X86
#include <cpuid.h>
#endif

#include <array>

#include "base/config.hpp"
#include "kernels/kernel_tables.hpp"

namespace tutti {
namespace {

struct Isa {
  IsaChoice choice;
  bool (*runs_here)();
  kernels::LookupFn lookup;
  kernels::ConversionLookupFn conversion;
};

#ifdef TUTTI_KERNELS_X86
// Clang 14's __builtin_cpu_supports does not know it. To be asked after avx2, which also asks
// whether the system saves the registers.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

// Widest first; the last one runs everywhere.
constexpr Isa kIsas[] = {
#ifdef TUTTI_KERNELS_X86
    {IsaChoice::kAvx512,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx2") && has_f16c();
     },
     kernels::lookup_avx512, kernels::lookup_avx512},
    {IsaChoice::kAvx2, [] { return __builtin_cpu_supports("avx2") && has_f16c(); },
     kernels::lookup_avx2, kernels::lookup_avx2},
#endif
    {IsaChoice::kScalar, [] { return true; }, kernels::lookup_scalar, kernels::lookup_scalar},
};

// A bad environment is reported by whoever starts a communicator; here it means auto.
const Isa& chosen_isa() {
  static const Isa& chosen = []() -> const Isa& {
    const Result<Config>& config = process_config();
    const IsaChoice limit = config ? config->isa : IsaChoice::kAuto;
    for (const Isa& isa : kIsas)
      if (isa.choice >= limit && isa.runs_here()) return isa;
    return kIsas[std::size(kIsas) - 1];
  }();
  return chosen;
}

}  // namespace

ReduceCopyFn copy_kernel(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return reduce_copy_kernel(DataType::kUint8, ReduceOp::kSum);
    case 2:
      return reduce_copy_kernel(DataType::kFloat16, ReduceOp::kSum);
    case 4:
      return reduce_copy_kernel(DataType::kUint32, ReduceOp::kSum);
    default:
      return reduce_copy_kernel(DataType::kUint64, ReduceOp::kSum);
  }
}

ReduceCopyFn reduce_copy_kernel(DataType type, ReduceOp op) {
  return chosen_isa().lookup(type, op);
}

FloatConversion conversion_of(DataType type) { return chosen_isa().conversion(type); }

std::string_view kernel_isa() { return name_of(chosen_isa().choice); }

ReduceCopyFn reduce_copy_kernel_for(std::string_view isa_name, DataType type, ReduceOp op) {
  for (const Isa& isa : kIsas)
    if (name_of(isa.choice) == isa_name) return isa.runs_here() ? isa.lookup(type, op) : nullptr;
  return nullptr;
}

FloatConversion conversion_for(std::string_view isa_name, DataType type) {
  for (const Isa& isa : kIsas)
    if (name_of(isa.choice) == isa_name && isa.runs_here()) return isa.conversion(type);
  return {};
}

}  // namespace tutti
