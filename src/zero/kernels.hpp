// SPDX-License-Identifier: Apache-2.0
// The loops over elements, for this machine's vector instructions. Every loop gives each element
// the bits that the scalar formulas of element.hpp give it, wherever it lies and whichever set of
// instructions runs. Operands may be unaligned and do not overlap unless they are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zero/element.hpp"

namespace tutti::zero {

struct Kernels {
  const char* name;
  // into[i] += from[i]
  void (*add)(float* into, const float* from, std::size_t count);
  // Conversions between fp32 and a Number of 16 bits, rounded to nearest even.
  void (*widen_bfloat16)(float* into, const std::uint16_t* from, std::size_t count);
  void (*widen_float16)(float* into, const std::uint16_t* from, std::size_t count);
  void (*narrow_bfloat16)(std::uint16_t* into, const float* from, std::size_t count);
  void (*narrow_float16)(std::uint16_t* into, const float* from, std::size_t count);
  // The greatest of the bits without the sign: infinity is above all numbers, NaN above infinity.
  std::uint32_t (*greatest_bits)(const float* values, std::size_t count);
  // The sum of round(values[i]^2 * scale), each less than 2^50; at most kSquaresAtOnce values.
  std::int64_t (*sum_squares)(const float* values, std::size_t count, double scale);
  // One step of the optimizer; `copy` is the compute copy, or NULL where parameters are fp32.
  void (*adamw)(const AdamWTerms& terms, const StepOperands& operands, std::size_t count);
  void (*sgd)(const SgdTerms& terms, const StepOperands& operands, std::size_t count);
};

inline constexpr std::size_t kSquaresAtOnce = 4096;  // 2^12 squares below 2^50 fit 63 bits

// The widest that run on this machine.
[[nodiscard]] const Kernels& kernels();
// All that run on this machine, for tests and benchmarks.
[[nodiscard]] std::span<const Kernels* const> all_kernels();

}  // namespace tutti::zero
