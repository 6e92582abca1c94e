// SPDX-License-Identifier: Apache-2.0
// The one kernel: destinations <- reduce(sources). Reads every source once, writes every
// destination once, sources in the order given. One table per (type, op), chosen at run time for
// the machine's vector units (AVX-512, AVX2, scalar; NEON by the compiler).
//
// 16- and 8-bit floats accumulate in fp32 over the sources of one call and are rounded once (to
// nearest even; fp8 saturates). Integers wrap. min/max: a NaN in any source gives NaN. A
// destination may equal a source (in place); any other overlap is the caller's bug. Sources and
// destinations need only element alignment. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/call.hpp"
#include "base/types.hpp"

namespace tutti {

struct ReduceCopyArgs {
  const void* const* sources = nullptr;
  std::uint32_t source_count = 0;  // >= 1
  void* const* destinations = nullptr;
  std::uint32_t destination_count = 0;  // >= 1
  std::uint64_t elements = 0;
  // Bit d: store destination d around the cache (large, not read soon), unless it is a source. The
  // kernel fences at the end where it did, so a following release store publishes those bytes too.
  std::uint64_t nontemporal_mask = 0;
  // kAvg's post-operation: divide the reduced value by this once, before rounding. 0: none.
  std::uint32_t average_over = 0;
  // The program's reduction, for user_kernel.
  const UserOp* user = nullptr;
  DataType user_type = DataType::kFloat32;
};

using ReduceCopyFn = void (*)(const ReduceCopyArgs& args);

// The kernel for (type, op); kAvg is kSum plus average_over. nullptr for a float's bitwise and
// logical operations.
[[nodiscard]] ReduceCopyFn reduce_copy_kernel(DataType type, ReduceOp op);

// The kernel that copies elements of so many bytes (1, 2, 4 or 8), for calls that do not reduce:
// one source, and no average.
[[nodiscard]] ReduceCopyFn copy_kernel(std::size_t element_bytes);

// Between a float of 16 or 8 bits and fp32: exact, and rounded to nearest even (fp8 saturates).
// Unaligned memory is allowed; the two do not overlap.
struct FloatConversion {
  void (*widen)(const void* from, float* to, std::uint64_t elements) = nullptr;
  void (*narrow)(const float* from, void* to, std::uint64_t elements) = nullptr;
};
// Both null for other types.
[[nodiscard]] FloatConversion conversion_of(DataType type);

// Reduces by the program's function (`user`), sources from the last to the first: s0 op (s1 op s2).
// The function writes memory of the kernel's own, 64-byte aligned.
void user_kernel(const ReduceCopyArgs& args);

// "avx512", "avx2", "scalar": what was chosen on this machine (TUTTI_ISA can force a lower one).
[[nodiscard]] std::string_view kernel_isa();
// For tests and benchmarks: the kernel of one instruction set; nullptr if the machine lacks it.
[[nodiscard]] ReduceCopyFn reduce_copy_kernel_for(std::string_view isa, DataType type, ReduceOp op);
[[nodiscard]] FloatConversion conversion_for(std::string_view isa, DataType type);

}  // namespace tutti
