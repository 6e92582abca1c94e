// SPDX-License-Identifier: Apache-2.0
// What happens to one element: conversions between number types, and the optimizers' steps. Every
// product and sum is written as the operation that runs (an explicit fused multiply-add, or none),
// and divisions and roots are rounded correctly, so vectors of any width give the same bits.
//
// Included by one source for each set of vector instructions: nothing here may be emitted as a
// function that another of them could be linked to, hence always_inline, and no function of the
// standard library.
#pragma once

#include <cstdint>

#include "tutti/zero.hpp"

#define TUTTI_ZERO_INLINE [[gnu::always_inline]] inline

namespace tutti::zero {

// What a step needs of AdamW, computed once in double (optimizer.cpp). `factor` multiplies
// gradients: clipping, and the inverse of the loss scale.
struct AdamWTerms {
  float factor, beta1, rest1, beta2, rest2;  // rest: 1 - beta
  float inverse_bias1, inverse_root_bias2;   // 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float epsilon, negative_rate, weight_decay;
};
struct SgdTerms {
  float factor, momentum, negative_rate, weight_decay;
};
struct StepOperands {
  float* parameters;      // fp32
  float* first_moments;   // SGD: momentum, unused if that is 0
  float* second_moments;  // AdamW
  const float* gradients;
  std::uint16_t* copy;  // of the parameters in 16 bits, or NULL
  Number copy_number;
};

TUTTI_ZERO_INLINE std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
TUTTI_ZERO_INLINE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr std::uint32_t kSignBit = 0x80000000U, kInfinityBits = 0x7F800000U;

TUTTI_ZERO_INLINE float widen_bfloat16(std::uint16_t value) {
  return float_of(static_cast<std::uint32_t>(value) << 16);
}

TUTTI_ZERO_INLINE std::uint16_t narrow_bfloat16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & ~kSignBit) > kInfinityBits ? quiet_nan : rounded);
}

// Half precision by integers and one exact float operation, after F. Giesen's half_to_float_fast.
TUTTI_ZERO_INLINE float widen_float16(std::uint16_t value) {
  constexpr std::uint32_t kExponent = 0x7C00U << 13, kRebias = (127U - 15U) << 23;
  constexpr float kSmallest = 6.103515625e-05F;  // 2^-14: where subnormals begin
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000U) << 16;
  const std::uint32_t shifted = static_cast<std::uint32_t>(value & 0x7FFFU) << 13;
  const std::uint32_t exponent = shifted & kExponent;
  const std::uint32_t normal = shifted + kRebias;
  const std::uint32_t special = normal + ((128U - 16U) << 23);
  const std::uint32_t subnormal = bits_of(float_of(normal + (1U << 23)) - kSmallest);
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  return float_of(sign | (exponent == kExponent ? special : finite));
}

TUTTI_ZERO_INLINE std::uint16_t narrow_float16(float value) {
  constexpr std::uint32_t kOverflow = 0x47800000U;   // 2^16
  constexpr std::uint32_t kSubnormal = 0x38800000U;  // 2^-14
  // Adding it shifts a subnormal's bits to the bottom of the mantissa, rounded to nearest even.
  constexpr std::uint32_t kShifter = ((127U - 15U) + (23U - 10U) + 1U) << 23;
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & ~kSignBit;
  const std::uint32_t normal =
      (magnitude + 0xC8000FFFU + ((magnitude >> 13) & 1U)) >> 13;  // (15 - 127) << 23, + 0xFFF
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kShifter)) - kShifter;
  const std::uint32_t special = magnitude > kInfinityBits ? 0x7E00U : 0x7C00U;
  const std::uint32_t finite = magnitude < kSubnormal ? subnormal : normal;
  return static_cast<std::uint16_t>((magnitude >= kOverflow ? special : finite) |
                                    ((bits & kSignBit) >> 16));
}

// g = factor * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// p = p - rate * (m' / (sqrt(v') + epsilon) + weight_decay * p), with m' and v' freed of their
// bias.
TUTTI_ZERO_INLINE float adamw_element(const AdamWTerms& terms, float gradient, float parameter,
                                      float& first, float& second) {
  const float scaled = gradient * terms.factor;
  first = __builtin_fmaf(terms.beta1, first, terms.rest1 * scaled);
  second = __builtin_fmaf(terms.beta2, second, (terms.rest2 * scaled) * scaled);
  const float root = __builtin_sqrtf(second);
  const float divisor = __builtin_fmaf(root, terms.inverse_root_bias2, terms.epsilon);
  const float direction = (first * terms.inverse_bias1) / divisor;
  return __builtin_fmaf(terms.negative_rate,
                        __builtin_fmaf(terms.weight_decay, parameter, direction), parameter);
}

// g = factor * gradient + weight_decay * p;  m = momentum m + g;  p = p - rate * m.
TUTTI_ZERO_INLINE float sgd_element(const SgdTerms& terms, float gradient, float parameter,
                                    float& moment) {
  const float slope = __builtin_fmaf(terms.weight_decay, parameter, gradient * terms.factor);
  moment = __builtin_fmaf(terms.momentum, moment, slope);
  return __builtin_fmaf(terms.negative_rate, moment, parameter);
}

}  // namespace tutti::zero
