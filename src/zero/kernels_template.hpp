// SPDX-License-Identifier: Apache-2.0
// The loops of kernels.hpp, compiled once for each set of vector instructions. A source defines
// TUTTI_ZERO_TABLE (the table's name) and TUTTI_ZERO_ISA (its text) and includes this. All is in an
// unnamed namespace, so that no copy of one source is used by another.
#include "zero/kernels.hpp"

namespace tutti::zero {
namespace {

void add(float* into, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

void widen_bf16(float* __restrict into, const std::uint16_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = widen_bfloat16(from[i]);
}
void widen_fp16(float* __restrict into, const std::uint16_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = widen_float16(from[i]);
}
void narrow_bf16(std::uint16_t* __restrict into, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = narrow_bfloat16(from[i]);
}
void narrow_fp16(std::uint16_t* __restrict into, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = narrow_float16(from[i]);
}

std::uint32_t greatest_bits(const float* values, std::size_t count) {
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]) & ~kSignBit;
    greatest = greatest < bits ? bits : greatest;
  }
  return greatest;
}

std::int64_t sum_squares(const float* values, std::size_t count, double scale) {
  // Adding 1.5 * 2^52 rounds a number below 2^51 to an integer, which then stands in the low bits.
  constexpr double kRounder = 6755399441055744.0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = values[i];
    const double rounded = (value * value) * scale + kRounder;
    sum += __builtin_bit_cast(std::int64_t, rounded) - __builtin_bit_cast(std::int64_t, kRounder);
  }
  return sum;
}

// What is written beside the parameters, chosen outside the loops.
struct NoCopy {
  TUTTI_ZERO_INLINE static void write(std::uint16_t*, std::size_t, float) {}
};
struct Bfloat16Copy {
  TUTTI_ZERO_INLINE static void write(std::uint16_t* copy, std::size_t index, float value) {
    copy[index] = narrow_bfloat16(value);
  }
};
struct Float16Copy {
  TUTTI_ZERO_INLINE static void write(std::uint16_t* copy, std::size_t index, float value) {
    copy[index] = narrow_float16(value);
  }
};

template <typename Copy>
void adamw_loop(const AdamWTerms& given, const StepOperands& operands, std::size_t count) {
  const AdamWTerms terms = given;
  float* __restrict const parameters = operands.parameters;
  float* __restrict const first = operands.first_moments;
  float* __restrict const second = operands.second_moments;
  const float* __restrict const gradients = operands.gradients;
  std::uint16_t* __restrict const copy = operands.copy;
  for (std::size_t i = 0; i < count; ++i) {
    float m = first[i], v = second[i];
    const float value = adamw_element(terms, gradients[i], parameters[i], m, v);
    first[i] = m;
    second[i] = v;
    parameters[i] = value;
    Copy::write(copy, i, value);
  }
}

template <typename Copy, bool kMomentum>
void sgd_loop(const SgdTerms& given, const StepOperands& operands, std::size_t count) {
  const SgdTerms terms = given;
  float* __restrict const parameters = operands.parameters;
  float* __restrict const moments = operands.first_moments;
  const float* __restrict const gradients = operands.gradients;
  std::uint16_t* __restrict const copy = operands.copy;
  for (std::size_t i = 0; i < count; ++i) {
    float m = kMomentum ? moments[i] : 0.0F;
    const float value = sgd_element(terms, gradients[i], parameters[i], m);
    if (kMomentum) moments[i] = m;
    parameters[i] = value;
    Copy::write(copy, i, value);
  }
}

void adamw(const AdamWTerms& terms, const StepOperands& operands, std::size_t count) {
  if (operands.copy == nullptr) return adamw_loop<NoCopy>(terms, operands, count);
  if (operands.copy_number == Number::kBfloat16)
    return adamw_loop<Bfloat16Copy>(terms, operands, count);
  adamw_loop<Float16Copy>(terms, operands, count);
}

template <typename Copy>
void sgd_with(const SgdTerms& terms, const StepOperands& operands, std::size_t count) {
  if (terms.momentum != 0) return sgd_loop<Copy, true>(terms, operands, count);
  sgd_loop<Copy, false>(terms, operands, count);
}

void sgd(const SgdTerms& terms, const StepOperands& operands, std::size_t count) {
  if (operands.copy == nullptr) return sgd_with<NoCopy>(terms, operands, count);
  if (operands.copy_number == Number::kBfloat16)
    return sgd_with<Bfloat16Copy>(terms, operands, count);
  sgd_with<Float16Copy>(terms, operands, count);
}

}  // namespace

extern const Kernels TUTTI_ZERO_TABLE;
const Kernels TUTTI_ZERO_TABLE{TUTTI_ZERO_ISA, add,           widen_bf16,  widen_fp16, narrow_bf16,
                               narrow_fp16,    greatest_bits, sum_squares, adamw,      sgd};

}  // namespace tutti::zero
